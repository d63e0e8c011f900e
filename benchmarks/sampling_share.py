"""What sampling and text take of a decode step, by the number of sequences and settings.

    python -m benchmarks.sampling_share MODEL_FOLDER [--random-prompts] [--rounds N]

Each sequence has a prompt of 64 tokens of a text, and decodes. Prints medians over steps in
microseconds, and the share of the whole step. Settings alternate from round to round.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator
from typing import Any

import pagewheel
from benchmarks.command_line import parser_of
from benchmarks.prompts import PromptSource, real_text

SIZES, PROMPT, STEPS = (1, 64), 64, 48
SAMPLED: dict[str, Any] = {"do_sample": True, "rng_seed": 1}
SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": SAMPLED,
    "top_p 0.95": SAMPLED | {"top_p": 0.95},
    "top_p, a stop string": SAMPLED | {"top_p": 0.95, "stop_strings": {"\n\n\n"}},
    "penalties, top_k, top_p, min_p": SAMPLED
    | {
        "top_p": 0.95,
        "top_k": 50,
        "min_p": 0.02,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.1,
    },
    "logprobs 5": {"logprobs": 5},
}


def prompts_of(pipeline: pagewheel.ContinuousBatchingPipeline, rand: bool) -> list[list[int]]:
    if rand:
        rng = random.Random(0)
        return [[rng.randrange(1000, 40000) for _ in range(PROMPT)] for _ in range(max(SIZES))]
    ids = pipeline.get_tokenizer().encode(real_text(None)).input_ids.data[0].tolist()
    return PromptSource(ids).cut([PROMPT] * max(SIZES))


def steps_of(
    pipeline: pagewheel.ContinuousBatchingPipeline,
    prompts: list[list[int]],
    config: pagewheel.GenerationConfig,
) -> Iterator[pagewheel.StepStatistics]:
    """The steps that decode all of them."""
    handles = [pipeline.add_request(i, prompt, config) for i, prompt in enumerate(prompts)]
    while pipeline.has_non_finished_requests():
        pipeline.step()
        step = pipeline.get_statistics().latest_step
        if step.num_tokens == step.num_generated_tokens == len(handles):
            yield step


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("model")
    parser.add_argument("--random-prompts", action="store_true", help="of random tokens instead")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    scheduler = pagewheel.SchedulerConfig()
    scheduler.num_kv_blocks = 2048
    pipeline = pagewheel.ContinuousBatchingPipeline(options.model, scheduler)
    prompts = prompts_of(pipeline, options.random_prompts)
    found: dict[tuple[int, str], list[pagewheel.StepStatistics]] = {}
    for _ in range(options.rounds):
        for size in SIZES:
            for name, values in SETTINGS.items():
                config = pagewheel.GenerationConfig(max_new_tokens=STEPS, ignore_eos=True, **values)
                steps = steps_of(pipeline, prompts[:size], config)
                found.setdefault((size, name), []).extend(steps)
    print(f"{'':32} sequences  sampling  of it text      step   share")
    for (size, name), steps in found.items():
        sampling, text, step = (
            statistics.median(each)
            for each in (
                [s.sampling_time for s in steps],
                [s.text_time for s in steps],
                [s.schedule_time + s.fill_time + s.infer_time + s.sampling_time for s in steps],
            )
        )
        print(f"{name:32} {size:9} {sampling:9.0f} {text:11.0f} {step:9.0f} {sampling / step:7.2%}")


if __name__ == "__main__":
    main()
