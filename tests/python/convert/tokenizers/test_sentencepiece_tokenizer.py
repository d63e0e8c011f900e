"""SentencePiece vocabularies encode and decode as the sentencepiece package does.

The models are trained here, small, on the text of the byte-level tests.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import openvino as ov
import pytest
from convert.sentencepiece_reference import reference, trained_model
from convert.tokenizer_reference import (
    OpenVINOTokenizer,
    corpus,
    differences,
    every_character,
)

import pagewheel
from pagewheel.convert import ConversionError
from pagewheel.convert.gguf.file import GGUFFile
from pagewheel.convert.gguf.vocabulary import read_vocabulary
from pagewheel.convert.tokenizers.sentencepiece import merges_of_scores, token_bytes
from pagewheel.convert.tokenizers.tokenizer import build_tokenizer
from pagewheel.convert.tokenizers.vocabulary import TokenType, Vocabulary

USER_DEFINED = ["<tool é>", "  ", "    ", "\n", "\n\n", "<b>", "<bb>"]


@pytest.fixture(scope="module", params=[True, False], ids=["prefix", "no-prefix"])
def vocabulary(request: pytest.FixtureRequest) -> Vocabulary:
    return trained(prefix=request.param)


@pytest.fixture(scope="module")
def tokenizer(vocabulary: Vocabulary) -> OpenVINOTokenizer:
    return OpenVINOTokenizer(vocabulary)


def trained(prefix: bool) -> Vocabulary:
    processor = trained_model(
        model_type="bpe",
        vocab_size=1200,
        byte_fallback=True,
        character_coverage=0.99,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=prefix,
        user_defined_symbols=[text.replace(" ", "\u2581") for text in USER_DEFINED],
    )
    size = processor.get_piece_size()
    tokens = [processor.id_to_piece(index) for index in range(size)]
    types = [int(TokenType.NORMAL)] * size
    for index, text in enumerate(tokens):
        if processor.is_control(index):
            types[index] = TokenType.CONTROL
        elif processor.is_unknown(index):
            types[index] = TokenType.UNKNOWN
        elif processor.is_byte(index):
            types[index] = TokenType.BYTE
        elif text.replace("\u2581", " ") in USER_DEFINED:
            types[index] = TokenType.USER_DEFINED
            tokens[index] = text.replace("\u2581", " ")
    return Vocabulary(
        model="llama",
        pre_tokenizer="default",
        tokens=tokens,
        types=types,
        merges=[],
        bos_id=processor.bos_id(),
        eos_id=processor.eos_id(),
        pad_id=0,
        unk_id=processor.unk_id(),
        add_bos=False,
        add_eos=False,
        end_ids=(processor.eos_id(),),
        chat_template=None,
        context_length=1024,
        scores=tuple(processor.get_score(index) for index in range(size)),
        add_space_prefix=prefix,
    )


def plain(lines: list[str], vocabulary: Vocabulary) -> list[str]:
    """Lines without what the package does not look for (control tokens), or looks for in one
    text where pagewheel begins a new one (user-defined tokens, after which a space is put)."""
    special = [vocabulary.tokens[i] for i in vocabulary.ids_of_type(TokenType.CONTROL)]
    special.append(vocabulary.tokens[vocabulary.unk_id or 0])
    if vocabulary.add_space_prefix:
        special += USER_DEFINED
        # The package finds two spaces where it puts one before another.
        lines = [line for line in lines if not line.startswith((" ", "\u2581"))]
    return [line for line in lines if not any(text in line for text in special)]


def test_text_encodes_as_the_package_does(
    tokenizer: OpenVINOTokenizer, vocabulary: Vocabulary
) -> None:
    processor = reference(vocabulary)
    lines = corpus(22, 4000) + [f"x{text}  y{text}" for text in USER_DEFINED]
    lines = plain(lines + every_character()[::30], vocabulary)
    assert len(lines) > 1500
    want = [processor.encode(line) for line in lines]
    assert differences(lines, tokenizer.encode(lines), want) == []


def test_tokens_decode_as_the_package_does(
    tokenizer: OpenVINOTokenizer, vocabulary: Vocabulary
) -> None:
    processor = reference(vocabulary)
    for line in plain(corpus(23, 600), vocabulary):
        ids = tokenizer.encode([line])[0]
        if ids:
            assert tokenizer.decode(ids) == processor.decode(ids).rstrip("\0")


def test_control_tokens_are_found_and_what_follows_is_a_text_of_its_own(
    tokenizer: OpenVINOTokenizer, vocabulary: Vocabulary
) -> None:
    left, right, whole = tokenizer.encode(["Hello", "world", "Hello</s>world"])
    assert whole == [*left, vocabulary.eos_id, *right]
    assert tokenizer.decode(whole).startswith("Hello")


def test_cpp_decodes_any_tokens(
    tokenizer: OpenVINOTokenizer, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    for name, graph in zip(("tokenizer", "detokenizer"), build_tokenizer(vocabulary), strict=True):
        ov.save_model(graph, tmp_path / f"openvino_{name}.xml", compress_to_fp16=False)
    (tmp_path / "openvino_model.xml").touch()  # a folder without one is no model
    ours = pagewheel.Tokenizer(tmp_path)
    table = token_bytes(vocabulary)
    for line in plain(corpus(24, 300), vocabulary):
        ids = tokenizer.encode([line])[0]
        for part in (ids, ids[1:], ids[:1]):  # characters cut in two, too
            if part:
                expected = b"".join(table[each] for each in part).decode(errors="replace")
                if vocabulary.add_space_prefix:
                    expected = expected.removeprefix(" ")
                assert ours.decode(part, skip_special_tokens=False) == expected


def test_gemma4s_list_of_merges_does_what_the_scores_do(
    tokenizer: OpenVINOTokenizer, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "gemma4")
    writer.add_tokenizer_model("gemma4")
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    merges = merges_of_scores(vocabulary)
    writer.add_token_merges([f"{left.decode()} {right.decode()}" for left, right in merges])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with GGUFFile(tmp_path / "model.gguf") as file:
        listed = read_vocabulary(file, 1024)
    assert listed.add_bos
    assert not listed.add_space_prefix
    lines = plain(corpus(26, 500), vocabulary)
    prefix = vocabulary.add_space_prefix
    listed = replace(listed, add_bos=False, add_space_prefix=prefix)
    assert OpenVINOTokenizer(listed).encode(lines) == tokenizer.encode(lines)


def test_damaged_vocabularies_are_refused(vocabulary: Vocabulary) -> None:
    byte = vocabulary.types.index(TokenType.BYTE)
    tokens = [*vocabulary.tokens]
    tokens[byte] = "<0xZZ>"
    with pytest.raises(ConversionError, match="<0xZZ>"):
        build_tokenizer(replace(vocabulary, tokens=tokens))


@pytest.mark.parametrize(
    ("merge", "words"),
    [
        ("th", "must be two tokens and a space, got 'th'"),
        ("t h e", "must be two tokens and a space, got 't h e'"),
        (" th", "must be two tokens and a space"),
        ("\u4e00 h", "does not make a token of two tokens"),
        ("the </s>", "does not make a token of two tokens"),
    ],
)
def test_merges_that_make_no_token_are_refused(
    vocabulary: Vocabulary, merge: str, words: str
) -> None:
    merges = [f"{left.decode()} {right.decode()}" for left, right in merges_of_scores(vocabulary)]
    with pytest.raises(ConversionError, match=rf"merges\[5\].* {words}"):
        build_tokenizer(replace(vocabulary, merges=[*merges[:5], merge], scores=()))


def test_neither_merges_nor_scores_are_refused(vocabulary: Vocabulary) -> None:
    with pytest.raises(ConversionError, match="merges is empty and there are 0 scores for"):
        build_tokenizer(replace(vocabulary, scores=()))
