"""Tries an installed wheel: no compiler, conversion, both backends, the command line.

It is run in an environment that has the wheel and its dependencies alone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests/python/convert"))

import tiny_llama  # noqa: E402

import pagewheel  # noqa: E402
from pagewheel.convert import convert  # noqa: E402


def main() -> None:
    if ROOT in Path(pagewheel.__file__).parents:
        sys.exit(f"{pagewheel.__file__} is the checkout's package, not the wheel's")
    with tempfile.TemporaryDirectory() as name:
        model = tiny_llama.write(Path(name) / "tiny.gguf")
        folder = convert(model, Path(name) / "folder", progress=False)
        texts = set()
        for backend in ("native", "openvino"):
            pipeline = pagewheel.LLMPipeline(
                folder, "CPU", attention_backend=backend, INFERENCE_PRECISION_HINT="f32"
            )
            texts.add(pipeline.generate("the hill", max_new_tokens=8, ignore_eos=True))
        if len(texts) != 1 or not texts.pop():
            sys.exit("the backends differ, or generate nothing")
        command = [sys.executable, "-m", "pagewheel", "info", str(folder)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    compiler = "with" if shutil.which("c++") else "without"
    print(f"pagewheel {pagewheel.__version__} generates, {compiler} a compiler in reach")


if __name__ == "__main__":
    main()
