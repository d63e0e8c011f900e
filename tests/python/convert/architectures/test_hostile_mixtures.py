"""Mixtures whose numbers and stacks of experts do not fit each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from convert import tiny_models
from convert.gguf_models import write

from pagewheel.convert import convert
from pagewheel.errors import ConversionError

WRONG = [
    ({"num_local_experts": 6}, r"has shape \[5, .*asks? for \[6, "),  # more than there are
    ({"num_local_experts": 4}, r"has shape \[5, .*asks? for \[4, "),
    ({"num_experts_per_tok": 6}, "6 active of 5 experts is not possible"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_a_gguf_file_is_refused(
    changes: dict[str, int], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_models.make("mixtral")
    for name, value in changes.items():
        monkeypatch.setattr(model.config, name, value)
    file = write(model, tmp_path / "model.gguf")
    with pytest.raises(ConversionError, match=message):
        convert(file, tmp_path / "converted", progress=False)


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_a_hugging_face_folder_is_refused(
    changes: dict[str, int], message: str, tmp_path: Path
) -> None:
    folder = tiny_models.save(tiny_models.make("mixtral"), tmp_path / "source")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(ConversionError, match=message):
        convert(folder, tmp_path / "converted", progress=False)
