"""BPE that takes a piece as it is where the vocabulary has it (`ignore_merges`).

openvino_tokenizers' BPE knows only merges. In Llama 3's vocabulary 588 tokens cannot be
reached by them (" Viet" with its marks, for one), so pieces are looked up beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import openvino.opset13 as ops
from openvino import Output
from openvino_tokenizers.tokenizer_pipeline import BPETokenizationStep, _get_factory
from openvino_tokenizers.utils import create_string_constant_node


def _i32(values: int | list[int]) -> Output:
    return ops.constant(np.array(values, np.int32)).output(0)


def _length(x: Output) -> Output:
    return ops.squeeze(ops.shape_of(x, "i32"), _i32([0])).output(0)


@dataclass
class WholePiecesBPEStep(BPETokenizationStep):
    """Its input and output are ragged: sequences of pieces, sequences of token ids.

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
