"""Beam search beside openvino_genai's, both by their defaults, on one model folder.

    python -m benchmarks.beam_search MODEL_FOLDER --rounds 5

A prompt of 64 tokens and 128 new ones; tokens/s of the best sequence, prompt included. Engines
alternate; medians, and the median of the ratio within a round. The first round is not counted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import openvino as ov

import pagewheel
from benchmarks.command_line import parser_of

BEAMS, PROMPT, NEW_TOKENS = (1, 4, 8), 64, 128


def measure(module: Any, pipeline: Any, num_beams: int) -> float:
    config = module.GenerationConfig()
    config.set_eos_token_id(2)
    config.max_new_tokens = NEW_TOKENS
    config.ignore_eos = True
    config.num_beams = num_beams
    ids = np.array([[4 + (j * j * 37) % 4000 for j in range(PROMPT)]], np.int64)
    begin = time.perf_counter()
    tokens = pipeline.generate(ov.Tensor(ids), config).tokens[0]
    assert len(tokens) == NEW_TOKENS
    return NEW_TOKENS / (time.perf_counter() - begin)


def main() -> None:
    """Print a table."""
    parser = parser_of(__doc__)
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    import openvino_genai

    runs: list[Callable[[int], float]] = []
    for module in (pagewheel, openvino_genai):
        scheduler = module.SchedulerConfig()
        scheduler.cache_size = 1
        pipeline = module.LLMPipeline(options.model, "CPU", scheduler_config=scheduler)
        runs.append(lambda beams, m=module, p=pipeline: measure(m, p, beams))  # type: ignore[misc]
    print("beams  pagewheel  openvino_genai  ratio")
    for beams in BEAMS:
        rounds = [[run(beams) for run in runs] for _ in range(options.rounds + 1)][1:]
        own, peer = (statistics.median(column) for column in zip(*rounds, strict=True))
        ratio = statistics.median(a / b for a, b in rounds)
        print(f"{beams:5} {own:10.1f} {peer:15.1f} {ratio:6.2f}", flush=True)


if __name__ == "__main__":
    main()
