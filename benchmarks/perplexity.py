"""Perplexity of a model on prose, for each format of the KV cache: what a smaller cache costs.

    python -m benchmarks.perplexity --tokens 20000 --formats f32 u8 u4

Windows of --window tokens are prompts of their own; every token but a window's first counts.
Where the tokenizer begins a text with a token (Gemma's bos), every window begins with it.
Prefill chunks have 512 tokens, so most keys and values that a token sees come out of the cache.
"""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import pagewheel
from benchmarks.command_line import model_folder, parser_with_model
from benchmarks.prompts import real_text


def perplexity(folder: Path, windows: list[list[int]], properties: dict[str, str]) -> float:
    """exp of the mean negative log-probability of all tokens but each window's first."""
    scheduler = pagewheel.SchedulerConfig()
    pipeline = pagewheel.ContinuousBatchingPipeline(folder, scheduler, "CPU", properties)
    config = pagewheel.GenerationConfig(max_new_tokens=1, logprobs=1, echo=True)
    log_probs: list[float] = []
    for window in windows:
        handle = pipeline.add_request(0, window, config)
        while pipeline.has_non_finished_requests():
            pipeline.step()
        log_probs += handle.read_all()[0].prompt_log_probs
    return math.exp(-sum(log_probs) / len(log_probs))


def windows_of(ids: list[int], bos: int, count: int, size: int) -> list[list[int]]:
    """The first `count` of the tokens in windows of `size`, each after their bos, if any."""
    begin = ids[:1] if ids[0] == bos else []
    text = ids[len(begin) : count]
    step = size - len(begin)
    return [begin + text[i : i + step] for i in range(0, len(text) - 1, step)]


def main() -> None:
    """Print a table, and JSON if asked."""
    parser = parser_with_model(__doc__)
    parser.add_argument("--tokens", type=int, default=20000)
    parser.add_argument("--window", type=int, default=2048)
    parser.add_argument("--formats", nargs="+", default=["f32", "bf16", "f16", "u8", "u4"])
    parser.add_argument("--backend", default="native", help="attention_backend")
    parser.add_argument("--precision", default="f32", help="INFERENCE_PRECISION_HINT")
    parser.add_argument(
        "--linear",
        nargs="+",
        default=["auto"],
        help="linear_backend, one or several; with native --precision is left out, as its rounded\n"
        "activations are not f32 inference (all else is)",
    )
    parser.add_argument("--activations", nargs="+", default=["auto"], help="activation_precision")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    folder = model_folder(arguments.model)
    tokenizer = pagewheel.Tokenizer(folder)
    ids = tokenizer.encode(real_text(None)).input_ids.data[0].tolist()
    windows = windows_of(ids, tokenizer.get_bos_token_id(), arguments.tokens, arguments.window)
    count = sum(map(len, windows))
    results: dict[str, float] = {}
    choices = itertools.product(arguments.linear, arguments.activations, arguments.formats)
    for linear, activations, cache in choices:
        properties = {
            "KV_CACHE_PRECISION": cache,
            "attention_backend": arguments.backend,
            "linear_backend": linear,
        }
        if linear == "native":
            properties["activation_precision"] = activations
        elif activations != arguments.activations[0]:
            continue  # only pagewheel's layers round them
        else:
            properties["INFERENCE_PRECISION_HINT"] = arguments.precision
        name = f"{linear} {activations} {cache}" if linear == "native" else f"{linear} {cache}"
        results[name] = perplexity(folder, windows, properties)
        change = 100 * (results[name] / next(iter(results.values())) - 1)
        print(f"{name:>18}  {results[name]:9.4f}  {change:+.3f}%  ({count} tokens)", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"tokens": count, "perplexity": results}, indent=2))


if __name__ == "__main__":
    main()
