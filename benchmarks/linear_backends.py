"""Linear backends `native` and `openvino`, end to end, as benchmarks.attention_backends.

    python -m benchmarks.linear_backends --rounds 5 --attention native

Medians of tokens/s and of the ratio within a round; the first round is not counted.
"""

from __future__ import annotations

from benchmarks.attention_backends import BACKENDS, add_options, compare
from benchmarks.command_line import parser_with_model


def main() -> None:
    """Print a table."""
    parser = parser_with_model(__doc__)
    add_options(parser)
    parser.add_argument("--attention", default="auto", help="attention_backend of both")
    arguments = parser.parse_args()
    compare(
        arguments,
        {
            name: {"linear_backend": name, "attention_backend": arguments.attention}
            for name in BACKENDS
        },
    )


if __name__ == "__main__":
    main()
