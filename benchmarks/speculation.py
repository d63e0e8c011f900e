"""What speculative decoding saves: the same requests with drafts and without, in turns.

    python -m benchmarks.speculation MODEL_FOLDER --rounds 5 --batch 1 --batch 4 [--genai]

Tokens/s of whole calls, prompts included; medians, and the median of the ratio within a round.
`--genai` measures openvino-genai without and with its prompt lookup (5 tokens, 3-grams) beside it,
`--draft` a draft model in place of drafts by repetition, and `--llama-cpp FILE.gguf` llama.cpp (the
package xllamacpp) without and with drafts of n-grams.
The answers of one request alone must be the same with drafts and without.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pagewheel
from benchmarks.machine import describe

_CODE = """class Queue:
    def __init__(self, size):
        self.size = size
        self.items = []

    def put(self, item):
        if len(self.items) == self.size:
            raise OverflowError("the queue is full")
        self.items.append(item)

    def take(self):
        if not self.items:
            raise LookupError("the queue is empty")
        return self.items.pop(0)
"""
_PROSE = (
    "The mill stands where the river leaves the hills. Its wheel has turned for two hundred "
    "years, and the miller's family has lived beside it for as long. In spring the water is high "
    "and the stones run day and night; in summer the wheel rests, and children swim in the pond. "
    "Farmers of the valley bring wheat and rye, and take flour home on carts drawn by oxen."
)
_CALL = {
    "type": "object",
    "properties": {
        "name": {"enum": ["get_weather"]},
        "arguments": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 20},
                "days": {"type": "integer"},
            },
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
    "required": ["name", "arguments"],
    "additionalProperties": False,
}
_PERSON = {
    "type": "object",
    "properties": {
        "first_name": {"type": "string", "maxLength": 20},
        "profession": {"type": "string", "maxLength": 30},
        "years_of_experience": {"type": "integer"},
        "is_available": {"type": "boolean"},
    },
    "required": ["first_name", "profession", "years_of_experience", "is_available"],
    "additionalProperties": False,
}
_TOPICS = (
    *("bread", "rivers", "the moon", "bicycles", "tea", "bees", "maps", "violins"),
    *("snow", "printing", "islands", "clocks", "cats", "bridges", "glass", "oak trees"),
)
TASKS: Mapping[str, Callable[[str], str]] = {
    "quote": lambda topic: (
        f"Repeat the following text about {topic} exactly, word for word.\n\n{_PROSE}"
    ),
    "code edit": lambda topic: (
        f"Here is code about {topic}:\n```python\n{_CODE}```\n"
        "Rename the method take to get, and write the whole code again, unchanged otherwise."
    ),
    "json": lambda topic: (
        f"Write JSON: a list of five people who know about {topic}, each with first_name, "
        "profession, years_of_experience and is_available."
    ),
    "tool calls": lambda topic: (
        f"A traveller interested in {topic} asks for the weather. So far the agent has called\n"
        + "".join(
            json.dumps({"name": "get_weather", "arguments": {"city": city, "days": 3}}) + "\n"
            for city in ("Paris", "Rome", "Vienna", "Prague")
        )
        + "Write the calls for London, Berlin, Madrid, Lisbon, Oslo and Helsinki, as a JSON list."
    ),
    "chat": lambda topic: f"Tell me something interesting about {topic}, and why you like it.",
}
# Of tasks whose answers are JSON.
SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "json": {"type": "array", "items": _PERSON, "minItems": 4},
    "tool calls": {"type": "array", "items": _CALL, "minItems": 5},
}
# One call for a task's prompts: its texts, and how many tokens they have.
Engine = Callable[[str, Sequence[str]], tuple[list[str], int]]


def pagewheel_engine(
    folder: Path, speculation: str, tokens: int, draft: Path | None = None
) -> Engine:
    scheduler = pagewheel.SchedulerConfig()
    scheduler.speculation = speculation
    properties = {"draft_model": pagewheel.draft_model(draft)} if draft else {}
    pipeline = pagewheel.LLMPipeline(folder, "CPU", properties, scheduler_config=scheduler)
    return _engine(pagewheel, pipeline, max_new_tokens=tokens)


def genai_engine(folder: Path, lookup: bool, tokens: int) -> Engine:
    import openvino_genai

    drafts = {"num_assistant_tokens": 5, "max_ngram_size": 3} if lookup else {}
    pipeline = openvino_genai.LLMPipeline(folder, "CPU", prompt_lookup=lookup)
    return _engine(openvino_genai, pipeline, max_new_tokens=tokens, **drafts)


def llama_cpp_engine(gguf: Path, lookup: bool, tokens: int) -> Engine:
    """Its server's code in this process (xllamacpp), one request at a time, n-grams by default."""
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = str(gguf)
    settings.n_parallel = 1
    settings.n_ctx = 2048
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = os.cpu_count() or 1
    if lookup:
        kinds = xllamacpp.common_speculative_type
        settings.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
    server = xllamacpp.Server(settings)

    def generate(task: str, prompts: Sequence[str]) -> tuple[list[str], int]:
        texts, count = [], 0
        for prompt in prompts:
            asked = {
                "messages": [{"role": "user", "content": prompt}],
                "max_tokens": tokens,
                "temperature": 0,
                "ignore_eos": task not in SCHEMAS,
            }
            if task in SCHEMAS:
                schema = {"name": "answer", "schema": SCHEMAS[task]}
                asked["response_format"] = {"type": "json_schema", "json_schema": schema}
            answer = server.handle_chat_completions(asked)
            texts.append(answer["choices"][0]["message"]["content"])
            count += answer["usage"]["completion_tokens"]
        return texts, count

    return generate


