"""Cuts special tokens out of a text, however many a vocabulary has."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from openvino import Output
from openvino_tokenizers.tokenizer_pipeline import SpecialToken, SpecialTokensSplit, _get_factory
from openvino_tokenizers.utils import create_string_constant_node, quote_meta

from ..errors import ConversionError


@dataclass
class SpecialTokensTrie(SpecialTokensSplit):
    """`SpecialTokensSplit` with one pattern that branches character by character.

    A list of alternatives is tried one by one at each place in the text: Gemma's 6,414
    tokens, 30 of them runs of spaces, would be tried at every space.
    """

    def get_ov_subgraph(self, input_nodes: list[Output]) -> list[Output]:
        pattern = f"({trie_pattern(token.text for token in self.special_tokens)})"
        input_nodes.extend(create_string_constant_node(pattern))
        return _get_factory().create("SpecialTokensSplit", input_nodes).outputs()


def split_special_tokens(texts: Iterable[str]) -> SpecialTokensTrie:
    """Needed without any texts too: the next steps take what this one adds to their input."""
    return SpecialTokensTrie([SpecialToken(text) for text in texts])


# PCRE2 allows 250 nested groups. Gemma's vocabulary, with its runs of spaces, needs the most of
# those known: 30.
_MAX_NESTED = 200


def trie_pattern(texts: Iterable[str]) -> str:
    """A regular expression for the longest of `texts` at a place; none may be empty.

    Raises ConversionError where more than 200 of them begin with each other.
    """
    different = sorted(set(texts))
    return _branches(different, 0, 0) if different else "(?!)"  # matches nowhere


def _branches(texts: list[str], start: int, nested: int) -> str:
    """The pattern of what follows the first `start` characters, which the sorted `texts` share.

    Further characters that all share become one string, not a group each: there may be a
    thousand spaces.
    """
    if nested > _MAX_NESTED:
        raise ConversionError(
            f"more than {_MAX_NESTED} special tokens begin with each other, as {texts[0]!r:.40} "
            f"and {texts[-1]!r:.40}"
        )
    ends_here = len(texts[0]) == start
    options = []
    for _, group in itertools.groupby(texts[ends_here:], key=lambda text: text[start]):
        same = list(group)
        end = _common(same[0], same[-1])
        shared = "".join(map(quote_meta, same[0][start:end]))
        options.append(shared + (_branches(same, end, nested + 1) if len(same) > 1 else ""))
    if not options:
        return ""
    joined = options[0] if len(options) == 1 and not ends_here else f"(?:{'|'.join(options)})"
    return joined + "?" if ends_here else joined


def _common(one: str, other: str) -> int:
    """How many characters both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
