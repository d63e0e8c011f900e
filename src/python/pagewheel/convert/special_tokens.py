"""Cuts special tokens out of a text, however many a vocabulary has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from openvino import Output
from openvino_tokenizers.tokenizer_pipeline import SpecialToken, SpecialTokensSplit, _get_factory
from openvino_tokenizers.utils import create_string_constant_node, quote_meta


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
    return SpecialTokensTrie([SpecialToken(text) for text in texts])


def trie_pattern(texts: Iterable[str]) -> str:
    """A regular expression for the longest of `texts` at a place; none may be empty."""
    root: dict[str, Any] = {}
    for text in texts:
        node = root
        for character in text:
            node = node.setdefault(character, {})
        node[""] = {}  # a text ends here
    return _branches(root)


def _branches(node: dict[str, Any]) -> str:
    """The pattern of what follows. Runs without a branch become one string: a run of a
    thousand spaces must not nest a thousand groups."""
    options = []
    for character, child in node.items():
        if not character:
            continue
        text = quote_meta(character)
        while len(child) == 1 and "" not in child:
            ((following, child),) = child.items()
            text += quote_meta(following)
        rest = _branches(child)
        options.append(text + rest)
    if not options:
        return ""
    joined = options[0] if len(options) == 1 and "" not in node else f"(?:{'|'.join(options)})"
    return joined + "?" if "" in node else joined
