"""Writes what the installed openvino_genai is like to tests/data/openvino_genai.

pip install openvino-genai && python -m benchmarks.compatibility.record
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from .cpp import exported
from .describe import NAMES, describe
from .generation_configs import verdicts
from .parsers import outcomes

FOLDER = Path(__file__).parents[2] / "tests/data/openvino_genai"


def record(name: str, content: dict[str, Any]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / name
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"{path}: {len(content)} entries")


def main() -> None:
    peer = importlib.import_module("openvino_genai")
    record("api.json", {"version": peer.get_version(), "names": describe(peer)})
    record("generation_configs.json", verdicts(peer))
    record("parsers.json", outcomes(peer))
    [library] = Path(str(peer.__file__)).parent.glob("libopenvino_genai.so.*")
    record("cpp.json", {"version": peer.get_version(), "functions": exported(library, NAMES)})


if __name__ == "__main__":
    main()
