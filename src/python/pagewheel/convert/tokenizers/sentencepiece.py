"""SentencePiece BPE vocabularies (`tokenizer.ggml.model` llama) as tokenizer steps.

SentencePiece writes a space as U+2581 and merges the two neighbours whose joint piece has
the best score. A BPE tokenizer with a list of merges does the same: a merge for each way in
which two pieces make a third, in the order of the third's score. Two ways to make pieces of
equal score are taken in the order of the list, where SentencePiece goes from left to right.
"""

from __future__ import annotations

from collections.abc import Set

from openvino_tokenizers.tokenizer_pipeline import (
    BPETokenizationStep,
    RegexDecodingStep,
    RegexNormalizationStep,
    RegexSplitStep,
    VocabDecoderStep,
)

from ..errors import ConversionError
from .special_tokens import split_special_tokens
from .vocabulary import TokenType, Vocabulary, listed_merges, without_unmerged

_SPACE = "\u2581"
_SPECIAL = (TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN)


def encoding_steps(vocabulary: Vocabulary) -> list[object]:
    """Text to token ids, without those added around a text."""
    special_ids = vocabulary.ids_of_type(*_SPECIAL)
    special_texts = {text: each for each in special_ids if (text := vocabulary.tokens[each])}
    steps: list[object] = [split_special_tokens(special_texts)]
    steps += space_steps(vocabulary)
    if not _has_pieces_across_spaces(vocabulary):
        # What no merge crosses is merged apart: short pieces that repeat are remembered.
        pattern = f"{_SPACE}*[^{_SPACE}]+|{_SPACE}+"
        steps.append(RegexSplitStep(pattern, behaviour="isolate", mergeable=False))
    tokens = [text.encode() for text in vocabulary.tokens]
    merges = _merges(vocabulary, set(tokens))
    others = {*special_ids, *vocabulary.ids_of_type(TokenType.BYTE)}
    steps.append(
        BPETokenizationStep(
            vocab=without_unmerged(
                tokens, merges, lambda index: len(vocabulary.tokens[index]) <= 1 or index in others
            ),
            merges=merges,
            byte_fallback=True,
            added_tokens={text.encode(): each for text, each in special_texts.items()},
            cache_capacity=max(20_000, len(vocabulary.tokens) // 5),
        )
    )
    return steps


def space_steps(vocabulary: Vocabulary) -> list[object]:
    """Spaces as vocabularies write them, one in front where they want one."""
    steps: list[object] = []
    if vocabulary.add_space_prefix:
        # At the start and, as llama.cpp does, after every special token.
        steps.append(RegexNormalizationStep(r"^([\s\S])", rf"{_SPACE}$1", global_replace=False))
    steps.append(RegexNormalizationStep.replace_spaces_metaspace(_SPACE))
    return steps


def decoding_steps(vocabulary: Vocabulary) -> list[object]:
    """Token ids to bytes, and the space at the start away where encoding put one there."""
    skipped = vocabulary.ids_of_type(TokenType.CONTROL, TokenType.UNKNOWN)
    return [VocabDecoderStep(vocab=token_bytes(vocabulary), skip_tokens=skipped)]


def final_steps(vocabulary: Vocabulary) -> list[object]:
    return [RegexDecodingStep.strip_forward_space()] if vocabulary.add_space_prefix else []


def token_bytes(vocabulary: Vocabulary) -> list[bytes]:
    """What each token adds to a text."""
    return [
        _byte(text)
        if kind == TokenType.BYTE
        else (text if kind in _SPECIAL else text.replace(_SPACE, " ")).encode()
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
    """Those that a gemma4 file or a tokenizer.json lists, which need no scores then."""
    if vocabulary.merges or vocabulary.pre_tokenizer == "tokenizer.json":
        return listed_merges(vocabulary, tokens, str.encode)
    if len(vocabulary.scores) != len(vocabulary.tokens):
        raise ConversionError(
            f"tokenizer.ggml.merges is empty and there are {len(vocabulary.scores)} scores for "
            f"{len(vocabulary.tokens)} tokens: one of the two must say how pieces merge"
        )
    return merges_of_scores(vocabulary)


def merges_of_scores(vocabulary: Vocabulary) -> list[tuple[bytes, bytes]]:
    """Every way in which two pieces make a third, best score first, then by id."""
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
