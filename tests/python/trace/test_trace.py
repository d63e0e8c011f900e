"""Recording what eviction kept, and drawing it."""

from __future__ import annotations

import base64
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import pagewheel
from pagewheel.cli.app import app
from pagewheel.trace import Decision, Setup, Trace, record, write_page, write_pictures
from pagewheel.trace.draw import colours_of, draw_layer
from pagewheel.trace.history import (
    ScoreScale,
    cells,
    columns_of,
    dropped_at,
    layer_rotations,
    mean_scores,
    times,
)
from pagewheel.trace.page import MOST_AT_ONCE, page_of
from pagewheel.trace.summary import draw_summary
from pagewheel.trace.svg import EVICTED, HELD_GENERATED, HELD_PROMPT, PAPER, decades, rgb, ticks

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def trace(smollm2_folder: Path) -> Trace:
    config = pagewheel.CacheEvictionConfig(
        32, 32, 128, apply_rotation=True, position_limit=1, policy="tova", granularity="token"
    )
    return record(smollm2_folder, "A list of animals: ", config, 180)


def small_trace() -> Trace:
    """Two layers, four tokens of prompt and four generated; each layer evicts two tokens once."""
    decisions = [
        Decision(0, 6, [0, 1, 2, 3, 4, 5], [0] * 6, [8.0, 1.0, 2.0, 4.0, 1.0, 1.0], [1, 2]),
        Decision(1, 6, [0, 1, 2, 3, 4, 5], [0] * 6, [8.0, 4.0, 4.0, 1.0, 1.0, 1.0], [3, 4]),
    ]
    setup = Setup("small", "tova", 1, 1, 1, 6, rotation=True)
    texts = ["a", "b", "c", "d", "e", "f", "g", "h"]
    return Trace([1, 2, 3, 4], [5, 6, 7, 8], texts, "config", decisions, setup)


def long_trace(layers: int, num_decisions: int, held: int) -> Trace:
    """Each decision evicts every second one of 64 tokens: runs are as short as can be."""
    decisions = []
    for layer in range(layers):
        positions = list(range(held))
        for i in range(num_decisions):
            dropped = positions[2:34:2] + positions[34:66:2]
            scores = [1.0 + (position * 7919 % 1000) for position in positions]
            deltas = [position % 5 for position in positions]
            processed = held + 32 * i
            decisions.append(Decision(layer, processed, positions, deltas, scores, dropped))
            gone = set(dropped)
            kept = [position for position in positions if position not in gone]
            positions = kept + list(range(processed, processed + 32))
    tokens = held + 32 * num_decisions
    setup = Setup("long", "tova", 1, 1, 1, held, rotation=True)
    return Trace([1] * 100, [1] * (tokens - 100), ["word "] * tokens, "config", decisions, setup)


