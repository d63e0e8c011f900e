"""How busy the machine is, and with whom."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_engine import QUIET

from benchmarks.load import Limits, Load, load_between, quiet_problem, read_counters


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
