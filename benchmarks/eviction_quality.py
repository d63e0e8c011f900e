"""What cache eviction costs in quality: policies, budgets, granularity and rotation.

    python -m benchmarks.eviction_quality --out quality.json
    python -m benchmarks.eviction_quality --out quality.json --report quality.md --chart quality.png

Three measurements, each on the same texts for every setting:

- stream: perplexity of prose that runs through a cache of --stream-budget tokens and is evicted as
  it is read, inside the model's context and beyond it.
- passkey: share of five-digit numbers, hidden at several depths of a prompt, that are told when
  asked for after the prompt was evicted down to a share of its length.
- agreement: share of the --new-tokens greedy tokens before the first that differs from the full
  cache's.

A setting that the file has already is not measured again, so a long run can be made in parts
(--only). openvino-genai takes part in passkey and agreement with f32 inference and an f16 cache,
where its rotation runs. It reads pagewheel's converted folder, so its weights are exact too.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pagewheel
from benchmarks.prompts import real_text

START, RECENT, BLOCK = 32, 64, 32
POLICIES = (
    "streaming",
    "sum",
    "norm_sum",
    "snapkv",
    "tova",
    "kvcrush",
    "adaptive_rkv",
    "key_norm",
    "key_diff",
)
SHARES = (0.25, 0.5, 0.75)
F32 = {"INFERENCE_PRECISION_HINT": "f32"}
Generate = Callable[[list[list[int]], int], list[list[int]]]


@dataclass(frozen=True)
class Setting:
    """`share` of a prompt's tokens is the budget; 1: the full cache."""

    engine: str
    policy: str
    share: float
    granularity: str = "block"
    rotation: bool = True

    def key(self) -> str:
        rotation = "rotation" if self.rotation else "absolute"
        return f"{self.engine} {self.policy} {self.granularity} {rotation} {self.share:g}"

    def budget(self, prompt: int) -> int:
        return max(START + RECENT + BLOCK, round(prompt * self.share / BLOCK) * BLOCK)


