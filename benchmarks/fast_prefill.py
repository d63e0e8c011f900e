"""What fast prefill saves: the same model with it and without it, in alternating rounds.

    python -m benchmarks.fast_prefill MODEL_FOLDER --rounds 5 [--genai]
    python -m benchmarks.fast_prefill --make-gemma3n MODEL_FOLDER

Each pipeline is in a process of its own, which sleeps while another is measured. Medians, and the
median of the ratio within a round. The ideal is that a prompt's tokens take no time in the matrices
that fast prefill leaves out (`pagewheel info --ops`), and as much as before in all others.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.command_line import model_folder, parser_of
from benchmarks.gemma3n_model import make_gemma3n
from benchmarks.machine import describe
from benchmarks.peers import Peer
from benchmarks.peers.engine import Generated
from benchmarks.prompts import PromptSource, real_text
from benchmarks.rounds import Round, Sample, counted, summarise
from benchmarks.scenarios import Better, Metric, Task, WarmScenario
from benchmarks.session import Plan, Session

FAST = Peer("with", "pagewheel", {"fast_prefill": True})
SLOW = Peer("without", "pagewheel", {"fast_prefill": False})
GENAI = Peer("openvino-genai", "openvino-genai", {})


class FastPrefill(WarmScenario):
    """Prefill of two lengths, then decoding."""

    LENGTHS = (512, 4096)
    CONTEXT, NEW_TOKENS = 512, 64

    def tasks(self, source: PromptSource) -> list[Task]:
        prefills = [Task(source.cut([length]), 1) for length in self.LENGTHS]
        return [*prefills, Task(source.cut([self.CONTEXT]), self.NEW_TOKENS)]

    def sample(self, tasks: Sequence[Task], results: Sequence[Generated]) -> Sample:
        *prefills, decode = results
        sample = {
            f"prefill_{length}": length / result.first_token
            for length, result in zip(self.LENGTHS, prefills, strict=True)
        }
        return {**sample, "decode": float(np.median(np.diff(decode.steps))) * 1e3}


SCENARIO = FastPrefill(
    "fast_prefill",
    "Fast prefill",
    (
        *(
            Metric(f"prefill_{length}", f"prefill {length}", "tokens/s", Better.HIGHER)
            for length in FastPrefill.LENGTHS
        ),
        Metric("decode", f"decode after {FastPrefill.CONTEXT}", "ms/token", Better.LOWER),
    ),
)


def gain(rounds: Sequence[Round], other: str, metric: Metric) -> float:
    """How many times as good FAST is as `other`, the median over the rounds."""
    ratio = summarise(rounds, [other, FAST.name], metric.key)[FAST.name].ratio
    return ratio if metric.better is Better.HIGHER else 1 / ratio


def table(rounds: Sequence[Round], peers: Sequence[str], work_skipped: float) -> str:
    """Medians of each metric, how many times as good FAST is, and how near to the ideal that is."""
    others = [name for name in peers if name != FAST.name]
    best = 1 / (1 - work_skipped)
    rows = [["", *peers, *(f"gain on {name}" for name in others), "ideal", "of it"]]
    for metric in SCENARIO.metrics:
        values = summarise(rounds, peers, metric.key)
        gains = [gain(rounds, name, metric) for name in others]
        row = [f"{metric.title}, {metric.unit}", *(f"{values[name].median:.1f}" for name in peers)]
        row += [f"{each:.2f}" for each in gains]
        if metric.better is Better.HIGHER:
            row += [f"{best:.2f}", f"{gain(rounds, SLOW.name, metric) / best:.0%}"]
        rows.append(row)
    widths = [max(len(row[i]) if i < len(row) else 0 for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=False))
        for row in rows
    )


def main() -> None:
    """Print a table."""
    parser = parser_of(__doc__)
    parser.add_argument("model", type=Path, nargs="?", help="a folder; default: the default model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--genai", action="store_true", help="measure openvino-genai, too")
    parser.add_argument("--allow-busy", action="store_true", help="count disturbed rounds, too")
    parser.add_argument("--make-gemma3n", type=Path, metavar="FOLDER", help="make a model and end")
    arguments = parser.parse_args()
    if arguments.make_gemma3n is not None:
        count = make_gemma3n(arguments.make_gemma3n)
        print(f"{count / 1e6:.1f} million parameters in {arguments.make_gemma3n}")
        return

    from pagewheel._pagewheel import describe_operations

    folder = model_folder(arguments.model)
    peers = [SLOW, FAST, *([GENAI] if arguments.genai else [])]
    plan = Plan(folder, "CPU", arguments.rounds)
    with Session(plan, peers, lambda line: print(line, file=sys.stderr)) as session:
        session.start(real_text(None))
        machine = describe()
        rounds = counted(session.run(SCENARIO).rounds, arguments.allow_busy)
    if not rounds:
        sys.exit("no round was undisturbed; wait or use --allow-busy")
    trimmed = describe_operations(folder).fast_prefill
    print(f"{machine.cpu}, {machine.cores} cores, {machine.kernel}; {len(rounds)} rounds")
    print(
        f"{folder}: trims {trimmed.layers} layers, {trimmed.attention_nodes} attention nodes, "
        f"{trimmed.work_skipped:.1%} of a prompt's work",
        *trimmed.why,
        sep="\n",
    )
    print(table(rounds, [peer.name for peer in peers], trimmed.work_skipped))


if __name__ == "__main__":
    main()