def data_of(page: str) -> dict:
    """What the page's script reads."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def words_of(svg: str) -> str:
    return " | ".join(
        element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")
    )


# Recording


def test_a_trace_says_what_was_held_and_what_went(trace: Trace) -> None:
    assert trace.layers == list(range(30))
    assert len(trace.generated) == 180
    for layer in (0, 29):
        decisions = trace.of_layer(layer)
        assert [len(decision.positions) for decision in decisions] == [128] * len(decisions)
        assert len(decisions) == 8  # every 8 tokens, a sixteenth of the budget
        first, second, *_ = decisions
        assert first.positions == list(range(128)) and set(first.deltas) == {0}
        assert first.processed == 128 and second.processed == 136
        assert not set(second.positions) & set(first.dropped)
        # A key rotated back by as many tokens as went before it.
        gone = np.array(first.dropped)
        for token, delta in zip(second.positions, second.deltas, strict=True):
            assert delta == (np.sum(gone < token) if token < 128 else 0)
    assert trace.of_layer(0)[0].dropped != trace.of_layer(29)[0].dropped


def test_a_trace_says_what_was_run(trace: Trace, smollm2_folder: Path) -> None:
    assert trace.setup == Setup(smollm2_folder.name, "tova", 1, 32, 32, 128, rotation=True)


@pytest.mark.parametrize("policy", ["norm_sum", "streaming"])
def test_a_traced_generation_is_the_one_without_a_trace(policy: str, tiny_folder: Path) -> None:
    """With the granularity and the pooling of scores that a built-in policy takes by itself."""
    config = pagewheel.CacheEvictionConfig(32, 32, 128, apply_rotation=True, policy=policy)
    traced = record(tiny_folder, "A list of animals: ", config, 400)
    scheduler = pagewheel.SchedulerConfig()
    scheduler.use_cache_eviction = True
    scheduler.cache_eviction_config = config  # as it was before the trace
    pipeline = pagewheel.ContinuousBatchingPipeline(tiny_folder, scheduler, "CPU")
    options = pagewheel.GenerationConfig(max_new_tokens=400, ignore_eos=True)
    handle = pipeline.add_request(0, traced.prompt, options)
    while pipeline.has_non_finished_requests():
        pipeline.step()
    assert handle.read_all()[0].generated_ids == traced.generated
    assert traced.setup.policy == policy
    assert traced.setup.unit_size == (1 if policy == "norm_sum" else 32)


def test_a_trace_is_read_as_it_was_written(trace: Trace, tmp_path: Path) -> None:
    trace.write(tmp_path / "trace.json.gz")
    assert Trace.read(tmp_path / "trace.json.gz") == trace


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: b"nothing",
        lambda content: content[: len(content) // 2],
        lambda content: content[:40] + bytes(40) + content[80:],
    ],
)
def test_what_is_no_trace_is_refused(spoil: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "other"
    small_trace().write(path)
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(ValueError, match="other is no trace"):
        Trace.read(path)


# What is drawn


def test_a_cell_shows_what_is_held_at_its_moment() -> None:
    trace = small_trace()
    rows, begins = times(trace, 100), columns_of(trace, 100)
    assert rows.tolist() == [1, 2, 3, 4, 5, 6, 7] and begins.tolist() == list(range(7))
    pixels = colours_of(cells(trace, dropped_at(trace, 0), rows, begins))
    names = {rgb(HELD_PROMPT): "p", rgb(HELD_GENERATED): "g", rgb(EVICTED): "x", rgb(PAPER): "."}
    drawn = ["".join(names[tuple(cell)] for cell in row.tolist()) for row in pixels]
    assert drawn == [
        "p......",
        "pp.....",
        "ppp....",
        "pppp...",
        "ppppg..",
        "pxxpgg.",
        "pxxpggg",
    ]


def test_tokens_that_share_a_column_mix_their_colours() -> None:
    trace = small_trace()
    end = np.array([7])
    shares = cells(trace, dropped_at(trace, 1), end, np.array([0, 4]))
    assert shares.held_prompt.tolist() == [[0.75, 0.0]]
    assert shares.held_generated.tolist() == [[0.0, pytest.approx(2 / 3)]]
    assert shares.evicted.tolist() == [[0.25, pytest.approx(1 / 3)]]


def test_scores_stand_where_their_tokens_are() -> None:
    trace = small_trace()
    scores = mean_scores(trace, 0, np.array([5, 6, 7]), np.array([0, 2, 6]))
    np.testing.assert_allclose(scores[0], [np.nan] * 3)
    np.testing.assert_allclose(scores[1], [4.5, 2.0, np.nan])
    np.testing.assert_allclose(scores[2], scores[1])


def test_rotated_keys_count_at_each_decision() -> None:
    trace = small_trace()
    trace.decisions[1].deltas = [0, 2, 2, 3, 0, 0]
    assert [layer_rotations(trace, layer) for layer in (0, 1)] == [0, 3]


def test_the_score_scale_holds_out_against_strange_scores() -> None:
    trace = small_trace()
    trace.decisions[0].scores = [float("inf"), float("nan"), -1.0, 0.0, 1.0, 10.0]
    scale = ScoreScale(trace)
    assert not scale.empty and 0 < scale.low < scale.high <= 10
    assert ((places := scale.place([0.0, 1e9])) >= 0).all() and (places <= 1).all()
    for decision in trace.decisions:
        decision.scores = [0.0] * 6
    assert ScoreScale(trace).empty


def test_a_layers_picture_says_what_its_axes_and_colours_mean() -> None:
    trace = small_trace()
    words = words_of(draw_layer(trace, 1, ScoreScale(trace)))
    for word in (
        "Layer 1, decisions: 1",
        "small · tova, single tokens · budget 6 tokens, 1 first and 1 last stay · rotation",
        "position in the text, tokens",
        "tokens computed (time)",
        "held, of the prompt",
        "held, generated",
        "evicted",
        "end of the prompt",
        "score: attention received",
    ):
        assert word in words
    for decision in trace.decisions:
        decision.scores = [0.0] * 6
    assert "score" not in words_of(draw_layer(trace, 1, ScoreScale(trace)))


def test_the_summary_has_every_layer() -> None:
    words = words_of(draw_summary(small_trace()))
    for word in ("What is left at the end", "Tokens held", "Mean score", "Rotations", "budget: 6"):
        assert word in words
    assert "layer 0" in words and "layer 1" in words
    short = replace(small_trace(), decisions=[])
    assert "nothing was evicted" in words_of(draw_summary(short))


@pytest.mark.parametrize(("low", "high", "most"), [(0, 7, 10), (0, 816, 8), (3, 1e6, 5), (0, 0, 4)])
def test_ticks_are_round_and_few(low: float, high: float, most: int) -> None:
    found = ticks(low, high, most)
    assert 1 <= len(found) <= most + 1
    assert all(low <= tick <= high for tick in found)


def test_a_scale_of_less_than_a_decade_still_has_ticks() -> None:
    assert decades(0.05, 20) == [0.1, 1, 10]
    assert decades(2, 3) == [2, 3]


# The page


def test_the_page_holds_the_trace(trace: Trace) -> None:
    data = data_of(page_of(trace))
    assert list(data["layers"]) == [str(layer) for layer in range(30)]
    decision = trace.of_layer(7)[1]
    shown = data["layers"]["7"][1]
    held = [(first + i, delta) for first, count, delta in shown["held"] for i in range(count)]
    assert held == list(zip(decision.positions, decision.deltas, strict=True))
    assert [
        first + i for first, count in shown["dropped"] for i in range(count)
    ] == decision.dropped
    scale = data["scale"]
    for byte, score in zip(base64.b64decode(shown["scores"]), decision.scores, strict=True):
        value = scale["low"] * (scale["high"] / scale["low"]) ** ((byte - 1) / 254)
        clipped = min(max(score, scale["low"]), scale["high"])
        assert (byte == 0 and score == 0) or value == pytest.approx(clipped, rel=0.03)
    assert all(data["texts"][str(position)] == trace.texts[position] for position, _ in held)


def test_the_page_loads_nothing_from_elsewhere(trace: Trace) -> None:
    page = page_of(trace)
    assert "default-src 'none'" in page
    outside = re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?(?!data:)[^\s\"'>]+", page)
    assert outside == []


HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "<img src=x onerror=alert(1)>",
    "]]>&amp;'\"`${alert(1)}",
    "@@data@@@@summary@@",
    "\ud800\x00\u2028",
]


def test_what_a_prompt_holds_is_text_in_the_page() -> None:
    trace = small_trace()
    clean = page_of(trace)
    trace.texts[: len(HOSTILE)] = HOSTILE
    page = page_of(trace)
    assert page.count("<script") == clean.count("<script")
    assert page.count("</script>") == clean.count("</script>")
    assert page.count("<!--") == clean.count("<!--") and "onerror=alert(1)>" not in page
    texts = data_of(page)["texts"]
    assert [texts[str(i)] for i in range(len(HOSTILE))] == [
        re.sub("[\ud800\x00]", "\ufffd", text[:32]) for text in HOSTILE
    ]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_models_name_and_its_settings_are_text(name: str, tmp_path: Path) -> None:
    trace = small_trace()
    named = replace(trace, config=name, setup=replace(trace.setup, model=name, policy=name))
    write_pictures(named, tmp_path)
    for picture in tmp_path.glob("*.svg"):
        words = words_of(picture.read_text(encoding="utf-8"))
        assert re.sub("[\ud800\x00]", "\ufffd", name) in words
    write_page(named, tmp_path / "trace.html")
    page, clean = (tmp_path / "trace.html").read_text(encoding="utf-8"), page_of(trace)
    for mark in ("<script", "</script>", "<!--", "<img"):
        assert page.count(mark) == clean.count(mark)


def test_page_and_pictures_of_a_long_run_stay_small(tmp_path: Path) -> None:
    trace = long_trace(layers=6, num_decisions=150, held=672)
    write_pictures(trace, tmp_path)
    assert max(file.stat().st_size for file in tmp_path.glob("*.svg")) < 1_000_000
    page = page_of(trace)
    assert len(page) < 8_000_000
    data = data_of(page)
    assert data["counts"] == {str(layer): 150 for layer in range(6)}
    for layer in range(6):
        shown, decisions = data["layers"][str(layer)], trace.of_layer(layer)
        assert 2 <= len(shown) < 150
        assert shown[0]["processed"] == decisions[0].processed
        assert shown[-1]["processed"] == decisions[-1].processed


def test_of_a_decision_on_a_long_prompt_both_ends_are_shown() -> None:
    trace = long_trace(layers=1, num_decisions=1, held=50_000)
    (shown,) = data_of(page_of(trace))["layers"]["0"]
    assert (shown["tokens"], shown["hidden"]) == (50_000, 50_000 - MOST_AT_ONCE)
    positions = [first + i for first, count, _ in shown["held"] for i in range(count)]
    half = MOST_AT_ONCE // 2
    assert positions == [*range(half), *range(50_000 - half, 50_000)]
    assert shown["hiddenBefore"] == 50_000 - half


def test_the_command_writes_trace_page_and_pictures(smollm2_folder: Path, tmp_path: Path) -> None:
    sizes = ["--start-size", "32", "--recent-size", "32", "--max-cache-size", "128"]
    options = ["-o", str(tmp_path), "--model", str(smollm2_folder), "-n", "128", *sizes]
    result = CliRunner().invoke(app, ["trace", *options, "Count: one, two, three"])
    assert result.exit_code == 0, result.output
    assert "30 layers, 30 decisions" in result.output
    assert len(list(tmp_path.glob("layer-*.svg"))) == 30
    assert (tmp_path / "summary.svg").is_file() and (tmp_path / "trace.html").is_file()
    assert Trace.read(tmp_path / "trace.json.gz").layers == list(range(30))
    wrong = CliRunner().invoke(app, ["trace", *options, "--policy", "best", "x"])
    assert wrong.exit_code == 2 and "policy is 'best'" in wrong.output


def test_the_summary_names_layers_without_pages(trace: Trace) -> None:
    assert "keep states" not in draw_summary(trace)
    hybrid = replace(trace, setup=replace(trace.setup, layers_without_pages=[0, 2]))
    assert "nothing to evict in layers 0, 2, which keep states" in draw_summary(hybrid)
