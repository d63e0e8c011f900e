"""Which activations a processor multiplies fastest: the table of kernels/activation_choice.cpp.

    cmake --preset dev -DPAGEWHEEL_BUILD_BENCHMARKS=ON -DCMAKE_BUILD_TYPE=Release
    ninja -C build-dev linear_benchmark
    python -m benchmarks.activation_table build-dev/benchmarks/cpp/linear_benchmark

Runs linear_benchmark with more and more rows and prints microseconds for a step's linear layers in
int8, int16 and, where the processor has it, bf16. The last lines say what follows for the table:
up to how many rows int16 is taken. Quiet machines only: compare two runs before believing one.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping

from benchmarks.command_line import parser_of

ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 128, 512)
# Longer calls would be as exact in int8's place for so much more time at most.
MOST_FOR_FIDELITY = 1.15


def measure(program: str, rows: int, rounds: int) -> dict[str, float]:
    """Microseconds of a step by the name of its activations; more than one are always measured."""
    command = [program, str(rows), str(rounds)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {name: float(time) for name, time in re.findall(r"^(\w+) step ([\d.e+]+)", text, re.M)}


def int16_rows(times: Mapping[int, Mapping[str, float]]) -> int:
    """Up to so many rows int16 is no slower than bf16 or, without bf16, little slower than int8."""
    most = 0
    for rows, of in sorted(times.items()):
        if "bf16" in of:
            pays = of["int16"] <= of["bf16"]
        elif any("bf16" in other for other in times.values()):
            pays = True  # so few that bf16 is not measured
        else:
            pays = of["int16"] <= MOST_FOR_FIDELITY * of["int8"]
        if not pays:
            break
        most = rows
    return most


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("program", help="linear_benchmark")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    times: dict[int, dict[str, float]] = {}
    for rows in ROWS:
        rounds = max(3, arguments.rounds * 16 // (16 + rows))
        times[rows] = measure(arguments.program, rows, rounds)
        line = "".join(f"{name:>7} {time:9.0f}" for name, time in times[rows].items())
        print(f"{rows:4} rows {line}", flush=True)
    print(f"int16 up to {int16_rows(times)} rows")


if __name__ == "__main__":
    main()
