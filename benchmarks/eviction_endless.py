"""Generation past the model's context in a fixed cache: tokens/s of each thousand, and memory.

    python -m benchmarks.eviction_endless --tokens 100000
    python -m benchmarks.eviction_endless --tokens 6000 --policy none norm_sum streaming

A row per thousand tokens: tokens/s and resident memory. "none" is generation without eviction,
which ends at the model's context. --steps measures instead what a step costs with and without
eviction, both pipelines in one process, alternating.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median, stdev

import pagewheel
from benchmarks.command_line import model_folder, parser_with_model
from benchmarks.prompts import real_text


def make_pipeline(
    folder: Path, arguments: argparse.Namespace, policy: str, granularity: str
) -> pagewheel.ContinuousBatchingPipeline:
    scheduler = pagewheel.SchedulerConfig()
    scheduler.speculation = "off"  # a step is a token
    if policy != "none":
        scheduler.use_cache_eviction = True
        scheduler.cache_eviction_config = pagewheel.CacheEvictionConfig(
            32,
            128,
            arguments.budget,
            apply_rotation=arguments.rotation,
            position_limit=arguments.position_limit,
            policy=policy,
            granularity=granularity,
        )
        scheduler.num_kv_blocks = 2 * arguments.budget // 32 + 20
    properties = {"attention_backend": "native"}
    return pagewheel.ContinuousBatchingPipeline(folder, scheduler, "CPU", properties)


def resident_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def step_ends(
    pipeline: pagewheel.ContinuousBatchingPipeline, prompt: list[int], count: int
) -> Iterator[float]:
    config = pagewheel.GenerationConfig(max_new_tokens=count, ignore_eos=True)
    handle = pipeline.add_request(0, prompt, config)
    while pipeline.has_non_finished_requests():
        pipeline.step()
        handle.read()
        yield time.perf_counter()


def endless(
    folder: Path, arguments: argparse.Namespace, policy: str, granularity: str, prompt: list[int]
) -> None:
    pipeline = make_pipeline(folder, arguments, policy, granularity)
    thousand, begin = 0, time.perf_counter()
    print(f"{policy} {granularity}, budget {arguments.budget}", flush=True)
    for i, end in enumerate(step_ends(pipeline, prompt, arguments.tokens)):
        if i % 1000:
            continue
        if i:
            thousand += 1
            print(
                f"  thousand {thousand}: {1000 / (end - begin):6.1f} tokens/s, "
                f"{resident_mb():6.0f} MB",
                flush=True,
            )
        begin = end


def step_costs(folder: Path, arguments: argparse.Namespace, prompt: list[int]) -> None:
    """A step at the budget: means of 96, medians of three such runs, fresh pipelines every round.
    Ratios are of rounds beside each other; a second row without eviction is the noise. A pipeline
    is faster or slower than its twin by some percent all its life: runs of one say little."""
    rows = [("none", "block"), ("none", "again")]
    rows += [(p, g) for p in arguments.policy for g in arguments.granularity]
    times: dict[tuple[str, str], list[float]] = {row: [] for row in rows}
    # Just below the budget on both sides: without eviction the context hardly grows.
    prompt = prompt[: arguments.budget - 16]
    for round_number in range(arguments.rounds):
        first = round_number % len(rows)
        for policy, kind in rows[first:] + rows[:first]:
            granularity = "block" if kind == "again" else kind
            pipeline = make_pipeline(folder, arguments, policy, granularity)
            runs = [list(step_ends(pipeline, prompt, 97))[1:] for _ in range(4)][1:]
            steps = [(ends[-1] - ends[0]) / (len(ends) - 1) for ends in runs]
            times[policy, kind].append(median(steps))
    for row in rows:
        more = [100 * (a / b - 1) for a, b in zip(times[row], times[rows[0]], strict=True)]
        error = stdev(more) / len(more) ** 0.5 if len(more) > 1 else float("nan")
        print(
            f"{row[0]:>12} {row[1]:5}: mean step {1e3 * median(times[row]):6.3f} ms, "
            f"{median(more):+.1f} ± {error:.1f}%"
        )


def main() -> None:
    """Print tables."""
    parser = parser_with_model(__doc__)
    parser.add_argument("--tokens", type=int, default=6000)
    parser.add_argument("--budget", type=int, default=672)
    parser.add_argument("--policy", nargs="+", default=["norm_sum"])
    parser.add_argument("--granularity", nargs="+", default=["block"])
    parser.add_argument("--rotation", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument(
        "--position-limit", type=int, default=0, help="1: keys rotate with each decision"
    )
    parser.add_argument("--steps", action="store_true")
    parser.add_argument("--rounds", type=int, default=4)
    arguments = parser.parse_args()

    folder = model_folder(arguments.model)
    tokenizer = pagewheel.Tokenizer(folder)
    prompt = tokenizer.encode(real_text(None)).input_ids.data[0].tolist()
    if arguments.steps:
        step_costs(folder, arguments, prompt)
        return
    for policy in arguments.policy:
        for granularity in arguments.granularity:
            endless(folder, arguments, policy, granularity, prompt[:512])


if __name__ == "__main__":
    main()
