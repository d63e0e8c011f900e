"""Folders that earlier versions converted still open and give the same tokens."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
from conftest import F32, batching_pipeline, greedy

import pagewheel
from pagewheel.model_info import read_info

DATA = Path(__file__).parents[2] / "data" / "folders"
PROMPT = "the sky over the hill"
# fmt: off
IDS = [120, 261, 36, 119, 111, 125, 36, 115, 122, 264, 262, 36, 108, 109, 263]
# What the version that wrote the folder generated from them, in f32.
TOKENS = {
    "format_4": [255, 175, 239, 113, 80, 186, 27, 31, 101, 60, 53, 162, 14, 53, 68, 81, 146, 237,
                 162, 20, 36, 65, 30, 127],
}
# fmt: on


def unpack(name: str, folder: Path) -> Path:
    folder.mkdir()
    for path in (DATA / name).iterdir():
        if path.suffix == ".gz":
            (folder / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        else:
            shutil.copy(path, folder)
    return folder


def test_every_older_folder_is_tried() -> None:
    assert {path.name for path in DATA.iterdir() if path.is_dir()} == set(TOKENS)


@pytest.mark.parametrize("backend", ["native", "openvino"])
@pytest.mark.parametrize("name", TOKENS)
def test_older_folders_generate_the_same_tokens(name: str, backend: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path / "folder")
    pipeline = batching_pipeline(folder, {**F32, "attention_backend": backend})
    result = pipeline.generate([IDS], greedy(24))[0]
    assert list(result.m_generation_ids[0]) == TOKENS[name]


@pytest.mark.parametrize("name", TOKENS)
def test_older_folders_keep_tokenizer_and_chat_format(name: str, tmp_path: Path) -> None:
    tokenizer = pagewheel.Tokenizer(unpack(name, tmp_path / "folder"))
    assert tokenizer.encode(PROMPT).input_ids.data[0].tolist() == IDS
    assert tokenizer.decode(IDS) == PROMPT
    messages = [{"role": "user", "content": "hello"}]
    expected = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.apply_chat_template(messages, add_generation_prompt=True) == expected


@pytest.mark.parametrize("reader", [pagewheel.Tokenizer, pagewheel.LLMPipeline, read_info])
def test_a_folder_for_a_newer_version_is_refused(reader: type, tmp_path: Path) -> None:
    folder = unpack("format_4", tmp_path / "folder")
    path = folder / "pagewheel.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}))
    with pytest.raises(ValueError, match=r"pagewheel\.json.*version is 2; allowed: 1 to 1"):
        reader(folder)
