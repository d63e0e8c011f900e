"""What cache eviction costs in quality: policies, budgets, granularity and rotation.

    python -m benchmarks.eviction_quality --out quality.json
    python -m benchmarks.eviction_quality --out quality.json --report quality.md --chart quality.png

Four measurements, each on the same texts for every setting:

- passkey: share of five-digit numbers, hidden at several depths of a prompt, that are told when
  asked for after the prompt was evicted down to a share of its length. The question is part of
  the prompt, so what goes is chosen in its light.
- recall: share of facts from the first turn of a conversation that are told turns later. Here the
  cache is kept within the budget while the conversation is read, before the question is known;
  openvino-genai evicts after the prompt.
- agreement: share of the --new-tokens greedy tokens before the first that differs from the full
  cache's, by prompt of prose: how many there are tells how far the mean may be off.
- stream: perplexity of prose that runs through a cache of --stream-budget tokens and is evicted as
  it is read, inside the model's context and beyond it.

A setting that the file has already is not measured again, so a long run can be made in parts
(--only, --match). pagewheel runs in its default precision with a u8 cache; openvino-genai takes
part in all but stream with f32 inference and an f16 cache, where its rotation runs, and with
--exact pagewheel does as well (into another file). It reads pagewheel's converted folder, so its
weights are exact too.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import pagewheel
from benchmarks.command_line import model_folder, parser_with_model
from benchmarks.eviction_prompts import Question, conversations, passkeys
from benchmarks.eviction_report import SHARES, draw, table
from benchmarks.prompts import real_text

START, RECENT, BLOCK = 32, 32, 32
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
        # A decision leaves a block less than the budget: below this nothing would be chosen.
        return max(START + RECENT + 2 * BLOCK, round(prompt * self.share / BLOCK) * BLOCK)


@dataclass(frozen=True)
class Run:
    """What holds for all settings. `exact`: pagewheel runs as openvino-genai does, with f32
    inference and an f16 cache. `window`: the prompt's last queries that pagewheel observes."""

    threads: int = 2
    exact: bool = False
    window: int = 8


