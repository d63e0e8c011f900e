"""The order in which peers take turns, and the statistics of their rounds."""

from __future__ import annotations

from fake_engine import QUIET

from benchmarks.record import scenario_record
from benchmarks.rounds import Round, ScenarioResult, counted, order_of, summarise


def a_round(count: int, disturbed: str | None = None, attempt: int = 0, **values: float) -> Round:
    samples = {peer: {"speed": value} for peer, value in values.items()}
    return Round(count, attempt, list(values), samples, {peer: QUIET for peer in values}, disturbed)


def test_two_peers_swap_places_every_round() -> None:
    orders = [order_of(["a", "b"], i) for i in range(4)]
    assert [order[0] for order in orders].count("a") == 2
    assert orders[0] == orders[1][::-1]


def test_each_of_three_peers_comes_first_equally_often() -> None:
    first = [order_of(["a", "b", "c"], i)[0] for i in range(6)]
    assert sorted(first) == ["a", "a", "b", "b", "c", "c"]


def test_the_ratio_is_taken_within_rounds() -> None:
    # The machine halves its speed in the middle; b is twice as fast throughout.
    rounds = [a_round(i, a=speed, b=2 * speed) for i, speed in enumerate([10.0, 10.0, 5.0])]
    summary = summarise(rounds, ["a", "b"], "speed")
    assert (summary["a"].median, summary["a"].low, summary["a"].high) == (10.0, 5.0, 10.0)
    assert (summary["b"].ratio, summary["b"].ratio_low, summary["b"].ratio_high) == (2.0, 2.0, 2.0)
    assert summary["a"].ratio == 1.0


def test_quartiles_of_five_rounds() -> None:
    rounds = [a_round(i, a=float(i + 1)) for i in range(5)]
    summary = summarise(rounds, ["a"], "speed")["a"]
    assert (summary.quartile_low, summary.quartile_high, summary.count) == (2.0, 4.0, 5)


def test_one_round_has_no_spread() -> None:
    summary = summarise([a_round(0, a=3.0)], ["a"], "speed")["a"]
    assert summary.low == summary.high == summary.quartile_low == summary.quartile_high == 3.0


def test_only_the_last_attempt_of_a_round_counts_and_only_undisturbed() -> None:
    rounds = [
        a_round(0, "busy", 0, a=1.0),
        a_round(0, None, 1, a=2.0),
        a_round(1, "busy", 0, a=3.0),
        a_round(1, "busy", 1, a=4.0),
    ]
    assert [one.samples["a"]["speed"] for one in counted(rounds, False)] == [2.0]
    assert [one.samples["a"]["speed"] for one in counted(rounds, True)] == [2.0, 4.0]


def test_an_empty_scenario_has_no_summary() -> None:
    assert scenario_record(ScenarioResult("decode"), ["a"], True)["summary"]["decode"] == {}
