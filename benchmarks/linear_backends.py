"""pagewheel's own linear layers beside the plugin's, end to end, as benchmarks.attention_backends.

    python -m benchmarks.linear_backends --rounds 5 --attention native

Medians of tokens/s and of the ratio within a round; the first round is not counted.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pagewheel
from benchmarks.attention_backends import BACKENDS, SCENARIOS, print_table


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
    print_table(pipelines, arguments.scenario or SCENARIOS, arguments.rounds)


if __name__ == "__main__":
    main()
