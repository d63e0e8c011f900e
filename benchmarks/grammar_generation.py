"""What a grammar costs while text is generated: tokens per second with a JSON schema and without.

    python -m benchmarks.grammar_generation MODEL_FOLDER [--module openvino_genai]

Every request generates the same number of tokens, so that its time alone differs. With a schema of
records the grammar forces the names of properties; with one of strings it forces next to nothing.
Ways alternate, and the median of the rounds is shown. The first round warms up.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import time
from typing import Any

PROMPT = "List the people of a small town, with what they do and like."
RECORD = {
    "type": "object",
    "properties": {
        "full_name": {"type": "string", "maxLength": 30},
        "age_in_years": {"type": "integer", "minimum": 0, "maximum": 150},
        "occupation": {"type": "string", "maxLength": 30},
        "favourite_colour": {"enum": ["red", "green", "blue", "yellow"]},
        "is_employed": {"type": "boolean"},
    },
    "required": ["full_name", "age_in_years", "occupation", "favourite_colour", "is_employed"],
    "additionalProperties": False,
}
# Long enough for any number of tokens that is asked.
SCHEMAS: dict[str, Any] = {
    "records": {"type": "array", "items": RECORD, "minItems": 100},
    "strings": {"type": "array", "items": {"type": "string"}, "minItems": 100},
}


def config(module: Any, schema: str | None, tokens: int) -> Any:
    made = module.GenerationConfig()
    made.max_new_tokens = tokens
    made.apply_chat_template = True
    if schema is None:
        made.ignore_eos = True
    else:
        made.structured_output_config = module.StructuredOutputConfig(
            json_schema=json.dumps(SCHEMAS[schema])
        )
    return made


def seconds(pipeline: Any, config: Any, requests: int) -> float:
    begin = time.perf_counter()
    pipeline.generate([PROMPT] * requests, [config] * requests)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="model folder")
    parser.add_argument("--module", default="pagewheel", help="or openvino_genai")
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 8, 16])
    parser.add_argument("--schemas", nargs="+", default=list(SCHEMAS), choices=list(SCHEMAS))
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()

    module = importlib.import_module(arguments.module)
    scheduler = module.SchedulerConfig()
    scheduler.cache_size = 1
    pipeline = module.ContinuousBatchingPipeline(arguments.model, scheduler, "CPU")
    configs = {name: config(module, name, arguments.tokens) for name in (None, *arguments.schemas)}
    print(f"{arguments.module}: tokens/s")
    print("requests      none" + "".join(f"{name:>18}" for name in arguments.schemas))
    for requests in arguments.requests:
        times: dict[str | None, list[float]] = {name: [] for name in configs}
        for _ in range(arguments.rounds + 1):
            for name, each in configs.items():
                times[name].append(seconds(pipeline, each, requests))
        speeds = {
            name: requests * arguments.tokens / statistics.median(all_times[1:])
            for name, all_times in times.items()
        }
        shown = "".join(
            f"{speeds[name]:10.1f} ({speeds[name] / speeds[None]:.3f})"
            for name in arguments.schemas
        )
        print(f"{requests:8}{speeds[None]:10.1f}{shown}")


if __name__ == "__main__":
    main()
