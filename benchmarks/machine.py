"""What the machine is: processor, kernel, memory, and how fast it reads memory."""

from __future__ import annotations

import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_ISA_FLAGS = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")


@dataclass(frozen=True)
class Machine:
    """A description to print beside figures; None is what could not be read."""

    cpu: str
    cores: int
    isa: list[str]
    governor: str | None
    kernel: str
    memory_bytes: int | None
    read_bandwidth_gb_s: float | None


def _first_field(path: Path, key: str) -> str | None:
    """The value of the first `key: value` line of a file."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and name.strip() == key:
            return value.strip()
    return None


def _governor() -> str | None:
    try:
        path = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return None


def usable_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def read_bandwidth(total_mib: int = 512, repeats: int = 5) -> float:
    """Best read bandwidth over `repeats` passes, GB/s (1e9), every core reading its own part."""
    cores = usable_cores()
    words = (total_mib << 20) // 8 // cores
    parts: list[NDArray[np.uint64]] = [np.ones(words, dtype=np.uint64) for _ in range(cores)]
    best = float("inf")
    with ThreadPoolExecutor(cores) as pool:
        for _ in range(repeats):
            started = time.perf_counter()
            list(pool.map(np.sum, parts))
            best = min(best, time.perf_counter() - started)
    return words * 8 * cores / best / 1e9


def describe(measure_bandwidth: bool = True) -> Machine:
    """Describe this machine; the bandwidth takes about a second."""
    flags = set((_first_field(Path("/proc/cpuinfo"), "flags") or "").split())
    total = _first_field(Path("/proc/meminfo"), "MemTotal")
    return Machine(
        cpu=_first_field(Path("/proc/cpuinfo"), "model name") or platform.processor(),
        cores=usable_cores(),
        isa=[flag for flag in _ISA_FLAGS if flag in flags],
        governor=_governor(),
        kernel=f"{platform.system()} {platform.release()}",
        memory_bytes=int(total.split()[0]) * 1024 if total else None,
        read_bandwidth_gb_s=round(read_bandwidth(), 1) if measure_bandwidth else None,
    )
