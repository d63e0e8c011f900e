"""What the engine adds to a step: scheduling and batch building, by the number of sequences.

    python -m benchmarks.step_overhead MODEL_FOLDER

Each sequence has a prompt of 64 tokens and decodes; medians over 60 steps, microseconds.
"""

from __future__ import annotations

import statistics

import pagewheel
from benchmarks.command_line import parser_of

SIZES, PROMPT, STEPS = (1, 32, 256), 64, 60


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("model")
    options = parser.parse_args()
    scheduler = pagewheel.SchedulerConfig()
    scheduler.num_kv_blocks = 2048
    scheduler.enable_prefix_caching = True
    pipeline = pagewheel.ContinuousBatchingPipeline(options.model, scheduler)
    config = pagewheel.GenerationConfig(max_new_tokens=STEPS + 40, ignore_eos=True)
    print("sequences  schedule      fill per sequence     infer   share")
    for size in SIZES:
        handles = []  # a request whose handle is dropped is cancelled
        for i in range(size):
            prompt = [4 + (i * 37 + j * j) % 250 for j in range(PROMPT)]
            handles.append(pipeline.add_request(i, prompt, config))
        while pipeline.get_statistics().latest_step.num_generated_tokens < size:
            pipeline.step()
        steps = []
        while len(steps) < STEPS:
            pipeline.step()
            step = pipeline.get_statistics().latest_step
            if step.num_tokens == size:  # decodes alone
                steps.append(step)
            if not pipeline.has_non_finished_requests():
                break
        while pipeline.has_non_finished_requests():
            pipeline.step()
        schedule, fill, infer = (
            statistics.median(getattr(step, f"{name}_time") for step in steps)
            for name in ("schedule", "fill", "infer")
        )
        own = schedule + fill
        print(
            f"{size:9} {schedule:9.1f} {fill:9.1f} {own / size:12.2f} {infer:9.0f} "
            f"{own / (own + infer):7.2%}"
        )


if __name__ == "__main__":
    main()
