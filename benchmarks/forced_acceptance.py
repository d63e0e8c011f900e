"""What computed drafts save where each is right with a given probability, beside what theory says.

    python -m benchmarks.forced_acceptance MODEL_FOLDER --draft DRAFT_FOLDER --acceptance 0.7
    python -m benchmarks.forced_acceptance MODEL_FOLDER --acceptance 0.7

Without `--draft` the model's own head drafts (multi-token prediction). Random weights do not guess
each other's tokens. So the drafter is made to guess, after each token, the one with the next number
(`--successor` of benchmarks.large_llama, `--head` of benchmarks.random_hybrid), and a logits
processor makes the model's text go on so with the given probability, which is drawn for each token.
Everything else is the product's: the drafter's steps, their number, and their confirmation. At each
acceptance all pipelines begin anew, and the first answer's ratio is shown beside the median.

Theory is the factor of Leviathan et al. (arXiv 2211.17192, theorem 3.8). With acceptance a, g
drafts a step, and the time c of one draft in steps without any, it is
(1 - a ** (g + 1)) / ((1 - a) (1 + g c)). It takes a step with drafts to cost as much as one
without. The second figure has the cost v that was measured in place of this 1.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pagewheel
from benchmarks.machine import describe

_PROMPT = 32  # tokens
_FIRST = 1000  # what stands before it in the vocabulary may be control tokens
# Each text has a salt of its own: nothing is known from the one before, which had the same tokens.
_salts = itertools.count()


class Text:
    """A logits processor. Whether a token is the one after the last is a matter of its place."""

    def __init__(self, acceptance: float, seed: int, vocabulary: int) -> None:
        rng = np.random.default_rng(seed)
        self.goes_on = rng.random(4096) < acceptance
        self.others = rng.integers(_FIRST, vocabulary, 4096)

    def prompt(self) -> list[int]:
        return [int(each) for each in self.others[:_PROMPT]]

    def __call__(self, tokens: Any, logits: Any) -> None:
        place = len(tokens)
        following = (int(tokens[-1]) + 1) % len(logits)
        logits[following if self.goes_on[place] else self.others[place]] = 1e6


@dataclass(frozen=True)
class Run:
    """Of one text. `steps` are those after the prompt, `time` is theirs in seconds."""

    tokens: list[int]
    steps: int
    time: float
    draft_time: float
    draft_steps: int
    drafted: int
    accepted: int
    rejecting_steps: int

    @property
    def rate(self) -> float:
        return (len(self.tokens) - 1) / self.time


def pipeline(folder: Path, draft: Path | None, drafts: bool) -> Any:
    scheduler = pagewheel.SchedulerConfig()
    scheduler.speculation = "mtp" if drafts and draft is None else "off"
    properties = {"draft_model": pagewheel.draft_model(draft)} if drafts and draft else {}
    return pagewheel.ContinuousBatchingPipeline(folder, scheduler, "CPU", properties)


def run(pipe: Any, text: Text, tokens: int, length: int) -> Run:
    """`length` drafts a step; 0: chosen by cost."""
    config = pagewheel.GenerationConfig(
        max_new_tokens=tokens,
        ignore_eos=True,
        logits_processors=[text],
        num_assistant_tokens=length,
        cache_salt=str(next(_salts)),
    )
    handle = pipe.add_request(0, text.prompt(), config)
    pipe.step()
    before, rejecting = pipe.get_statistics(), 0
    begin = time.perf_counter()
    while pipe.has_non_finished_requests():
        pipe.step()
        step = pipe.get_statistics().latest_step
        rejecting += step.num_accepted_tokens < step.num_drafted_tokens
    seconds = time.perf_counter() - begin
    after = pipe.get_statistics()

    def of(name: str) -> Any:
        return getattr(after.all_steps, name) - getattr(before.all_steps, name)

    return Run(
        list(handle.read_all()[0].generated_ids),
        after.num_steps - before.num_steps,
        seconds,
        of("draft_time") / 1e6,
        of("num_draft_steps"),
        of("num_drafted_tokens"),
        of("num_accepted_tokens"),
        rejecting,
    )


def factor(acceptance: float, length: float, draft_cost: float, step_cost: float = 1) -> float:
    """By how much more tokens/s there are with drafts; costs in steps without any."""
    tokens = sum(acceptance**i for i in range(int(length) + 1))
    tokens += (length - int(length)) * acceptance ** (int(length) + 1)
    return tokens / (step_cost + length * draft_cost)


def report(name: str, runs: Sequence[Run], without: Sequence[Run]) -> str:
    def total(attribute: str) -> int:
        return sum(getattr(each, attribute) for each in runs)

    ratios = [a.rate / b.rate for a, b in zip(runs, without, strict=True)]
    rate = statistics.median(each.rate for each in runs)
    ratio = statistics.median(ratios)
    line = f"{name:>7}  {rate:7.1f} tokens/s  {ratio:5.2f}, at first {ratios[0]:.2f}"
    drafted, accepted, rejected = (
        total(each) for each in ("drafted", "accepted", "rejecting_steps")
    )
    if drafted == 0:
        return line
    acceptance, length = accepted / (accepted + rejected), drafted / total("steps")
    plain = statistics.median(each.time / each.steps for each in without)
    draft = statistics.median(each.draft_time / max(1, each.draft_steps) for each in runs) / plain
    step = statistics.median((each.time - each.draft_time) / each.steps for each in runs) / plain
    theory = [factor(acceptance, length, draft, each) for each in (1, step)]
    return (
        f"{line}  a {acceptance:.2f}  g {length:5.2f}  c {draft:.3f}  v {step:.2f}  "
        f"theory {theory[0]:.2f}, with v {theory[1]:.2f}"
    )


def measure(given: argparse.Namespace, acceptance: float) -> None:
    lengths = given.length or ()
    # The choice knows nothing at first. Fixed lengths, which would teach it how long steps take,
    # run in another pipeline.
    fixed = pipeline(given.model, given.draft, True) if lengths else None
    pipes = {
        "off": (pipeline(given.model, given.draft, False), 0),
        "chosen": (pipeline(given.model, given.draft, True), 0),
        **{str(length): (fixed, length) for length in lengths},
    }
    runs: dict[str, list[Run]] = {name: [] for name in pipes}
    for turn in range(given.rounds):
        text = Text(acceptance, turn, given.vocabulary)
        for name in pipes if turn % 2 else reversed(pipes):
            pipe, length = pipes[name]
            runs[name].append(run(pipe, text, given.tokens, length))
        if any(each[turn].tokens != runs["off"][turn].tokens for each in runs.values()):
            raise SystemExit("drafts have changed the answer")
    print(f"acceptance {acceptance}")
    for name in pipes:
        print(report(name, runs[name], runs["off"]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--acceptance", type=float, action="append")
    parser.add_argument("--length", type=int, action="append", help="fixed ones, beside the chosen")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--vocabulary", type=int, default=49152, help="default %(default)s")
    given = parser.parse_args()
    print(describe())
    for acceptance in given.acceptance or (0.5, 0.7, 0.9):
        measure(given, acceptance)


if __name__ == "__main__":
    main()
