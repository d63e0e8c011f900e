"""How many greedy answers are those of f32, for each way to round activations and the cache.

    python -m benchmarks.fidelity
    python -m benchmarks.fidelity --precisions auto int8 --caches u8 f32 --at-once 12
    python -m benchmarks.fidelity --prose 200

Twelve short questions, ten beginnings of texts and --prose pieces of the Python reference manual
of 64 tokens, answered greedily by f32 inference over an f32 cache and then with each setting. A
text counts if all its tokens are the same; the tokens that agree until the first other one are
averaged. Of 12 texts one or two more or fewer say nothing: compare settings by --prose.
"""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pagewheel
from benchmarks.command_line import model_folder, parser_with_model
from benchmarks.prompts import PromptSource, real_text

QUESTIONS = [
    "What is the capital of France?",
    "Why is the sky blue?",
    "Name three primary colours.",
    "Who wrote Hamlet?",
    "What is 12 times 8?",
    "Explain what a cache is in one sentence.",
    "Write a haiku about autumn.",
    "How do plants make food?",
    "What is the largest planet?",
    "Give me a recipe for pancakes.",
    "What does a compiler do?",
    "Tell me a short story about a robot.",
]
BEGINNINGS = [
    "The history of the bicycle begins",
    "Once upon a time, in a small village by the sea,",
    "The most important thing about writing tests is",
    "Water boils at",
    "def fibonacci(n):",
    "In 1969, the first humans",
    "The difference between a list and a tuple in Python is",
    "My favourite season is winter because",
    "A balanced diet contains",
    "The Roman Empire fell because",
]
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}


def answers(
    folder: Path, prompts: list[list[int]], properties: dict[str, str], tokens: int, at_once: int
) -> list[list[int]]:
    """The greedy tokens after each prompt, `at_once` requests in a batch."""
    pipeline = pagewheel.ContinuousBatchingPipeline(
        folder, pagewheel.SchedulerConfig(), "CPU", properties
    )
    config = pagewheel.GenerationConfig(max_new_tokens=tokens)
    results: list[list[int]] = []
    for first in range(0, len(prompts), at_once):
        batch = prompts[first : first + at_once]
        results += [one.m_generation_ids[0] for one in pipeline.generate(batch, config)]
    return results


def common(a: list[int], b: list[int]) -> int:
    """How many tokens agree before the first that does not."""
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(map(len, (a, b)))
    )


def main() -> None:
    """Print a table, and JSON if asked."""
    parser = parser_with_model(__doc__)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--at-once", type=int, default=1, help="requests in a batch")
    parser.add_argument("--prose", type=int, default=0, help="prompts out of the manual")
    parser.add_argument("--precisions", nargs="+", default=["auto", "int8", "int16"])
    parser.add_argument("--caches", nargs="+", default=["f32", "u8"])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    folder = model_folder(arguments.model)
    tokenizer = pagewheel.Tokenizer(folder)

    def ids(text: str) -> list[int]:
        return tokenizer.encode(text).input_ids.data[0].tolist()

    chats = [
        tokenizer.apply_chat_template([{"role": "user", "content": question}], True)
        for question in QUESTIONS
    ]
    groups = {
        "questions": [ids(text) for text in chats],
        "beginnings": [ids(text) for text in BEGINNINGS],
        "prose": PromptSource(ids(real_text(None))).cut([64] * arguments.prose),
    }
    prompts = [prompt for group in groups.values() for prompt in group]

    def run(properties: dict[str, str]) -> list[list[int]]:
        return answers(folder, prompts, properties, arguments.tokens, arguments.at_once)

    exact = run(EXACT)
    settings = {
        f"{precision}, {cache} cache": {
            "activation_precision": precision,
            "KV_CACHE_PRECISION": cache,
        }
        for cache in arguments.caches
        for precision in arguments.precisions
    }
    settings["OpenVINO's linear layers, f32 cache"] = {
        "linear_backend": "openvino",
        "KV_CACHE_PRECISION": "f32",
    }
    for cache in (cache for cache in arguments.caches if cache != "f32"):
        settings[f"f32 inference, {cache} cache"] = EXACT | {"KV_CACHE_PRECISION": cache}
    table: dict[str, dict[str, float]] = {}
    for name, properties in settings.items():
        pairs = list(zip(run(properties), exact, strict=True))
        same = iter(a == b for a, b in pairs)
        counts = {group: sum(islice(same, len(of))) for group, of in groups.items()}
        tokens = sum(common(a, b) for a, b in pairs) / len(pairs)
        table[name] = counts | {"common tokens": tokens}
        texts = ", ".join(f"{group} {counts[group]}/{len(of)}" for group, of in groups.items())
        print(f"{name:36} {texts}, {tokens:.1f} tokens in common", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(table, indent=2))


if __name__ == "__main__":
    main()
