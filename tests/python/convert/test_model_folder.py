"""What a converted folder holds, and what `resolve_model` makes of a path."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from convert import tiny_llama

from pagewheel.convert import ConversionError, convert, resolve_model


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_folder_holds_what_programs_look_for(smollm2_folder: Path) -> None:
    names = {path.name for path in smollm2_folder.iterdir()}
    graphs = ("openvino_model", "openvino_tokenizer", "openvino_detokenizer")
    assert names == {f"{graph}.{end}" for graph in graphs for end in ("xml", "bin")} | {
        "config.json",
        "generation_config.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        "pagewheel.json",
    }


def test_configuration_describes_smollm2(smollm2_folder: Path, smollm2_gguf: Path) -> None:
    config = load(smollm2_folder / "config.json")
    expected = {
        "model_type": "llama",
        "hidden_size": 576,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "rope_theta": 100000.0,
        "max_position_embeddings": 8192,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    assert {key: config[key] for key in expected} == expected
    assert load(smollm2_folder / "generation_config.json")["eos_token_id"] == [2, 0]
    tokenizer = load(smollm2_folder / "tokenizer_config.json")
    assert (tokenizer["bos_token"], tokenizer["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    assert tokenizer["add_bos_token"] is False
    description = load(smollm2_folder / "pagewheel.json")
    digest = hashlib.sha256(smollm2_gguf.read_bytes()).hexdigest()
    assert description["source"] == {"file": smollm2_gguf.name, "sha256": digest, "kind": "gguf"}
    assert description["rotary"]["dims"] == 64
    assert description["rotary"]["inverse_frequencies"][1] == 100000.0 ** (-2 / 64)
    assert description["chat_format"]["generation_prompt"] == "<|im_start|>assistant\n"


def test_chat_template_is_kept_to_the_byte(smollm2_folder: Path) -> None:
    template = (smollm2_folder / "chat_template.jinja").read_bytes().decode()
    assert template == load(smollm2_folder / "tokenizer_config.json")["chat_template"]


def test_model_without_chat_template_has_no_chat_format(tmp_path: Path) -> None:
    folder = convert(
        tiny_llama.write(tmp_path / "a.gguf", metadata={"tokenizer.chat_template": None})
    )
    assert not (folder / "chat_template.jinja").exists()
    assert load(folder / "pagewheel.json")["chat_format"] is None


def test_conversion_imports_neither_transformers_nor_torch(tmp_path: Path) -> None:
    path = tiny_llama.write(tmp_path / "a.gguf")
    code = (
        "import sys; from pagewheel.convert import convert; convert(sys.argv[1])\n"
        "print({'transformers', 'torch', 'tokenizers'} & set(sys.modules))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert (output.stdout, output.stderr) == ("set()\n", "")


def test_output_folder_must_be_empty(tmp_path: Path) -> None:
    path = tiny_llama.write(tmp_path / "a.gguf")
    folder = tmp_path / "out"
    assert convert(path, folder) == folder
    with pytest.raises(FileExistsError, match="out"):
        convert(path, folder)


def test_ir_folder_resolves_to_itself(smollm2_folder: Path) -> None:
    assert resolve_model(str(smollm2_folder)) == smollm2_folder


def test_gguf_file_resolves_to_its_conversion(tmp_path: Path) -> None:
    path = tiny_llama.write(tmp_path / "a.gguf")
    assert (resolve_model(path) / "openvino_model.xml").is_file()


def test_missing_and_foreign_paths_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no-such\.gguf"):
        resolve_model(tmp_path / "no-such.gguf")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConversionError, match="empty"):
        resolve_model(tmp_path / "empty")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ConversionError, match="not a GGUF file"):
        resolve_model(tmp_path / "notes.txt")
