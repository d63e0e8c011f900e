"""SentencePiece's Unigram (`tokenizer.ggml.model` t5): the likeliest way to cut a text.

Kudo, 2018, arXiv 1804.10959.
"""

from __future__ import annotations

from openvino_tokenizers.tokenizer_pipeline import (
    CharsmapStep,
    RegexNormalizationStep,
    UnigramModelStep,
)

from ..errors import ConversionError
from . import sentencepiece
from .special_tokens import split_special_tokens
from .vocabulary import TokenType, Vocabulary

_SPECIAL = (TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN)


def encoding_steps(vocabulary: Vocabulary) -> list[object]:
    """Text to token ids, without those added around a text.

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
    special_ids = vocabulary.ids_of_type(*_SPECIAL)
    special_texts = [text for each in special_ids if (text := vocabulary.tokens[each])]
    steps: list[object] = [split_special_tokens(special_texts)]
    steps += _normalisation(vocabulary)
    steps.append(
        UnigramModelStep(
            vocab=[text.encode() for text in vocabulary.tokens],
            vocab_logprobs=list(vocabulary.scores),
            unk_token_id=vocabulary.unk_id,
        )
    )
    return steps


def _normalisation(vocabulary: Vocabulary) -> list[object]:
    """The file's compiled one. Without it spaces only, since CharsmapStep has no identity."""
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
    return [*steps, *sentencepiece.space_steps(vocabulary)]
