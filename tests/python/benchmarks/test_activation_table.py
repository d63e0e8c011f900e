"""What follows for the table of activations from measured times."""

from __future__ import annotations

from benchmarks.activation_table import int16_rows
from benchmarks.fidelity import common


def test_int16_serves_until_bf16_is_faster() -> None:
    few = {1: {"int8": 100.0, "int16": 130.0}, 8: {"int8": 1.0, "int16": 2.0, "bf16": 3.0}}
    assert int16_rows(few) == 8
    assert int16_rows(few | {16: {"int8": 1.0, "int16": 3.1, "bf16": 3.0}}) == 8


def test_without_bf16_int16_may_cost_little() -> None:
    times = {
        1: {"int8": 100.0, "int16": 101.0},
        2: {"int8": 100.0, "int16": 110.0},
        4: {"int8": 100.0, "int16": 150.0},
        8: {"int8": 100.0, "int16": 90.0},
    }
    assert int16_rows(times) == 2


def test_texts_have_tokens_in_common_until_one_differs() -> None:
    assert common([1, 2, 3], [1, 2, 4]) == 2
    assert common([1, 2], [1, 2, 3]) == 2
    assert common([], [1]) == 0
