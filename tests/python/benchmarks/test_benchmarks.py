"""The benchmark harness: its arithmetic and its manners. Nothing here asserts a time."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rich")
pytest.importorskip("typer")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.load import (
    Limits,
    Load,
    load_between,
    quiet_problem,
    read_counters,
)
from benchmarks.machine import Machine
from benchmarks.peers import Peer, load_engine, parse_peers
from benchmarks.peers.engine import Engine, Generated, common_prefix
from benchmarks.prompts import PromptSource, real_text
from benchmarks.record import run_record, scenario_record
from benchmarks.report import number, print_report
from benchmarks.rounds import Round, ScenarioResult, counted, order_of, summarise
from benchmarks.scenarios import (
    BATCH,
    DECODE,
    LONG,
    PREFILL,
    SCENARIOS,
    SHARED_PREFIX,
    WarmScenario,
)
from benchmarks.session import BusyError, Plan, Session
from benchmarks.worker_process import WorkerError, WorkerProcess

THIS = "test_benchmarks"
QUIET = Load(seconds=1.0, others=0.0, own=1.0, steal=0.0)
ANYTHING = Limits(others=1e9, steal=1e9, waiting_workers=1e9)


def even_steps(count: int, first: float, last: float) -> Generated:
    """A token per step, evenly spaced."""
    between = (last - first) / max(count - 1, 1)
    return Generated(first, last, [first + i * between for i in range(count)])


class FakeEngine(Engine):
    """Answers at once, with made-up times."""

    def load(self, model: Path, device: str) -> None:
        print("an engine may print to standard output")
        if self.options.get("break_load"):
            raise ValueError("this model is broken")

    def settings(self) -> dict[str, str]:
        return {"device": "none"}

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def generate(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> Generated:
        if self.options.get("die"):
            print("about to die", file=sys.stderr, flush=True)
            sys.stderr.flush()
            os._exit(7)
        if self.options.get("hang"):
            time.sleep(60)
        speed = float(self.options.get("speed", 1.0))
        return even_steps(new_tokens, 1.0 / speed, 2.0 / speed)


def fake(name: str, **options: Any) -> Peer:
    return Peer(name, f"{THIS}:FakeEngine", options)


@pytest.fixture(autouse=True)
def workers_find_this_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


def a_round(count: int, disturbed: str | None = None, attempt: int = 0, **values: float) -> Round:
    samples = {peer: {"speed": value} for peer, value in values.items()}
    return Round(count, attempt, list(values), samples, {peer: QUIET for peer in values}, disturbed)


# Order and statistics


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


# Load of the machine


def fake_proc(folder: Path, *, cpu: str, processes: dict[int, tuple[int, int, int, int]]) -> Path:
    """A /proc with these counters; per process user, system and its reaped children's."""
    folder.mkdir()
    (folder / "stat").write_text(f"cpu  {cpu}\ncpu0 {cpu}\n", encoding="ascii")
    for pid, times in processes.items():
        (folder / str(pid)).mkdir()
        before = "S 1 1 1 0 -1 4194304 1 0 0 0"
        line = f"{pid} (a (nasty) name) {before} {' '.join(map(str, times))} 20 0 1 0 5"
        (folder / str(pid) / "stat").write_text(line, encoding="ascii")
    return folder


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One hundred ticks are a second."""
    monkeypatch.setattr("benchmarks.load._JIFFY", 0.01)
    yield


@pytest.mark.usefixtures("second")
def test_our_own_processes_are_no_load(tmp_path: Path) -> None:
    before = read_counters(
        [7, 8],
        fake_proc(tmp_path / "1", cpu="0 0 0 0 0 0 0 0 0 0", processes={7: (0,) * 4, 8: (0,) * 4}),
    )
    # 2 s in all on the cores, 1.5 s of them ours: by a worker, and a child of 7 that ended.
    after = read_counters(
        [7, 8],
        fake_proc(
            tmp_path / "2",
            cpu="150 10 30 200 5 4 6 20 9 9",
            processes={7: (0, 0, 40, 10), 8: (90, 10, 0, 0)},
        ),
    )
    load = load_between(before, after, seconds=2.0)
    assert load.own == pytest.approx(0.75)
    assert load.others == pytest.approx(0.25)
    assert load.steal == pytest.approx(0.1)


@pytest.mark.usefixtures("second")
def test_a_process_that_is_gone_counts_nothing(tmp_path: Path) -> None:
    counters = read_counters([99], fake_proc(tmp_path / "p", cpu="1 0 0 1 0 0 0 0", processes={}))
    assert counters.own == 0.0


def test_without_proc_the_error_says_so(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="how busy"):
        read_counters([], tmp_path)


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (Load(1.0, others=0.5, own=0.0, steal=0.0), "other processes used 0.50 cores"),
        (Load(1.0, others=0.0, own=0.0, steal=0.3), "hypervisor took 0.30 cores"),
        (Load(1.0, others=0.0, own=0.4, steal=0.0), "waiting processes used 0.40 cores"),
    ],
)
def test_a_busy_machine_is_named_with_its_cause(load: Load, words: str) -> None:
    problem = quiet_problem(load, Limits())
    assert problem is not None and words in problem


def test_a_quiet_machine_has_no_problem() -> None:
    assert quiet_problem(Load(1.0, 0.01, 0.01, 0.0), Limits()) is None
    assert QUIET.disturbance(Limits()) is None


# Scenarios and prompts


def test_the_text_is_long_enough_for_every_scenario() -> None:
    words = real_text(None).split()
    assert len(words) > 20_000


def test_prompts_have_their_lengths_and_do_not_overlap() -> None:
    assert PromptSource(range(10)).cut([3, 4]) == [[0, 1, 2], [3, 4, 5, 6]]


def test_a_text_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="need 11 tokens, the text has 10"):
        PromptSource(range(10)).cut([5, 6])


def test_the_digest_tells_prompts_apart() -> None:
    assert PromptSource([1, 23]).digest() != PromptSource([12, 3]).digest()


def test_metrics_follow_from_times() -> None:
    decode = DECODE.sample([], [Generated(0.5, 1.5)])
    assert decode == {"decode": 255.0, "first_token": 500.0}
    sample = BATCH.sample([], [Generated(0.5, 4.0)] * len(BATCH.SIZES))
    assert sample["batch_32"] == 32 * 128 / 4.0
    prefill = PREFILL.sample([], [Generated(2.0, 2.0)] * 3)
    assert prefill == {"prefill_512": 256.0, "prefill_2048": 1024.0, "prefill_6144": 3072.0}


def test_a_long_generation_is_measured_by_the_thousand() -> None:
    # The first thousand take 1 s, the second 2 s, and so on.
    times = [5.0]
    while len(times) < LONG.NEW_TOKENS:
        times.append(times[-1] + (len(times) // 1000 + 1) / 1000)
    sample = LONG.sample([], [Generated(times[0], times[-1], times)])
    for part in range(6):
        assert sample[f"long_{part + 1}000"] == pytest.approx(1000 / (part + 1))
    assert sample["long"] == pytest.approx(5999 / 20.999)
    with pytest.raises(ValueError, match="5999 steps made 6000 tokens"):
        LONG.sample([], [Generated(times[0], times[-1], times[1:])])


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_names_metrics_that_its_samples_hold(name: str) -> None:
    scenario = SCENARIOS[name]
    assert scenario.metrics
    if isinstance(scenario, WarmScenario):
        tasks = scenario.tasks(PromptSource(range(40_000)))
        sample = scenario.sample(tasks, [even_steps(task.new_tokens, 1.0, 2.0) for task in tasks])
        assert list(sample) == [metric.key for metric in scenario.metrics]


def test_warming_up_has_the_shapes_of_the_measurement() -> None:
    source = PromptSource(range(40_000))
    warm, measured = BATCH.warm_up(source), BATCH.tasks(source)
    assert [task.prompts for task in warm] == [task.prompts for task in measured]
    assert warm[0].new_tokens < measured[0].new_tokens


@pytest.mark.parametrize(
    ("prompts", "shared"),
    [
        ([[1, 2, 3, 4], [1, 2, 9], [1, 2, 3]], 2),
        ([[1, 2, 3], [1, 2, 3]], 2),  # the last token is everybody's own to compute
        ([[1], [1]], 0),
        ([[1, 2, 3]], 0),
        ([[5, 1], [6, 1]], 0),
    ],
)
def test_a_shared_prefix_leaves_each_prompt_a_token(prompts: list[list[int]], shared: int) -> None:
    assert common_prefix(prompts) == shared


def test_samples_of_a_shared_prefix_share_it_and_nothing_with_others() -> None:
    source = PromptSource(range(40_000))
    (first,), (second,) = SHARED_PREFIX.tasks(source), SHARED_PREFIX.tasks(source)
    assert common_prefix(first.prompts) == SHARED_PREFIX.SHARED_TOKENS
    assert common_prefix([first.prompts[0], second.prompts[0]]) == 0


# Peers


def test_peers_and_settings_are_parsed() -> None:
    peers = parse_peers(
        ["pagewheel", "twin=pagewheel"], ["twin.cache_size=2", "twin.A.B=true", "pagewheel.X=f16"]
    )
    assert peers == [
        Peer("pagewheel", "pagewheel", {"X": "f16"}),
        Peer("twin", "pagewheel", {"cache_size": 2, "A.B": True}),
    ]


@pytest.mark.parametrize(
    ("peers", "settings"),
    [
        (["no-such-engine"], []),
        (["pagewheel", "pagewheel"], []),
        (["bad name=pagewheel"], []),
        (["a.=pagewheel"], []),
        (["pagewheel"], ["pagewheel.key"]),
        (["pagewheel"], ["key=value"]),
        (["pagewheel"], ["other.key=value"]),
    ],
)
def test_wrong_peers_and_settings_are_refused(peers: list[str], settings: list[str]) -> None:
    with pytest.raises(ValueError):
        parse_peers(peers, settings)


def test_what_is_no_engine_is_refused() -> None:
    with pytest.raises(ValueError, match="is no"):
        load_engine("pathlib:Path")


def test_settings_of_eviction_reach_the_engine(tiny_folder: Path) -> None:
    """Past the pool: the cache of 9 blocks holds 288 tokens."""
    sizes = {"recent_size": 32, "max_cache_size": 128}
    (peer,) = parse_peers(
        ["p=pagewheel"],
        [
            *(f"p.eviction.{key}={value}" for key, value in sizes.items()),
            "p.eviction.apply_rotation=true",
            "p.eviction.policy=streaming",
            "p.num_kv_blocks=9",
        ],
    )
    engine = load_engine(peer.engine)(peer.options)
    engine.load(tiny_folder, "CPU")
    assert engine.settings()["eviction.max_cache_size"] == "128"
    assert len(engine.generate([list(range(10, 74))], 400).steps) == 400


def test_unknown_settings_of_eviction_are_refused(tiny_folder: Path) -> None:
    engine = load_engine("pagewheel")({"eviction.max_cache_sise": 128})
    with pytest.raises(TypeError, match="max_cache_sise"):
        engine.load(tiny_folder, "CPU")


def test_quality_of_eviction_is_written_down_setting_by_setting(
    tiny_folder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.eviction_quality import Setting, measure
    from benchmarks.eviction_report import draw, table

    arguments = argparse.Namespace(
        out=tmp_path / "q.json",
        only=["passkey", "agreement", "stream"],
        threads=1,
        exact=True,
        window=8,
        prompt=256,
        passkeys=2,
        conversations=1,
        prose=3,
        new_tokens=4,
        context=1100,
        beyond=100,
        stream_budget=128,
    )
    chosen = [Setting("pagewheel", "full", 1), Setting("pagewheel", "norm_sum", 0.5, "token")]
    results = measure(tiny_folder, chosen, arguments).results
    assert json.loads(arguments.out.read_text()) == results
    assert results["agreement"]["pagewheel full block rotation 1"] == [1.0] * 3
    assert len(results["agreement"]["pagewheel norm_sum token rotation 0.5"]) == 3
    streamed = results["stream"]["pagewheel norm_sum token rotation 0.5"]
    assert streamed["inside"] > 1 and streamed["beyond"] > 1
    assert "| pagewheel norm_sum token rotation |" in table(results)
    draw(results, tmp_path / "q.png")
    assert (tmp_path / "q.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


# Workers


def test_a_worker_answers_whatever_its_engine_prints() -> None:
    with WorkerProcess(fake("a"), timeout=60) as worker:
        answer = worker.request("load", model=__file__, device="CPU")
        assert answer["settings"] == {"device": "none"}
        assert worker.request("encode", text="AB") == {"ids": [65, 66]}
        memory = worker.request("memory")
        assert 0 < memory["now"] <= memory["peak"]
        assert worker.answered > worker.started


def test_an_error_in_an_engine_names_peer_and_cause_and_the_worker_lives() -> None:
    with WorkerProcess(fake("sick", break_load=True), timeout=60) as worker:
        with pytest.raises(WorkerError, match="'sick': load: ValueError: this model is broken"):
            worker.request("load", model="x", device="CPU")
        assert worker.request("encode", text="A") == {"ids": [65]}


def test_a_worker_that_dies_is_reported_with_its_last_words() -> None:
    with WorkerProcess(fake("mortal", die=True), timeout=60) as worker:
        with pytest.raises(WorkerError, match=r"(?s)ended with code 7.*about to die"):
            worker.request("generate", tasks=[{"prompts": [[1]], "new_tokens": 1}])
        with pytest.raises(WorkerError, match="ended with code 7"):
            worker.request("encode", text="A")


def test_a_worker_that_hangs_is_given_up() -> None:
    with (
        WorkerProcess(fake("slow", hang=True), timeout=2) as worker,
        pytest.raises(WorkerError, match="no answer within 2 s"),
    ):
        worker.request("generate", tasks=[{"prompts": [[1]], "new_tokens": 1}])


def test_an_engine_that_cannot_be_imported_is_an_error() -> None:
    with (
        WorkerProcess(Peer("x", "no_such_module:Engine", {}), timeout=60) as worker,
        pytest.raises(WorkerError, match="no_such_module"),
    ):
        worker.request("load", model="x", device="CPU")


# A whole session


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"nothing")
    return path


def measure(model: Path, names: Sequence[str]) -> dict[str, Any]:
    peers = [fake("slow"), fake("fast", speed=2.0)]
    plan = Plan(model, "CPU", rounds=2, patience=0.0, timeout=60, limits=ANYTHING)
    with Session(plan, peers, lambda line: None) as session:
        source = session.start("x" * 40_000)
        session.require_quiet()
        results = [session.run(SCENARIOS[name]) for name in names]
        return run_record(
            command=["--rounds", "2"],
            machine=Machine("a cpu", 2, [], None, "Linux", None, 7e-6),
            model=model,
            prompts_sha256=source.digest(),
            peers=peers,
            settings=session.settings,
            weight_bytes=session.weight_bytes,
            allow_busy=False,
            scenarios=results,
        )


def test_a_session_gives_a_complete_record_and_a_chart(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.session._QUIET_WINDOW_S", 0.01)
    record = json.loads(json.dumps(measure(model, list(SCENARIOS))))
    assert record["schema"] == 1
    assert {"date", "command", "checkout", "packages", "python", "prompts_sha256"} <= set(record)
    assert record["model"]["bytes"] == 7
    assert [peer["name"] for peer in record["peers"]] == ["slow", "fast"]
    assert record["peers"][1]["options"] == {"speed": 2.0}
    decode = record["scenarios"][0]
    assert [one["order"] for one in decode["rounds"]] == [["slow", "fast"], ["fast", "slow"]]
    assert decode["rounds"][0]["samples"]["fast"] == {"decode": 510.0, "first_token": 500.0}
    assert decode["summary"]["decode"]["fast"]["ratio"] == 2.0
    assert set(record["scenarios"][list(SCENARIOS).index("load")]["summary"]) == {
        "first_time",
        "cached",
    }
    check_chart(record, tmp_path / "chart.png")
    check_report(record)


def check_chart(record: dict[str, Any], path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.chart import save_chart

    save_chart(record, path)
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def check_report(record: dict[str, Any]) -> None:
    from rich.console import Console

    console = Console(width=120, record=True, file=io.StringIO())
    print_report(record, console)
    text = console.export_text()
    assert "a cpu" in text and "2.00 (2.00..2.00)" in text
    assert "51%" in text  # 7 bytes of weights x 510 tokens/s of 7,000 bytes/s


def test_what_fast_prefill_gains_stands_beside_its_ideal(model: Path) -> None:
    from benchmarks.fast_prefill import FAST, SCENARIO, SLOW, table

    peers = [fake(SLOW.name), fake(FAST.name, speed=2.0)]
    plan = Plan(model, "CPU", rounds=2, patience=0.0, timeout=60, limits=ANYTHING)
    with Session(plan, peers, lambda line: None) as session:
        session.start("x" * 40_000)
        rounds = session.run(SCENARIO).rounds
    rows = [row.split() for row in table(rounds, ["without", "with"], 0.6).splitlines()]
    assert rows[1] == ["prefill", "512,", "tokens/s", "512.0", "1024.0", "2.00", "2.50", "80%"]
    assert rows[3] == ["decode", "after", "512,", "ms/token", "15.9", "7.9", "2.00"]


def test_a_random_model_of_gemma_3ns_shape_runs(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    import pagewheel
    from benchmarks.gemma3n_model import make_gemma3n
    from pagewheel.cli.info import read_info

    count = make_gemma3n(
        tmp_path / "model",
        vocab_size=300,
        vocab_size_per_layer_input=300,
        hidden_size=64,
        hidden_size_per_layer_input=32,
        intermediate_size=128,
        num_hidden_layers=4,
        num_kv_shared_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        laurel_rank=32,
        layer_types=["sliding_attention", "full_attention"] * 2,
        activation_sparsity_pattern=[0.95, 0.0, 0.0, 0.0],
    )
    assert 200_000 < count < 400_000
    info = read_info(tmp_path / "model")
    assert info.weight_format == "int4 asymmetric groups of 64"
    assert info.kv_cache_bytes_per_token["f32"] == 2 * 2 * 32 * 4  # of two layers out of four
    pipeline = pagewheel.LLMPipeline(tmp_path / "model", "CPU")
    result = pipeline.generate([[5, 6, 7]], max_new_tokens=3, ignore_eos=True)
    assert len(result.tokens[0]) == 3


def test_a_busy_machine_is_refused(model: Path) -> None:
    nothing = Limits(others=-1.0, waiting_workers=1e9)
    plan = Plan(model, "CPU", rounds=1, patience=0.0, timeout=60, limits=nothing)
    with Session(plan, [fake("a")], lambda line: None) as session:
        session.start("x" * 10_000)
        with pytest.raises(BusyError, match="other processes"):
            session.require_quiet()


def test_a_disturbed_round_is_repeated_so_often_and_then_left_out(model: Path) -> None:
    nothing = Limits(others=-1.0, waiting_workers=1e9)
    plan = Plan(model, "CPU", rounds=1, max_repeats=1, patience=0.0, timeout=60, limits=nothing)
    with Session(plan, [fake("a")], lambda line: None) as session:
        session.start("x" * 10_000)
        result = session.run(DECODE)
    assert [one.attempt for one in result.rounds] == [0, 1]
    assert scenario_record(result, ["a"], False)["summary"]["decode"] == {}
    busy = scenario_record(result, ["a"], True)
    assert (busy["counted_rounds"], busy["disturbed_rounds"]) == (1, 1)


def test_a_chart_of_nothing_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.chart import save_chart

    with pytest.raises(ValueError, match="nothing to draw"):
        save_chart({"scenarios": [], "peers": []}, tmp_path / "x.png")


def test_chart_colours_do_not_depend_on_who_else_is_there() -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.chart import peer_colours

    assert peer_colours(["x", "pagewheel"])["pagewheel"] == peer_colours(["pagewheel"])["pagewheel"]
    assert len(set(peer_colours(["pagewheel", "openvino-genai", "x", "y"]).values())) == 4


def test_numbers_are_short() -> None:
    shown = [number(value) for value in (12345.6, 123.45, 12.345, 1.2345, 0.12345)]
    assert shown == ["12,346", "123", "12.3", "1.23", "0.123"]


def test_an_empty_scenario_has_no_summary() -> None:
    assert scenario_record(ScenarioResult("decode"), ["a"], True)["summary"]["decode"] == {}
