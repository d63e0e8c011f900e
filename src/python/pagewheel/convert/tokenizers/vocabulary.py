"""A tokenizer's vocabulary, whatever it was read from."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any

from gguf.constants import TokenType

from ...errors import ConversionError

SPECIAL_TYPES = (TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN)


@dataclass(frozen=True)
class Vocabulary:
    """Byte-level BPE (`model` gpt2), or SentencePiece's BPE (llama) or Unigram (t5).

    `tokens[id]` is the token's text as stored: byte-level encoded or with U+2581 for spaces
    for normal tokens, plain for control and user-defined ones. `merges` are "left right",
    best first; a SentencePiece vocabulary has `scores` instead.
    """

    model: str
    pre_tokenizer: str
    tokens: list[str]
    types: list[int]
    merges: list[str]
    bos_id: int | None
    eos_id: int | None
    pad_id: int | None
    unk_id: int | None
    add_bos: bool
    add_eos: bool
    end_ids: tuple[int, ...]
    chat_template: str | None
    context_length: int
    # Beyond what `pre_tokenizer` names, where a tokenizer.json says it in full: how text is
    # split before merging (PCRE2), whether it is normalised to NFC first, whether a piece that
    # is a token is taken as it is.
    split_patterns: tuple[str, ...] = ()
    nfc: bool = False
    whole_pieces: bool = False
    # SentencePiece's: what merges are made of, and whether a text starts with a space.
    scores: tuple[float, ...] = ()
    add_space_prefix: bool = False
    # Unigram's: SentencePiece's compiled normalisation, and whether spaces in a row become one.
    charsmap: bytes = b""
    remove_extra_spaces: bool = False

    def text(self, token_id: int | None) -> str | None:
        return None if token_id is None else self.tokens[token_id]

    def ids_of_type(self, *types: TokenType) -> list[int]:
        return [token_id for token_id, kind in enumerate(self.types) if kind in types]

    @property
    def special_ids(self) -> list[int]:
        """Tokens that are recognised in a text before it is split."""
        return self.ids_of_type(*SPECIAL_TYPES)

    @property
    def special_texts(self) -> dict[str, int]:
        return {text: each for each in self.special_ids if (text := self.tokens[each])}


def listed_merges(
    vocabulary: Vocabulary, tokens: Set[bytes], spelled: Callable[[str], bytes]
) -> list[tuple[bytes, bytes]]:
    """`vocabulary.merges` in bytes; `tokens` are the vocabulary's.

    Raises ConversionError for a merge that does not make one token of two. With such a merge
    OpenVINO's tokenizer would give nothing at all.
    """
    merges = []
    for rank, merge in enumerate(vocabulary.merges):
        left, space, right = merge.partition(" ")
        if not (left and space and right) or " " in right:
            raise ConversionError(
                f"tokenizer.ggml.merges[{rank}] must be two tokens and a space, got {merge!r:.80}"
            )
        pair = (spelled(left), spelled(right))
        if pair[0] not in tokens or pair[1] not in tokens or pair[0] + pair[1] not in tokens:
            raise ConversionError(
                f"tokenizer.ggml.merges[{rank}] = {merge!r:.80} does not make a token of two tokens"
            )
        merges.append(pair)
    return merges


def bpe_arguments(
    vocabulary: Vocabulary,
    tokens: list[bytes],
    merges: list[tuple[bytes, bytes]],
    is_symbol: Callable[[int], bool],
) -> dict[str, Any]:
    """Arguments of BPETokenizationStep.

    OpenVINO's BPE begins with the longest tokens that no merge makes. It should begin with
    symbols: bytes or characters. So a token that is neither gets a byte in front that no text has.
    """
    made = {left + right for left, right in merges}
    return {
        "vocab": [
            token if is_symbol(index) or token in made else b"\xff" + token
            for index, token in enumerate(tokens)
        ],
        "merges": merges,
        "added_tokens": {text.encode(): each for text, each in vocabulary.special_texts.items()},
        "cache_capacity": max(20_000, len(tokens) // 5),
    }
