"""How busy the machine is with work that is not ours, from the counters of /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_JIFFY = 1.0 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class CpuCounters:
    """CPU seconds since boot, summed over all cores; `own` is our process tree's part."""

    busy: float
    idle: float
    steal: float
    own: float


@dataclass(frozen=True)
class Load:
    """What happened between two readings. CPU use is in cores: 1.0 is one core kept busy."""

    seconds: float
    others: float
    own: float
    steal: float

    def disturbance(self, limits: Limits) -> str | None:
        """Why a measurement in this window cannot be trusted, or None."""
        if self.others > limits.others:
            return f"other processes used {self.others:.2f} cores (limit {limits.others:.2f})"
        if self.steal > limits.steal:
            return f"the hypervisor took {self.steal:.2f} cores (limit {limits.steal:.2f})"
        return None


@dataclass(frozen=True)
class Limits:
    """What is still a quiet machine, in cores."""

    others: float = 0.10
    steal: float = 0.05
    waiting_workers: float = 0.05


def _process_seconds(proc: Path, pid: int) -> float:
    """CPU seconds of a process and its reaped children; 0 when it is gone."""
    try:
        stat = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0.0
    fields = stat.rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) * _JIFFY


def read_counters(own_pids: Iterable[int], proc: Path = PROC) -> CpuCounters:
    """The counters now. `own_pids` names each living process of ours once.

    A child that ended counts through its parent, so parents must have reaped it.
    Raises RuntimeError where there is no /proc/stat to read.
    """
    try:
        first_line = (proc / "stat").read_text(encoding="ascii").splitlines()[0]
    except (OSError, IndexError) as error:
        raise RuntimeError(f"cannot tell how busy this machine is: {error}") from error
    # user nice system idle iowait irq softirq steal; guest time is inside user already.
    ticks = [int(field) for field in first_line.split()[1:9]] + [0] * 8
    user, nice, system, idle, iowait, irq, softirq, steal = ticks[:8]
    return CpuCounters(
        busy=(user + nice + system + irq + softirq) * _JIFFY,
        idle=(idle + iowait) * _JIFFY,
        steal=steal * _JIFFY,
        own=sum(_process_seconds(proc, pid) for pid in own_pids),
    )


def load_between(before: CpuCounters, after: CpuCounters, seconds: float) -> Load:
    """The load in a window of `seconds` > 0."""
    own = max(0.0, after.own - before.own)
    others = max(0.0, after.busy - before.busy - own)
    return Load(
        seconds=seconds,
        others=others / seconds,
        own=own / seconds,
        steal=max(0.0, after.steal - before.steal) / seconds,
    )


class LoadWindow:
    """Measures the load from its creation to `close`."""

    def __init__(self, own_pids: Iterable[int], proc: Path = PROC) -> None:
        self._own_pids = list(own_pids)
        self._proc = proc
        self._started = time.monotonic()
        self._before = read_counters(self._own_pids, proc)

    def close(self) -> Load:
        """The load since creation."""
        after = read_counters(self._own_pids, self._proc)
        return load_between(self._before, after, max(time.monotonic() - self._started, _JIFFY))


def quiet_problem(load: Load, limits: Limits) -> str | None:
    """Why a measurement should not start now, or None; taken while every worker waits."""
    if load.own > limits.waiting_workers:
        return (
            f"our own waiting processes used {load.own:.2f} cores "
            f"(limit {limits.waiting_workers:.2f})"
        )
    return load.disturbance(limits)
