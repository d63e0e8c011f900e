"""Attention backends `native` and `openvino`, end to end: both in one process, alternating.

    python -m benchmarks.attention_backends --rounds 5

Medians of tokens/s and of the ratio within a round; the first round is not counted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping
from statistics import median

import numpy as np

import pagewheel
from benchmarks.command_line import model_folder, parser_with_model

BACKENDS = ("openvino", "native")
Measure = Callable[[pagewheel.ContinuousBatchingPipeline], float]


def step_ends(
    pipeline: pagewheel.ContinuousBatchingPipeline, prompt: int, new_tokens: int, requests: int
) -> list[float]:
    """Seconds after submission at which each step ended; prompts of random tokens."""
    rng = np.random.default_rng(0)
    config = pagewheel.GenerationConfig(max_new_tokens=new_tokens, ignore_eos=True)
    begin = time.perf_counter()
    handles = []  # a request whose handle is dropped is cancelled
    for i in range(requests):
        handles.append(pipeline.add_request(i, rng.integers(1000, 40000, prompt), config))
    ends = []
    while pipeline.has_non_finished_requests():
        pipeline.step()
        ends.append(time.perf_counter() - begin)
    return ends


def prefill(prompt: int) -> Measure:
    """Prompt tokens/s up to the first token."""
    return lambda pipeline: prompt / step_ends(pipeline, prompt, 1, 1)[-1]


def decode(context: int, new_tokens: int, requests: int) -> Measure:
    """Output tokens/s of steps that decode all requests."""

    def measure(pipeline: pagewheel.ContinuousBatchingPipeline) -> float:
        ends = step_ends(pipeline, context, new_tokens, requests)
        return requests / float(np.median(np.diff(ends)[-(new_tokens - 2) :]))

    return measure


SCENARIOS: dict[str, Measure] = {
    "prefill 512": prefill(512),
    "prefill 2048": prefill(2048),
    "prefill 6144": prefill(6144),
    "decode, context 35": decode(35, 100, 1),
    "decode, context 4000": decode(4000, 40, 1),
    "decode 32 x 35": decode(35, 60, 32),
    "decode 64 x 200": decode(200, 30, 64),
}


def print_table(
    pipelines: Mapping[str, pagewheel.ContinuousBatchingPipeline],
    scenarios: Iterable[str],
    num_rounds: int,
) -> None:
    """Medians of tokens/s by backend and of native over openvino within a round."""
    print(f"{'tokens/s':<22}" + "".join(f"{name:>10}" for name in BACKENDS) + "     ratio")
    for scenario in scenarios:
        measure = SCENARIOS[scenario]
        rounds = []
        for _ in range(num_rounds + 1):
            rounds.append([measure(pipelines[name]) for name in BACKENDS])
        del rounds[0]  # the first pass over a shape takes longer
        speeds = "".join(f"{median(column):10.1f}" for column in zip(*rounds, strict=True))
        ratio = median(native / openvino for openvino, native in rounds)
        print(f"{scenario:<22}{speeds}{ratio:10.2f}", flush=True)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What is measured, and how often."""
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS), help="default: all")


def compare(arguments: argparse.Namespace, properties: Mapping[str, Mapping[str, str]]) -> None:
    """Print a table of pipelines that differ in their properties, by backend."""
    folder = model_folder(arguments.model)
    pipelines = {
        name: pagewheel.ContinuousBatchingPipeline(
            folder, pagewheel.SchedulerConfig(), "CPU", dict(properties[name])
        )
        for name in BACKENDS
    }
    print_table(pipelines, arguments.scenario or SCENARIOS, arguments.rounds)


def main() -> None:
    """Print a table."""
    parser = parser_with_model(__doc__)
    add_options(parser)
    compare(parser.parse_args(), {name: {"attention_backend": name} for name in BACKENDS})


if __name__ == "__main__":
    main()