def eviction(setting: Setting, budget: int, **options: Any) -> pagewheel.CacheEvictionConfig:
    return pagewheel.CacheEvictionConfig(
        START,
        RECENT,
        budget,
        apply_rotation=setting.rotation,
        policy=setting.policy,
        granularity=setting.granularity,
        kvcrush_config=pagewheel.KVCrushConfig(max(1, (budget - START - RECENT) // BLOCK // 4)),
        **options,
    )


def pagewheel_pipeline(
    folder: Path, config: pagewheel.CacheEvictionConfig | None
) -> pagewheel.ContinuousBatchingPipeline:
    scheduler = pagewheel.SchedulerConfig()
    if config is not None:
        scheduler.use_cache_eviction = True
        scheduler.cache_eviction_config = config
    properties = {**F32, "KV_CACHE_PRECISION": "u8", "attention_backend": "native"}
    return pagewheel.ContinuousBatchingPipeline(folder, scheduler, "CPU", properties)


def pagewheel_generator(folder: Path, setting: Setting, prompt_length: int) -> Generate:
    config = None
    if setting.share < 1:
        config = eviction(setting, setting.budget(prompt_length))
    pipeline = pagewheel_pipeline(folder, config)

    def generate(prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
        options = pagewheel.GenerationConfig(max_new_tokens=new_tokens, ignore_eos=True)
        results = pipeline.generate(prompts, [options] * len(prompts))
        return [result.m_generation_ids[0] for result in results]

    return generate


def genai_generator(folder: Path, setting: Setting, prompt_length: int) -> Generate:
    import openvino as ov
    import openvino_genai as genai

    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 1
    if setting.share < 1:
        scheduler.use_cache_eviction = True
        scheduler.cache_eviction_config = genai.CacheEvictionConfig(
            START,
            RECENT,
            setting.budget(prompt_length),
            getattr(genai.AggregationMode, setting.policy.upper()),
            apply_rotation=setting.rotation,
        )
    properties = {**F32, "KV_CACHE_PRECISION": "f16"}
    pipeline = genai.ContinuousBatchingPipeline(str(folder), scheduler, "CPU", properties)

    def generate(prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
        options = genai.GenerationConfig(max_new_tokens=new_tokens, ignore_eos=True)
        inputs = [ov.Tensor(np.array([prompt], np.int64)) for prompt in prompts]
        results = pipeline.generate(inputs, [options] * len(prompts))
        return [list(result.m_generation_ids[0]) for result in results]

    return generate


GENERATORS = {"pagewheel": pagewheel_generator, "openvino-genai": genai_generator}


# ---- The three measurements


def stream(folder: Path, setting: Setting, ids: list[int], context: int, budget: int) -> Any:
    """Perplexity by the position that a token has in the text."""
    config = None
    if setting.share < 1:
        config = eviction(setting, budget, evict_during_prefill=True)
        ids = ids[: 2 * context]
    else:
        ids = ids[: context - 1]
    pipeline = pagewheel_pipeline(folder, config)
    options = pagewheel.GenerationConfig(max_new_tokens=1, logprobs=1, echo=True)
    handle = pipeline.add_request(0, ids, options)
    while pipeline.has_non_finished_requests():
        pipeline.step()
    log_probs = np.array(handle.read_all()[0].prompt_log_probs)

    def perplexity(part: np.ndarray) -> float | None:
        return math.exp(-float(part.mean())) if len(part) else None

    return {
        "inside": perplexity(log_probs[1024 : context - 2]),
        "beyond": perplexity(log_probs[context:]),
    }


def passkey_prompts(
    tokenizer: pagewheel.Tokenizer, ids: list[int], length: int
) -> tuple[list[list[int]], list[str]]:
    rng = np.random.default_rng(11)
    encode = lambda text: tokenizer.encode(text).input_ids.data[0].tolist()  # noqa: E731
    prompts, keys = [], []
    for depth in (0.15, 0.3, 0.45, 0.6, 0.75):
        for _ in range(2):
            key = str(rng.integers(10000, 99999))
            begin = int(rng.integers(0, len(ids) - length))
            filler = ids[begin : begin + length]
            cut = int(length * depth)
            needle = encode(f"\nThe pass key is {key}. Remember it. {key} is the pass key.\n")
            question = encode("\nWhat is the pass key? The pass key is")
            prompts.append([*filler[:cut], *needle, *filler[cut:], *question])
            keys.append(key)
    return prompts, keys


def passkey(
    generate: Generate, tokenizer: pagewheel.Tokenizer, prompts: list[list[int]], keys: list[str]
) -> float:
    answers = [tokenizer.decode(tokens) for tokens in generate(prompts, 8)]
    return sum(key in answer for key, answer in zip(keys, answers, strict=True)) / len(keys)


def common_share(a: Sequence[int], b: Sequence[int]) -> float:
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        if x != y:
            return i / len(a)
    return 1.0


# ---- What is measured, and the report


def settings(engines: Iterable[str], policies: Sequence[str]) -> list[Setting]:
    result = []
    for engine in engines:
        result.append(Setting(engine, "full", 1))
        for share in SHARES:
            if engine == "openvino-genai":
                for policy in ("sum", "norm_sum"):
                    for rotation in (True, False):
                        result.append(Setting(engine, policy, share, "block", rotation))
                continue
            for policy in policies:
                granularities = ("block",) if policy == "kvcrush" else ("block", "token")
                for granularity in granularities:
                    for rotation in (True, False):
                        result.append(Setting(engine, policy, share, granularity, rotation))
    return result


class Record:
    """Results by measurement and setting, written as they come."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results: dict[str, dict[str, Any]] = {}
        if path.exists():
            self.results = json.loads(path.read_text())

    def measure(self, name: str, setting: Setting, function: Callable[[], Any]) -> None:
        done = self.results.setdefault(name, {})
        if setting.key() in done:
            return
        done[setting.key()] = function()
        self.path.write_text(json.dumps(self.results, indent=2))
        print(name, setting.key(), done[setting.key()], flush=True)


def table(results: dict[str, dict[str, Any]]) -> str:
    """Markdown; a row per engine, policy, granularity and rotation."""
    rows = sorted({key.rsplit(" ", 1)[0] for part in results.values() for key in part})
    lines = [
        "| engine, policy, granularity, positions | stream inside | beyond "
        + "".join(f"| passkey {share:.0%} " for share in SHARES)
        + "".join(f"| agreement {share:.0%} " for share in SHARES)
        + "|",
        "|---|" + "---|" * (2 + 2 * len(SHARES)),
    ]

    def text(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    for row in rows:
        full = " full " in row
        streamed = results.get("stream", {}).get(f"{row} {'1' if full else '0.5'}", {})
        cells = [text(streamed.get("inside"), ".2f"), text(streamed.get("beyond"), ".2f")]
        for name in ("passkey", "agreement"):
            for share in SHARES:
                key = f"{row} {1 if full else share:g}"
                cells.append(text(results.get(name, {}).get(key), ".0%"))
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw(results: dict[str, dict[str, Any]], path: Path) -> None:
    """Agreement and passkey by budget, a line per setting with rotation."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 5.5), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, name in zip(figure.subplots(1, 2), ("passkey", "agreement"), strict=True):
        rows = sorted({key.rsplit(" ", 1)[0] for key in results.get(name, {})})
        for row in rows:
            if " full " in row or " absolute" in row:
                continue
            values = [results[name].get(f"{row} {share:g}") for share in SHARES]
            style = ":" if row.startswith("openvino") else "-" if " token " in row else "--"
            axes.plot(SHARES, values, style, marker="o", label=row.replace(" rotation", ""))
        axes.set_title(f"{name}, by share of the prompt kept")
        axes.set_ylim(0, 1.02)
        axes.set_xticks(SHARES)
    axes.legend(fontsize=7, ncols=1, bbox_to_anchor=(1.02, 1), loc="upper left")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure what the record lacks; then the report, if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="default: the default model")
    parser.add_argument("--out", type=Path, required=True, help="JSON; continued if it exists")
    parser.add_argument("--only", nargs="+", default=["stream", "passkey", "agreement"])
    parser.add_argument("--engines", nargs="+", default=list(GENERATORS), choices=GENERATORS)
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), choices=POLICIES)
    parser.add_argument("--match", default="", help="regular expression for settings' names")
    parser.add_argument("--prompt", type=int, default=1024, help="tokens of a prompt")
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--context", type=int, default=8192, help="the model's")
    parser.add_argument("--stream-budget", type=int, default=672)
    parser.add_argument("--report", type=Path, help="Markdown table")
    parser.add_argument("--chart", type=Path, help="PNG")
    arguments = parser.parse_args()

    from pagewheel.convert import resolve_model
    from pagewheel.default_model import default_model

    folder = resolve_model(arguments.model or default_model())
    tokenizer = pagewheel.Tokenizer(folder)
    ids = tokenizer.encode(real_text(None)).input_ids.data[0].tolist()
    record = Record(arguments.out)
    chosen = [
        setting
        for setting in settings(arguments.engines, arguments.policies)
        if re.search(arguments.match, setting.key())
    ]
    if "stream" in arguments.only:
        for setting in chosen:
            if setting.engine == "pagewheel" and setting.share in (0.5, 1):
                record.measure(
                    "stream",
                    setting,
                    lambda s=setting: stream(
                        folder, s, ids, arguments.context, arguments.stream_budget
                    ),
                )
    prompts, keys = passkey_prompts(tokenizer, ids, arguments.prompt)
    begins = np.random.default_rng(3).integers(0, len(ids) - arguments.prompt, 8)
    prose = [ids[begin : begin + arguments.prompt] for begin in begins]
    references: dict[str, list[list[int]]] = {}
    for setting in chosen:
        names = [
            name
            for name in ("passkey", "agreement")
            if name in arguments.only and setting.key() not in record.results.get(name, {})
        ]
        if not names:
            continue
        generate = GENERATORS[setting.engine](folder, setting, arguments.prompt)
        if "passkey" in names:
            record.measure(
                "passkey", setting, lambda g=generate: passkey(g, tokenizer, prompts, keys)
            )
        if "agreement" in names:
            if setting.engine not in references:
                full = GENERATORS[setting.engine](
                    folder, Setting(setting.engine, "full", 1), arguments.prompt
                )
                references[setting.engine] = full(prose, arguments.new_tokens)
            expected = references[setting.engine]
            record.measure(
                "agreement",
                setting,
                lambda g=generate, e=expected: float(
                    np.mean(
                        [
                            common_share(a, b)
                            for a, b in zip(e, g(prose, arguments.new_tokens), strict=True)
                        ]
                    )
                ),
            )
    if arguments.report:
        arguments.report.write_text(table(record.results))
    if arguments.chart:
        draw(record.results, arguments.chart)


if __name__ == "__main__":
    main()
