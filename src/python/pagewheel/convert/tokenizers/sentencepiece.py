"""SentencePiece's BPE (`tokenizer.ggml.model` llama) and Unigram (t5) as tokenizer steps.

SentencePiece's BPE writes a space as U+2581 and merges the two neighbours whose joint piece has
the best score. A BPE tokenizer with a list of merges does the same: a merge for each way in
which two pieces make a third, in the order of the third's score. Two ways to make pieces of
equal score are taken in the order of the list, where SentencePiece goes from left to right.
Unigram finds the likeliest way to cut a text (Kudo, 2018, arXiv 1804.10959).
"""

from __future__ import annotations

from collections.abc import Set

from openvino_tokenizers.tokenizer_pipeline import (
    BPETokenizationStep,
    CharsmapStep,
    RegexNormalizationStep,
    RegexSplitStep,
    UnigramModelStep,
)

from ...errors import ConversionError
from .steps import split_special_tokens
from .vocabulary import SPECIAL_TYPES, TokenType, Vocabulary, bpe_arguments, listed_merges

_SPACE = "\u2581"


def bpe_steps(vocabulary: Vocabulary) -> list[object]:
    """Makes token ids of text, without those added around it."""
    steps: list[object] = [split_special_tokens(vocabulary.special_texts)]
    steps += _space_steps(vocabulary)
    if not _has_pieces_across_spaces(vocabulary):
        # What no merge crosses is merged apart: short pieces that repeat are remembered.
        pattern = f"{_SPACE}*[^{_SPACE}]+|{_SPACE}+"
        steps.append(RegexSplitStep(pattern, behaviour="isolate", mergeable=False))
    tokens = [text.encode() for text in vocabulary.tokens]
    merges = _merges(vocabulary, set(tokens))
    symbols = {*vocabulary.special_ids, *vocabulary.ids_of_type(TokenType.BYTE)}
    symbols |= {index for index, text in enumerate(vocabulary.tokens) if len(text) <= 1}
    arguments = bpe_arguments(vocabulary, tokens, merges, symbols.__contains__)
    steps.append(BPETokenizationStep(**arguments, byte_fallback=True))
    return steps


def _space_steps(vocabulary: Vocabulary) -> list[object]:
    """Writes spaces as vocabularies do, with one in front where they want one."""
    steps: list[object] = []
    if vocabulary.add_space_prefix:
        # At the start and, as llama.cpp does, after every special token.
        steps.append(RegexNormalizationStep(r"^([\s\S])", rf"{_SPACE}$1", global_replace=False))
    steps.append(RegexNormalizationStep.replace_spaces_metaspace(_SPACE))
    return steps


def token_bytes(vocabulary: Vocabulary) -> list[bytes]:
    """Gives what each token adds to a text."""
    return [
        _byte(text)
        if kind == TokenType.BYTE
        else (text if kind in SPECIAL_TYPES else text.replace(_SPACE, " ")).encode()
        for text, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)
    ]


def _byte(text: str) -> bytes:
    if len(text) != 6 or not text.startswith("<0x") or text[5] != ">":
        raise ConversionError(f"the byte token {text!r} must look like <0x0A>")
    try:
        return bytes([int(text[3:5], 16)])
    except ValueError:
        raise ConversionError(f"the byte token {text!r} must look like <0x0A>") from None


def _merges(vocabulary: Vocabulary, tokens: Set[bytes]) -> list[tuple[bytes, bytes]]:
    """Merges that a gemma4 file or a tokenizer.json lists, else those that scores give."""
    if vocabulary.merges or vocabulary.pre_tokenizer == "tokenizer.json":
        return listed_merges(vocabulary, tokens, str.encode)
    if len(vocabulary.scores) != len(vocabulary.tokens):
        raise ConversionError(
            f"tokenizer.ggml.merges is empty and there are {len(vocabulary.scores)} scores for "
            f"{len(vocabulary.tokens)} tokens: one of the two must say how pieces merge"
        )
    return merges_of_scores(vocabulary)


def merges_of_scores(vocabulary: Vocabulary) -> list[tuple[bytes, bytes]]:
    """Gives every way in which two pieces make a third, best score first, then by id."""
    pieces = {
        text: -vocabulary.scores[index]
        for index, (text, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True))
        if kind in (TokenType.NORMAL, TokenType.UNUSED) and text
    }
    merges = []
    for text in sorted(pieces, key=pieces.__getitem__):  # stable: equal scores stay by id
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in pieces and right in pieces:
                merges.append((left.encode(), right.encode()))
    return merges


def _has_pieces_across_spaces(vocabulary: Vocabulary) -> bool:
    return any(
        _SPACE in text.lstrip(_SPACE)
        for text, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)
        if kind == TokenType.NORMAL
    )


def unigram_steps(vocabulary: Vocabulary) -> list[object]:
    """Makes token ids of text, without those added around it.

    Raises ConversionError for a vocabulary that spells unknown characters in bytes or has no
    token for them.
    """
    if TokenType.BYTE in vocabulary.types:
        # UnigramTokenizer spells fewer characters in bytes than sentencepiece does.
        raise ConversionError("a Unigram vocabulary with byte tokens is not supported")
    if vocabulary.unk_id is None:
        raise ConversionError(
            "a Unigram vocabulary must have tokenizer.ggml.unknown_token_id, the token of what no "
            "piece spells"
        )
    model = UnigramModelStep(
        vocab=[text.encode() for text in vocabulary.tokens],
        vocab_logprobs=list(vocabulary.scores),
        unk_token_id=vocabulary.unk_id,
    )
    return [split_special_tokens(vocabulary.special_texts), *_normalisation(vocabulary), model]


def _normalisation(vocabulary: Vocabulary) -> list[object]:
    """Applies the file's compiled normalisation, or spaces only: CharsmapStep has no identity."""
    if vocabulary.charsmap:
        return [
            CharsmapStep(
                charsmap=vocabulary.charsmap,
                add_dummy_prefix=vocabulary.add_space_prefix,
                remove_extra_whitespaces=vocabulary.remove_extra_spaces,
                escape_whitespaces=True,
            )
        ]
    steps: list[object] = []
    if vocabulary.remove_extra_spaces:
        steps.append(RegexNormalizationStep(r"^ +| +$", ""))
        steps.append(RegexNormalizationStep(r" {2,}", " "))
    return [*steps, *_space_steps(vocabulary)]