def eviction(
    setting: Setting, budget: int, run: Run, **options: Any
) -> pagewheel.CacheEvictionConfig:
    return pagewheel.CacheEvictionConfig(
        START,
        RECENT,
        budget,
        apply_rotation=setting.rotation,
        snapkv_window_size=run.window,
        policy=setting.policy,
        granularity=setting.granularity,
        kvcrush_config=pagewheel.KVCrushConfig(max(1, (budget - START - RECENT) // BLOCK // 4)),
        **options,
    )


def pagewheel_pipeline(
    folder: Path, config: pagewheel.CacheEvictionConfig | None, run: Run
) -> pagewheel.ContinuousBatchingPipeline:
    scheduler = pagewheel.SchedulerConfig()
    if config is not None:
        scheduler.use_cache_eviction = True
        scheduler.cache_eviction_config = config
    exact = {"KV_CACHE_PRECISION": "f16", "INFERENCE_PRECISION_HINT": "f32"}
    properties = exact if run.exact else {"KV_CACHE_PRECISION": "u8"}
    return pagewheel.ContinuousBatchingPipeline(
        folder,
        scheduler,
        "CPU",
        {**properties, "attention_backend": "native", "INFERENCE_NUM_THREADS": run.threads},
    )


def pagewheel_generator(
    folder: Path, setting: Setting, prompt_length: int, run: Run, while_reading: bool
) -> Generate:
    config = None
    if setting.share < 1:
        budget = setting.budget(prompt_length)
        config = eviction(setting, budget, run, evict_during_prefill=while_reading)
    pipeline = pagewheel_pipeline(folder, config, run)

    def generate(prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
        options = pagewheel.GenerationConfig(max_new_tokens=new_tokens, ignore_eos=True)
        results = pipeline.generate(prompts, [options] * len(prompts))
        return [result.m_generation_ids[0] for result in results]

    return generate


def genai_generator(
    folder: Path, setting: Setting, prompt_length: int, run: Run, while_reading: bool
) -> Generate:
    del while_reading  # it always reads a prompt first
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
    properties = {
        "INFERENCE_PRECISION_HINT": "f32",
        "KV_CACHE_PRECISION": "f16",
        "INFERENCE_NUM_THREADS": run.threads,
    }
    pipeline = genai.ContinuousBatchingPipeline(str(folder), scheduler, "CPU", properties)

    def generate(prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
        options = genai.GenerationConfig(max_new_tokens=new_tokens, ignore_eos=True)
        inputs = [ov.Tensor(np.array([prompt], np.int64)) for prompt in prompts]
        results = pipeline.generate(inputs, [options] * len(prompts))
        return [list(result.m_generation_ids[0]) for result in results]

    return generate


GENERATORS = {"pagewheel": pagewheel_generator, "openvino-genai": genai_generator}


# ---- The four measurements


def stream(
    folder: Path, setting: Setting, ids: list[int], arguments: argparse.Namespace, run: Run
) -> Any:
    """Perplexity by the position that a token has in the text."""
    context = arguments.context
    config = None
    if setting.share < 1:
        config = eviction(setting, arguments.stream_budget, run, evict_during_prefill=True)
        ids = ids[: context + arguments.beyond]
    else:
        ids = ids[: context - 1]
    pipeline = pagewheel_pipeline(folder, config, run)
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


def told(generate: Generate, tokenizer: pagewheel.Tokenizer, questions: list[Question]) -> float:
    answers = [tokenizer.decode(ids) for ids in generate([q.prompt for q in questions], 8)]
    pairs = zip(questions, answers, strict=True)
    return sum(q.answer.lower() in answer.lower() for q, answer in pairs) / len(questions)


def in_parts(generate: Generate, prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
    """16 prompts at once, which any engine's cache has room for."""
    parts = [prompts[i : i + 16] for i in range(0, len(prompts), 16)]
    return [ids for part in parts for ids in generate(part, new_tokens)]


def common_share(a: Sequence[int], b: Sequence[int]) -> float:
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        if x != y:
            return i / len(a)
    return 1.0


# ---- What is measured, and the report


def settings(engines: Iterable[str], policies: Sequence[str]) -> list[Setting]:
    """What tells most first."""
    result = [Setting(engine, "full", 1) for engine in engines]
    for rotation, share in ((True, 0.5), (True, 0.25), (True, 0.75), (False, 0.5)):
        if "pagewheel" in engines:
            for policy in policies:
                for granularity in ("block",) if policy == "kvcrush" else ("block", "token"):
                    result.append(Setting("pagewheel", policy, share, granularity, rotation))
        if "openvino-genai" in engines:
            if rotation:
                result.append(Setting("openvino-genai", "norm_sum", share))
            else:
                for policy in ("sum", "norm_sum"):
                    for any_share in SHARES:
                        result.append(Setting("openvino-genai", policy, any_share, rotation=False))
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


def measure(folder: Path, chosen: list[Setting], arguments: argparse.Namespace) -> Record:
    """What the record lacks, setting by setting."""
    tokenizer = pagewheel.Tokenizer(folder)

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text).input_ids.data[0].tolist()

    ids = encode(real_text(None))
    length = arguments.prompt
    questions = {
        "passkey": passkeys(encode, ids, length, arguments.passkeys),
        "recall": conversations(encode, ids, length, arguments.conversations),
    }
    begins = np.random.default_rng(3).integers(0, len(ids) - length, arguments.prose)
    prose = [ids[begin : begin + length] for begin in begins]
    record = Record(arguments.out)
    run = Run(arguments.threads, arguments.exact, arguments.window)
    references: dict[str, list[list[int]]] = {}

    def generator(setting: Setting, while_reading: bool = False) -> Generate:
        make = GENERATORS[setting.engine]
        return make(folder, setting, length, run, while_reading)

    def agreement(setting: Setting) -> list[float]:
        if setting.engine not in references:
            full = generator(Setting(setting.engine, "full", 1))
            references[setting.engine] = in_parts(full, prose, arguments.new_tokens)
        got = in_parts(generator(setting), prose, arguments.new_tokens)
        pairs = zip(references[setting.engine], got, strict=True)
        return [common_share(a, b) for a, b in pairs]

    functions: dict[str, Callable[[Setting], Any]] = {
        "passkey": lambda s: told(generator(s), tokenizer, questions["passkey"]),
        "recall": lambda s: told(generator(s, True), tokenizer, questions["recall"]),
        "agreement": agreement,
        "stream": lambda s: stream(folder, s, ids, arguments, run),
    }
    for setting in chosen:
        for name in arguments.only:
            streams = setting.engine == "pagewheel" and setting.share in (0.5, 1)
            if name == "stream" and not streams:
                continue
            try:
                record.measure(name, setting, partial(functions[name], setting))
            except RuntimeError as error:
                if setting.engine == "pagewheel":
                    raise
                print(name, setting.key(), "fails:", str(error).splitlines()[-1], flush=True)
    return record


def main() -> None:
    """Measure what the record lacks; then the report, if asked."""
    parser = parser_with_model(__doc__)
    names = ["passkey", "recall", "agreement", "stream"]
    parser.add_argument("--out", type=Path, required=True, help="JSON; continued if it exists")
    parser.add_argument("--only", nargs="*", default=names, choices=names)
    parser.add_argument("--engines", nargs="+", default=list(GENERATORS), choices=GENERATORS)
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), choices=POLICIES)
    parser.add_argument("--match", default="", help="regular expression for settings' names")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--exact", action="store_true", help="pagewheel too with f32 inference and an f16 cache"
    )
    parser.add_argument("--window", type=int, default=8, help="last queries of a prompt observed")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of a prompt")
    parser.add_argument("--passkeys", type=int, default=20)
    parser.add_argument("--conversations", type=int, default=12)
    parser.add_argument("--prose", type=int, default=64, help="prompts of agreement")
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--context", type=int, default=8192, help="the model's")
    parser.add_argument("--beyond", type=int, default=2048, help="tokens after the context")
    parser.add_argument("--stream-budget", type=int, default=672)
    parser.add_argument("--report", type=Path, help="Markdown table")
    parser.add_argument("--chart", type=Path, help="PNG")
    arguments = parser.parse_args()

    folder = model_folder(arguments.model)
    chosen = [
        setting
        for setting in settings(arguments.engines, arguments.policies)
        if re.search(arguments.match, setting.key())
    ]
    record = measure(folder, chosen, arguments)
    if arguments.report:
        arguments.report.write_text(table(record.results))
    if arguments.chart:
        draw(record.results, arguments.chart)


if __name__ == "__main__":
    main()