def _engine(library: Any, pipeline: Any, **parameters: Any) -> Engine:
    configs = {}
    for task in TASKS:
        config = configs[task] = library.GenerationConfig(**parameters)
        if task in SCHEMAS:
            config.structured_output_config = library.StructuredOutputConfig(
                json_schema=json.dumps(SCHEMAS[task])
            )
        else:
            config.ignore_eos = True

    def generate(task: str, prompts: Sequence[str]) -> tuple[list[str], int]:
        results = pipeline.generate(list(prompts), configs[task])
        return list(results.texts), results.perf_metrics.get_num_generated_tokens()

    return generate


def measure(engine: Engine, task: str, prompts: Sequence[str]) -> tuple[list[str], float]:
    """The texts, and tokens/s."""
    begin = time.perf_counter()
    texts, count = engine(task, prompts)
    return texts, count / (time.perf_counter() - begin)


def run(engines: Mapping[str, Engine], tasks: Sequence[str], batch: int, rounds: int) -> None:
    names = list(engines)
    for task in tasks:
        rates: dict[str, list[float]] = {name: [] for name in names}
        for turn in range(rounds + 1):
            topics = (_TOPICS * -(-batch // len(_TOPICS)))[:batch]
            prompts = [TASKS[task](topic) for topic in topics]
            if batch == 1:
                prompts = [TASKS[task](_TOPICS[turn % len(_TOPICS)])]
            texts = {}
            for name in names if turn % 2 else reversed(names):
                texts[name], rate = measure(engines[name], task, prompts)
                if turn > 0:  # the first one warms up
                    rates[name].append(rate)
            drafted = [texts[name] for name in names if name in ("auto", "draft")]
            if batch == 1 and any(each != texts["off"] for each in drafted):
                raise SystemExit(f"{task}: drafts have changed the answer")
        line = [f"{task:11} {batch:3}"]
        for name in names:
            ratios = [each / base for each, base in zip(rates[name], rates["off"], strict=True)]
            median = statistics.median(rates[name])
            line.append(f"{name} {median:7.1f} ({statistics.median(ratios):.2f})")
        print("  ".join(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, action="append")
    parser.add_argument("--task", action="append", choices=list(TASKS))
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--genai", action="store_true")
    parser.add_argument("--llama-cpp", type=Path, metavar="GGUF", help="batch 1 only")
    given = parser.parse_args()
    engines = {each: pagewheel_engine(given.model, each, given.tokens) for each in ("off", "auto")}
    if given.draft:
        engines["draft"] = pagewheel_engine(given.model, "off", given.tokens, given.draft)
    if given.genai:
        engines["genai"] = genai_engine(given.model, False, given.tokens)
        engines["genai lookup"] = genai_engine(given.model, True, given.tokens)
    if given.llama_cpp:
        engines["llama.cpp"] = llama_cpp_engine(given.llama_cpp, False, given.tokens)
        engines["llama.cpp n-grams"] = llama_cpp_engine(given.llama_cpp, True, given.tokens)
    print(describe())
    print("tokens/s, and how many times as many as without drafts, by task and batch")
    for batch in given.batch or (1,):
        run(engines, given.task or list(TASKS), batch, given.rounds)


if __name__ == "__main__":
    main()
