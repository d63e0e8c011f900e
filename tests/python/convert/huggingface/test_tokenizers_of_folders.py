"""A folder's tokenizer is read here, or left to transformers without running the folder's code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import openvino as ov
import pytest
from convert import tiny_models
from convert.huggingface_folders import edit_json
from convert.tokenizer_reference import corpus
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

import pagewheel
from pagewheel.convert import ConversionError, convert
from pagewheel.convert.files.source_folder import SourceFolder
from pagewheel.convert.huggingface.tokenizer_json import convert_foreign_tokenizer


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.save(tiny_models.make("llama3"), tmp_path_factory.mktemp("whole"))


def with_own_code(folder: Path, target: Path, mark: Path) -> Path:
    """Has a tokenizer that is not supported and brings a class of its own, which leaves a mark."""
    shutil.copytree(folder, target)
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0}, "<unk>"))
    tokenizer.save(str(target / "tokenizer.json"))
    own = {"AutoTokenizer": ["own.OwnTokenizer"] * 2}
    names = {"tokenizer_class": "OwnTokenizer", "auto_map": own}
    (target / "tokenizer_config.json").write_text(json.dumps(names))
    (target / "own.py").write_text(
        f"open({str(mark)!r}, 'w').close()\n"
        "from transformers import PreTrainedTokenizer\n"
        "class OwnTokenizer(PreTrainedTokenizer): pass\n"
    )
    return target


def test_a_folder_does_not_run_its_own_code_nor_asks_to(whole: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    folder = with_own_code(whole, tmp_path / "folder", mark)
    code = "from pagewheel.cli import main; main()"
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home")}
    result = subprocess.run(
        [sys.executable, "-c", code, "info", str(folder)],
        input="y\n" * 9,
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert not mark.exists()
    assert result.returncode == 1
    assert "the tokenizer cannot be converted" in result.stderr
    assert "[y/N]" not in result.stdout


def test_a_tokenizer_left_to_transformers_does_not_link_out_of_the_folder(
    whole: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "folder"))
    Tokenizer(models.WordLevel({"<unk>": 0}, "<unk>")).save(str(folder / "tokenizer.json"))
    (tmp_path / "secret").write_text("secret")
    (folder / "vocab.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(ConversionError, match="links out of the folder"):
        convert(folder)


def test_settings_of_a_tokenizer_left_to_transformers_name_no_file(tmp_path: Path) -> None:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (tmp_path / "secret").write_text("\n".join([*special, "secretword"]))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join([*special, "ownword"]))
    paths = {"vocab": str(tmp_path / "secret"), "vocab_file": str(tmp_path / "secret")}
    names = {"tokenizer_class": "BertTokenizer", "do_lower_case": False}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        (folder / name).write_text(json.dumps(names | paths))
    tokenizer, _ = convert_foreign_tokenizer(SourceFolder(folder))
    ov.save_model(tokenizer, tmp_path / "tokenizer.xml")
    saved = (tmp_path / "tokenizer.bin").read_bytes()
    assert b"ownword" in saved
    assert b"secretword" not in saved


def character_tokenizer(prefix: bool) -> Tokenizer:
    """BPE on characters with bytes for the rest, as SentencePiece vocabularies are converted."""
    pieces = ["<pad>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["\u2581", *"abcdehnrtx.", "th", "the", "\u2581the", "\u2581a", "re"]
    merges = [("t", "h"), ("th", "e"), ("\u2581", "the"), ("\u2581", "a"), ("r", "e")]
    model = models.BPE(
        {piece: i for i, piece in enumerate(pieces)}, merges, byte_fallback=True, fuse_unk=True
    )
    tokenizer = Tokenizer(model)
    replace = [normalizers.Replace(" ", "\u2581")]
    start = [normalizers.Prepend("\u2581")] if prefix else []
    tokenizer.normalizer = normalizers.Sequence(start + replace)
    tokenizer.add_special_tokens(["<pad>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return tokenizer


@pytest.mark.parametrize("prefix", [False, True])
def test_vocabularies_on_characters_are_read_without_transformers(
    whole: Path, tmp_path: Path, prefix: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "characters"))
    reference = character_tokenizer(prefix)
    reference.save(str(folder / "tokenizer.json"))
    monkeypatch.setitem(sys.modules, "transformers", None)
    tokenizer = pagewheel.Tokenizer(convert(folder, tmp_path / "converted", progress=False))
    for text in ("the thread", " a  there.", "Ça 你好 \n the", "", "x"):
        ids = tokenizer.encode(text).input_ids.data[0].tolist()
        assert ids == reference.encode(text).ids, text
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("kind", ["bytes", "whole pieces", "characters"])
def test_a_vocabulary_without_merges_is_read(whole: Path, tmp_path: Path, kind: str) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "no merges"))
    of_bytes = tiny_models.byte_tokenizer()
    (character_tokenizer(True) if kind == "characters" else of_bytes).save(
        str(folder / "tokenizer.json")
    )
    options = {"merges": [], "ignore_merges": kind == "whole pieces"}
    edit_json(folder / "tokenizer.json", lambda t: t["model"].update(options))
    reference = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert len(reference.encode("the").ids) > (1 if kind == "bytes" else 0)
    tokenizer = pagewheel.Tokenizer(convert(folder, tmp_path / "converted", progress=False))
    assert max(tokenizer.get_vocab().values()) == reference.get_vocab_size() - 1
    for text in [*corpus(seed=5, lines=300), "the", "the thread a", "\u1e40\u00ff"]:
        ids = tokenizer.encode(text).input_ids.data[0].tolist()
        assert ids == reference.encode(text).ids, text
        if kind != "characters":
            assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_other_vocabularies_ask_for_transformers(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "unigram"))
    edit_json(folder / "tokenizer.json", lambda t: t["model"].update(type="Unigram"))
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConversionError, match="'Unigram' is not supported; with the package"):
        convert(folder)


@pytest.mark.parametrize(
    "pattern", [r"\p{N}{1,3}|[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", r" ?\p{L}+|\s|[^\s\p{L}]"]
)
def test_split_patterns_of_a_tokenizer_are_followed(
    whole: Path, tmp_path: Path, pattern: str
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "pattern"))
    reference = tiny_models.byte_tokenizer()
    reference.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    reference.save(str(folder / "tokenizer.json"))
    tokenizer = pagewheel.Tokenizer(convert(folder, tmp_path / "converted", progress=False))
    for text in ("then the a\u180ethe 12345", "a  a\n\n a\u00a0the", "<s>the a</s>"):
        assert tokenizer.encode(text).input_ids.data[0].tolist() == reference.encode(text).ids
