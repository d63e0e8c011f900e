"""Unigram vocabularies (`tokenizer.ggml.model` t5) encode and decode as sentencepiece does."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import gguf
import pytest
import sentencepiece
from convert.sentencepiece_reference import trained_model
from convert.tokenizer_reference import OpenVINOTokenizer, corpus, differences

from pagewheel.convert import ConversionError
from pagewheel.convert.gguf.file import GGUFFile
from pagewheel.convert.gguf.vocabulary import read_vocabulary
from pagewheel.convert.tokenizers.tokenizer import build_tokenizer
from pagewheel.convert.tokenizers.vocabulary import TokenType, Vocabulary

NAMES = ["nmt_nfkc", "identity"]


@pytest.fixture(scope="module", params=NAMES)
def processor(request: pytest.FixtureRequest) -> sentencepiece.SentencePieceProcessor:
    return trained_model(
        model_type="unigram",
        vocab_size=700,
        hard_vocab_limit=False,
        normalization_rule_name=request.param,
        remove_extra_whitespaces=request.param == "nmt_nfkc",
    )


def charsmap(processor: sentencepiece.SentencePieceProcessor) -> bytes:
    """Field 2 of the normalizer's description, field 3 of the model."""
    for number, content in fields(processor.serialized_model_proto()):
        if number == 3 and isinstance(content, bytes):
            return b"".join(
                each for n, each in fields(content) if n == 2 and isinstance(each, bytes)
            )
    raise AssertionError


def fields(message: bytes) -> list[tuple[int, bytes | int]]:
    """The fields of a protocol buffer: numbers and strings."""
    result: list[tuple[int, bytes | int]] = []
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        tag = varint()
        if tag & 7 == 2:
            size = varint()
            result.append((tag >> 3, message[at : at + size]))
            at += size
        elif tag & 7 == 5:
            result.append((tag >> 3, struct.unpack_from("<I", message, at)[0]))
            at += 4
        else:
            result.append((tag >> 3, varint()))
    return result


@pytest.fixture(scope="module")
def vocabulary(
    processor: sentencepiece.SentencePieceProcessor, tmp_path_factory: pytest.TempPathFactory
) -> Vocabulary:
    return read(write(processor, tmp_path_factory.mktemp("unigram") / "model.gguf"))


def write(processor: sentencepiece.SentencePieceProcessor, path: Path) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    ids = range(processor.get_piece_size())
    types = [
        2 if processor.is_unknown(i)
        else 3 if processor.is_control(i)
        else 6 if processor.is_byte(i)
        else 1
        for i in ids
    ]  # fmt: skip
    writer.add_tokenizer_model("t5")
    writer.add_token_list([processor.id_to_piece(i) for i in ids])
    writer.add_token_scores([processor.get_score(i) for i in ids])
    writer.add_token_types(types)
    writer.add_unk_token_id(processor.unk_id())
    writer.add_eos_token_id(processor.eos_id())
    writer.add_add_eos_token(False)
    compiled = charsmap(processor)
    writer.add_remove_extra_whitespaces(bool(compiled))
    if compiled:
        writer.add_precompiled_charsmap(compiled)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def read(path: Path) -> Vocabulary:
    with GGUFFile(path) as file:
        return read_vocabulary(file, 1024)


def test_text_encodes_and_decodes_as_the_package_does(
    vocabulary: Vocabulary, processor: sentencepiece.SentencePieceProcessor
) -> None:
    tokenizer = OpenVINOTokenizer(vocabulary)
    # Control tokens are found in text, where the package takes them for letters.
    lines = [line for line in corpus(41, 3000) if "<" not in line and "\0" not in line]
    want = [processor.encode(line) for line in lines]
    assert differences(lines, tokenizer.encode(lines), want) == []
    for line in lines[:300]:
        ids = processor.encode(line)
        if ids and processor.unk_id() not in ids:
            assert tokenizer.decode(ids) == processor.decode(ids)


def test_a_vocabulary_without_an_unknown_token_is_refused(vocabulary: Vocabulary) -> None:
    with pytest.raises(ConversionError, match=r"must have .*unknown_token_id"):
        build_tokenizer(replace(vocabulary, unk_id=None))


def test_byte_tokens_are_refused(vocabulary: Vocabulary) -> None:
    types = [*vocabulary.types]
    types[-1] = TokenType.BYTE
    with pytest.raises(ConversionError, match="Unigram vocabulary with byte tokens"):
        build_tokenizer(replace(vocabulary, types=types))


def test_bytes_that_are_none_are_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_tokenizer_model("t5")
    writer.add_token_list(["a"])
    writer.add_token_scores([0.0])
    writer.add_array("tokenizer.ggml.precompiled_charsmap", [1000, -4])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ConversionError, match="precompiled_charsmap must be bytes"):
        read(tmp_path / "model.gguf")
