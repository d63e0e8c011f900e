"""pagewheel's own linear layers beside the plugin's, end to end, as benchmarks.attention_backends.

    python -m benchmarks.linear_backends --rounds 5 --attention native

Medians of tokens/s and of the ratio within a round; the first round is not counted.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median

import pagewheel
from benchmarks.attention_backends import BACKENDS, SCENARIOS


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="default: the default model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--attention", default="auto", help="attention_backend of both")
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS), help="default: all")
    arguments = parser.parse_args()

    from pagewheel.convert import resolve_model
    from pagewheel.default_model import default_model

    folder = resolve_model(arguments.model or default_model())
    pipelines = {
        name: pagewheel.ContinuousBatchingPipeline(
            folder,
            pagewheel.SchedulerConfig(),
            "CPU",
            {"linear_backend": name, "attention_backend": arguments.attention},
        )
        for name in BACKENDS
    }
    print(f"{'tokens/s':<22}" + "".join(f"{name:>10}" for name in BACKENDS) + "     ratio")
    for scenario in arguments.scenario or SCENARIOS:
        measure = SCENARIOS[scenario]
        rounds = [
            [measure(pipelines[name]) for name in BACKENDS] for _ in range(arguments.rounds + 1)
        ][1:]
        speeds = "".join(f"{median(column):10.1f}" for column in zip(*rounds, strict=True))
        ratio = median(native / stock for stock, native in rounds)
        print(f"{scenario:<22}{speeds}{ratio:10.2f}", flush=True)


if __name__ == "__main__":
    main()
