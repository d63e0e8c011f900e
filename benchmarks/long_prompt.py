"""What a long prompt does to others: gaps in running streams, first tokens of short requests.

    python -m benchmarks.long_prompt MODEL_FOLDER [--module openvino_genai]

Four requests decode; a prompt of 6,000 tokens comes; while it is computed, a request of 32 tokens
comes every 4th step. Prints milliseconds.
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import openvino

from benchmarks.command_line import parser_of

PROMPT, SHORT, STREAMS = 6000, 32, 4


def greedy(api: Any, count: int) -> Any:
    config = api.GenerationConfig()
    config.max_new_tokens, config.ignore_eos, config.do_sample = count, True, False
    return config


def measure(api: Any, pipeline: Any, length: int = PROMPT) -> dict[str, float]:
    rng = np.random.default_rng(0)

    def submit(number: int, length: int, count: int) -> Any:
        ids = openvino.Tensor(rng.integers(1000, 40000, (1, length)))
        return pipeline.add_request(number, ids, greedy(api, count))

    streams = [submit(i, 16, 2000) for i in range(STREAMS)]
    for _ in range(30):
        pipeline.step()
    long_one = submit(100, length, 1)
    began = time.perf_counter()
    waiting: dict[int, tuple[float, Any]] = {}
    first_tokens, gaps, read = [], [], began
    for step in range(10**6):
        if step % 4 == 1:
            waiting[200 + step] = time.perf_counter(), submit(200 + step, SHORT, 4)
        pipeline.step()
        now = time.perf_counter()
        if streams[0].can_read():
            streams[0].read()
            gaps.append(now - read)
            read = now
        for number in [n for n, (_, handle) in waiting.items() if handle.can_read()]:
            first_tokens.append(now - waiting.pop(number)[0])
        if long_one.can_read():
            break
    for handle in streams:
        handle.stop()
    while pipeline.has_non_finished_requests():
        pipeline.step()
        now = time.perf_counter()
        for number in [n for n, (_, handle) in waiting.items() if handle.can_read()]:
            first_tokens.append(now - waiting.pop(number)[0])
    return {
        "first token of the long prompt": sum(gaps),
        "gap of a stream, median": statistics.median(gaps),
        "gap of a stream, longest": max(gaps),
        "first token of short requests, median": statistics.median(first_tokens),
        "first token of short requests, longest": max(first_tokens),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("model")
    parser.add_argument("--module", default="pagewheel", help="or openvino_genai")
    options = parser.parse_args(arguments)
    api = importlib.import_module(options.module)
    scheduler = api.SchedulerConfig()
    scheduler.max_num_batched_tokens = 512
    scheduler.cache_size = 2
    pipeline = api.ContinuousBatchingPipeline(options.model, scheduler, "CPU")
    measure(api, pipeline, 600)  # the first pass over a shape takes longer
    for name, seconds in measure(api, pipeline).items():
        print(f"{name:40} {seconds * 1e3:9.1f}")


if __name__ == "__main__":
    main()
