"""A session of fake engines, from the first round to the record, its chart and its report."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_engine import ANYTHING, fake
from rich.console import Console

from benchmarks.chart import save_chart
from benchmarks.fast_prefill import FAST, SCENARIO, SLOW, table
from benchmarks.load import Limits
from benchmarks.machine import Machine
from benchmarks.record import run_record, scenario_record
from benchmarks.report import print_report
from benchmarks.scenarios import DECODE, SCENARIOS
from benchmarks.session import BusyError, Plan, Session

pytestmark = pytest.mark.usefixtures("fake_engine_is_found")


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
    save_chart(record, path)
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def check_report(record: dict[str, Any]) -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    print_report(record, console)
    text = console.export_text()
    assert "a cpu" in text and "2.00 (2.00..2.00)" in text
    assert "51%" in text  # 7 bytes of weights x 510 tokens/s of 7,000 bytes/s


def test_what_fast_prefill_gains_stands_beside_its_ideal(model: Path) -> None:
    peers = [fake(SLOW.name), fake(FAST.name, speed=2.0)]
    plan = Plan(model, "CPU", rounds=2, patience=0.0, timeout=60, limits=ANYTHING)
    with Session(plan, peers, lambda line: None) as session:
        session.start("x" * 40_000)
        rounds = session.run(SCENARIO).rounds
    rows = [row.split() for row in table(rounds, ["without", "with"], 0.6).splitlines()]
    assert rows[1] == ["prefill", "512,", "tokens/s", "512.0", "1024.0", "2.00", "2.50", "80%"]
    assert rows[3] == ["decode", "after", "512,", "ms/token", "15.9", "7.9", "2.00"]


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
