"""pagewheel's own linear layers beside the plugin's, end to end, as benchmarks.attention_backends.

    python -m benchmarks.linear_backends --rounds 5 --attention native

Medians of tokens/s and of the ratio within a round; the first round is not counted.
"""

from __future__ import annotations

import pagewheel
from benchmarks.attention_backends import BACKENDS, SCENARIOS, print_table
from benchmarks.command_line import model_folder, parser_with_model


def main() -> None:
    """Print a table."""
    parser = parser_with_model(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--attention", default="auto", help="attention_backend of both")
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS), help="default: all")
    arguments = parser.parse_args()

    folder = model_folder(arguments.model)
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
