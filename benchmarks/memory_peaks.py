"""Memory that converting a model file takes, and loading and running what came of it.

Each is a process of its own, watched from outside: anonymous memory, mapped files, both.

    python -m benchmarks.memory_peaks FILE.gguf FOLDER [--context 4096] [--tokens 20]

FOLDER is where the conversion goes; it is used as it is where it exists. `--limit 8` forbids more
GiB of memory of a process's own (RLIMIT_DATA), reserved and unused memory counted. Linux only.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

CONVERT = """
import sys
from pagewheel.convert import convert
convert(sys.argv[1], sys.argv[2], progress=False)
"""
RUN = """
import sys
from pagewheel import GenerationConfig, LLMPipeline, SchedulerConfig
folder, context, prompt, tokens = sys.argv[1], *map(int, sys.argv[2:])
scheduler = SchedulerConfig()
scheduler.num_kv_blocks = -(-context // 32)
print("load", flush=True)
pipeline = LLMPipeline(folder, "CPU", scheduler_config=scheduler)
print("generate", flush=True)
text = "word " * prompt
config = GenerationConfig(max_new_tokens=tokens, ignore_eos=True, apply_chat_template=False)
pipeline.generate(text, config)
"""
FIELDS = ("RssAnon", "RssFile", "VmRSS")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--context", type=int, default=4096, help="tokens of the cache")
    parser.add_argument("--prompt", type=int, default=64, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=20, help="that are generated")
    parser.add_argument("--limit", type=float, help="GiB of anonymous memory")
    arguments = parser.parse_args()
    if not arguments.folder.exists():
        watch([CONVERT, str(arguments.file), str(arguments.folder)], arguments.limit, "convert")
    weights = sum(each.stat().st_size for each in arguments.folder.glob("*.bin"))
    print(f"weights {mebibytes(weights)} MiB in the folder")
    numbers = [arguments.context, arguments.prompt, arguments.tokens]
    watch([RUN, str(arguments.folder), *map(str, numbers)], arguments.limit, "start")


def watch(program: list[str], limit: float | None, stage: str) -> None:
    """Runs a program and prints the peaks of each of its stages, whose names it prints."""

    def set_limit() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (int(limit * 2**30),) * 2)

    process = subprocess.Popen(
        [sys.executable, "-c", *program], stdout=subprocess.PIPE, preexec_fn=set_limit
    )
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    peaks = dict.fromkeys(FIELDS, 0)
    last = peaks
    while process.poll() is None:
        if said := process.stdout.read():
            report(stage, peaks, last)
            stage, peaks = said.decode().split()[-1], dict.fromkeys(FIELDS, 0)
        try:
            last = memory(process.pid)
        except (OSError, StopIteration):  # it has just ended
            break
        peaks = {field: max(peaks[field], last[field]) for field in FIELDS}
        time.sleep(0.01)
    report(stage, peaks, last)
    if process.wait() != 0:
        raise SystemExit(f"failed in {stage}")


def memory(process: int) -> dict[str, int]:
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return {
        field: 1024 * int(next(line for line in lines if line.startswith(field)).split()[1])
        for field in FIELDS
    }


def report(stage: str, peaks: dict[str, int], last: dict[str, int]) -> None:
    print(f"{stage}: MiB at most / at the end", end="")
    for field in FIELDS:
        print(f"  {field} {mebibytes(peaks[field])} / {mebibytes(last[field])}", end="")
    print(flush=True)


def mebibytes(size: int) -> int:
    return size >> 20


if __name__ == "__main__":
    main()
