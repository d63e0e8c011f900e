"""Tokenizer steps that openvino_tokenizers has in another form, or not."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import openvino.opset13 as ops
from openvino import Output
from openvino_tokenizers.tokenizer_pipeline import (
    BPETokenizationStep,
    SpecialToken,
    SpecialTokensSplit,
    _get_factory,
)
from openvino_tokenizers.utils import create_string_constant_node, quote_meta

from ...errors import ConversionError


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


def _i32(values: int | list[int]) -> Output:
    return ops.constant(np.array(values, np.int32)).output(0)


def _length(x: Output) -> Output:
    return ops.squeeze(ops.shape_of(x, "i32"), _i32([0])).output(0)


@dataclass
class WholePiecesBPEStep(BPETokenizationStep):
    """BPE that takes a piece as it is where the vocabulary has it (`ignore_merges`).

    openvino_tokenizers' BPE knows only merges. In Llama 3's vocabulary 588 tokens cannot be
    reached by them (" Viet" with its marks, for one), so pieces are looked up beside it. Input
    and output are ragged: sequences of pieces, sequences of token ids.

    `pieces` are the tokens as texts have them; `vocab` has those that merges lead to.
    """

    pieces: list[bytes] = field(default_factory=list, repr=False)

    def get_ov_subgraph(self, input_nodes: list[Output]) -> list[Output]:
        first_pieces, last_pieces, *pieces = input_nodes
        # Each piece is a row of its own, so that rows can be exchanged.
        rows = ops.range(_i32(0), _length(pieces[0]), _i32(1), "i32").output(0)
        after_rows = ops.add(rows, _i32(1)).output(0)
        begins, ends, merged = super().get_ov_subgraph([rows, after_rows, *pieces])
        whole = self._lookup(pieces)
        # The ids of whole pieces are behind all others.
        count = _length(merged)
        is_whole = ops.greater_equal(whole, _i32(0))
        begins = ops.select(is_whole, ops.add(rows, count), begins).output(0)
        ends = ops.select(is_whole, ops.add(after_rows, count), ends).output(0)
        ids = ops.concat([merged, whole], 0).output(0)
        lengths = ops.subtract(ends, begins).output(0)
        stops = ops.concat([_i32([0]), ops.cum_sum(lengths, _i32(0))], 0)
        return [
            ops.gather(stops, first_pieces, _i32(0)).output(0),
            ops.gather(stops, last_pieces, _i32(0)).output(0),
            self._in_order(begins, ends, ids, lengths),
        ]

    def _lookup(self, pieces: list[Output]) -> Output:
        """i32 [pieces]: the id of the token that is the whole piece, or -1."""
        ids = ops.constant(np.arange(len(self.pieces), dtype=np.int32)).output(0)
        is_shared = self.pieces == self.vocab
        table = (
            self.get_pipeline().vocab_node_outputs
            if is_shared
            else create_string_constant_node(self.pieces)
        )
        inputs = [*pieces, *table, ids, _i32(-1)]
        return _get_factory().create("VocabEncoder", inputs).output(0)

    @staticmethod
    def _in_order(begins: Output, ends: Output, ids: Output, lengths: Output) -> Output:
        longest = ops.reduce_max(ops.concat([_i32([0]), lengths], 0), _i32(0)).output(0)
        dense = _get_factory().create(
            "RaggedToDense",
            [begins, ends, ids, longest, _i32(-1)],
            {"pad_right": True, "pad_max_length": False},
        )
        # Ids plus one in place of a mask: NonZero of OpenVINO's CPU plugin takes no booleans.
        filled = ops.non_zero(ops.add(dense.output(0), _i32(1)), "i32")
        return ops.gather_nd(dense.output(0), ops.transpose(filled, _i32([1, 0]))).output(0)
