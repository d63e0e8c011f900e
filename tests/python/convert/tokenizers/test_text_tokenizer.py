"""Text becomes the reference tokenizer's tokens, and tokens the same text again."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from convert import tiny_llama
from convert.tokenizer_reference import (
    NFC,
    PRE_TOKENIZERS,
    OpenVINOTokenizer,
    bytes_of,
    corpus,
    differences,
    every_character,
    reference_tokenizer,
    representable,
)

from pagewheel.convert.gguf.file import GGUFFile
from pagewheel.convert.gguf.vocabulary import read_vocabulary
from pagewheel.convert.tokenizers.vocabulary import TokenType, Vocabulary


@pytest.fixture(scope="module")
def vocabulary(smollm2_gguf: Path) -> Vocabulary:
    with GGUFFile(smollm2_gguf) as file:
        return read_vocabulary(file, 8192)


@pytest.fixture(scope="module")
def tokenizer(vocabulary: Vocabulary) -> OpenVINOTokenizer:
    return OpenVINOTokenizer(vocabulary)


def test_varied_text_encodes_as_the_reference(
    tokenizer: OpenVINOTokenizer, vocabulary: Vocabulary
) -> None:
    lines = corpus(1, 5000)
    want = [each.ids for each in reference_tokenizer(vocabulary).encode_batch(lines)]
    assert differences(lines, tokenizer.encode(lines), want) == []


def test_every_character_encodes_as_the_reference(
    tokenizer: OpenVINOTokenizer, vocabulary: Vocabulary
) -> None:
    lines = every_character()
    want = [each.ids for each in reference_tokenizer(vocabulary).encode_batch(lines)]
    assert differences(lines, tokenizer.encode(lines), want) == []


@pytest.mark.parametrize("kind", [kind for kind in PRE_TOKENIZERS if kind != "smollm"])
def test_other_pre_tokenizers_split_as_their_references(vocabulary: Vocabulary, kind: str) -> None:
    other = replace(vocabulary, pre_tokenizer=kind)
    lines = corpus(2, 1500) + every_character()[::11]
    if kind in NFC:  # marks that OpenVINO's NFC leaves in the order they came
        lines = [line for line in lines if not set(line) & set("\u0344\u0f73\u0f75\u0f81")]
    want = [each.ids for each in reference_tokenizer(other).encode_batch(lines)]
    assert differences(lines, OpenVINOTokenizer(other).encode(lines), want) == []


def test_whole_pieces_need_no_merges(vocabulary: Vocabulary) -> None:
    """As in Llama 3's vocabulary, where merges in their order do not lead to every token."""
    merges = [*vocabulary.merges]
    random.Random(8).shuffle(merges)
    other = replace(vocabulary, pre_tokenizer="llama-bpe", merges=merges)
    ids = vocabulary.ids_of_type(TokenType.NORMAL)[::37]
    words = [bytes_of(vocabulary.tokens[each]).decode(errors="ignore") for each in ids]
    lines = ["", *words, *("".join(words[i : i + 9]) for i in range(0, 900, 9)), ""]
    want = [each.ids for each in reference_tokenizer(other).encode_batch(lines)]
    by_merges = reference_tokenizer(replace(other, pre_tokenizer="dbrx"))
    merged = [each.ids for each in by_merges.encode_batch(lines)]
    assert len(differences(lines, merged, want)) > 100
    assert len(differences(lines, OpenVINOTokenizer(other).encode(lines), want)) == 0


def test_tokens_that_no_bytes_spell_are_decoded_only(vocabulary: Vocabulary) -> None:
    tokens = [*vocabulary.tokens, "🚀"]
    other = replace(vocabulary, tokens=tokens, types=[*vocabulary.types, int(TokenType.NORMAL)])
    tokenizer = OpenVINOTokenizer(other)
    assert tokenizer.encode(["go 🚀"]) == OpenVINOTokenizer(vocabulary).encode(["go 🚀"])
    assert tokenizer.decode([len(tokens) - 1]) == "🚀"


def test_very_long_lines_encode_as_the_reference(
    tokenizer: OpenVINOTokenizer, vocabulary: Vocabulary
) -> None:
    lines = [
        " " * 50_000,
        "word " * 30_000,
        "12345" * 10_000,
        "".join(corpus(3, 1500)),
        "!?" * 20_000,
    ]
    want = [each.ids for each in reference_tokenizer(vocabulary).encode_batch(lines)]
    assert differences(lines, tokenizer.encode(lines), want) == []


def test_decoding_gives_the_text_back(tokenizer: OpenVINOTokenizer, vocabulary: Vocabulary) -> None:
    control = [vocabulary.tokens[index] for index in vocabulary.ids_of_type(TokenType.CONTROL)]
    known = set(vocabulary.tokens)
    lines = [line for line in corpus(4, 2000) if representable(line, known)]
    assert len(lines) > 900
    for line, ids in zip(lines, tokenizer.encode(lines), strict=True):
        expected = line
        if any(token in line for token in control):
            # Control tokens are left out; what is between them must be whole.
            expected = reference_tokenizer_decode(vocabulary, ids)
        assert tokenizer.decode(ids) == expected.rstrip("\0")  # see corpus()


def reference_tokenizer_decode(vocabulary: Vocabulary, ids: list[int]) -> str:
    alphabet = {c: i for i, c in enumerate(tiny_llama.byte_alphabet())}
    kept = [i for i in ids if vocabulary.types[i] != TokenType.CONTROL]
    raw = b"".join(bytes(alphabet[c] for c in vocabulary.tokens[i]) for i in kept)
    return raw.decode(errors="replace")


def test_half_a_character_decodes_to_a_replacement(
    tokenizer: OpenVINOTokenizer, vocabulary: Vocabulary
) -> None:
    ids = tokenizer.encode(["x👋"])[0]
    assert tokenizer.decode(ids[:2]).startswith("x")
    assert "\ufffd" in tokenizer.decode(ids[:2])


def test_user_defined_tokens_are_recognised_and_kept(vocabulary: Vocabulary) -> None:
    tokens = [*vocabulary.tokens, "<tool é>"]
    types = [*vocabulary.types, int(TokenType.USER_DEFINED)]
    tokenizer = OpenVINOTokenizer(replace(vocabulary, tokens=tokens, types=types))
    ids = tokenizer.encode(["say <tool é> now<|im_end|>"])[0]
    assert len(tokens) - 1 in ids
    assert tokenizer.decode(ids) == "say <tool é> now"


def test_begin_of_sequence_is_added_where_asked(vocabulary: Vocabulary) -> None:
    plain = OpenVINOTokenizer(vocabulary).encode(["Hello", ""])
    with_bos = OpenVINOTokenizer(replace(vocabulary, add_bos=True)).encode(["Hello", ""])
    assert with_bos == [[vocabulary.bos_id, *ids] for ids in plain]


def test_prompts_of_a_batch_are_padded_on_the_left(tokenizer: OpenVINOTokenizer) -> None:
    result = tokenizer.tokenizer(["a", "a b c"])
    assert result["attention_mask"].tolist() == [[0, 0, 1], [1, 1, 1]]
