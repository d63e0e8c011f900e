"""The tables of benchmarks/structured_output.md: what is refused, and where masks are stricter.

`python tests/python/grammar/schema_tables.py FOLDER` writes them, with the tokenizer of a folder.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path

from schemas import real_schemas
from suite_run import STRICTER, SuiteResult, run_suite

import pagewheel
from pagewheel import StructuredOutputConfig as Config

PAGE = Path(__file__).parents[3] / "benchmarks" / "structured_output.md"
BEGIN, END = "<!-- tables: schema_tables.py -->\n", "<!-- end of tables -->\n"


def reason(error: str) -> str:
    """What is the same for all schemas that are refused for it."""
    error = error.removeprefix("JSON schema: ")
    for begin, short in {
        "Resource ": "`$ref` to another document",
        "Failed to resolve": "`$ref` to another document",
        "Pointer ": "`$ref` to what is not there",
        "Invalid URI": "an invalid URI",
        "oneOf ": "`oneOf` whose options may overlap",
        "circular references": "a circle of `$ref` with keywords beside",
        "patternProperty regexes": "`patternProperties` that may overlap",
        "regex parse error": "a regex that Rust's crate does not read, such as look-around",
        "min/maxProperties": "`minProperties`, `maxProperties` beside optional properties",
        "Unsatisfiable": "nothing that the schema allows",
        "a JSON schema of": "more than 4 MB",
    }.items():
        if error.startswith(begin):
            return short
    keywords = re.match(r"keywords that are not supported: (\[.*?\])", error)
    if keywords:
        return "keyword " + ", ".join(f"`{key}`" for key in json.loads(keywords[1]))
    unknown = re.match(r"Unknown format: ([^;]*)", error)
    return f"format `{unknown[1]}`" if unknown else "other"


def reasons(errors: list[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for error in errors:
        short = reason(error)
        parts = short.split(" ", 1)[1].split(", ") if short.startswith("keyword ") else [short]
        counts.update(part if part == short else f"keyword {part}" for part in parts)
    return counts


def tables(result: SuiteResult, tokenizer: pagewheel.Tokenizer) -> str:
    schemas = real_schemas()
    errors = []
    for text in schemas.values():
        try:
            config = Config(json_schema=text, allow_additional_properties=True)
            pagewheel.Grammar(config, tokenizer)
        except ValueError as error:
            errors.append(str(error))
    counts = result.counts
    lines = [
        f"Of the suite's {counts['schemas']} schemas {counts['compiled']} compile, and of "
        f"{len(schemas)} real ones {len(schemas) - len(errors)}. A schema may be refused for "
        "several keywords, each of which is counted.",
        "",
        "| refused for | of the suite | of the real ones |",
        "|---|---|---|",
    ]
    ours, real = reasons(list(result.refused.values())), reasons(errors)
    for name in sorted(ours | real, key=lambda name: (-real[name], -ours[name], name)):
        lines.append(f"| {name} | {ours[name]} | {real[name]} |")
    lines += [
        "",
        f"Of the {counts['invalid']} invalid instances of the schemas that compile, "
        f"{len(result.accepted)} are accepted; of the {counts['valid']} valid ones, "
        f"{len(result.stricter)} are not:",
        "",
        "| valid, but not accepted | why |",
        "|---|---|",
    ]
    lines += [f"| {name} | {STRICTER.get(name, '?')} |" for name in sorted(result.stricter)]
    return "\n".join(lines) + "\n"


def in_page() -> str:
    return PAGE.read_text().split(BEGIN)[1].split(END)[0]


if __name__ == "__main__":
    tokenizer = pagewheel.Tokenizer(sys.argv[1])
    text = PAGE.read_text()
    made = tables(run_suite(tokenizer), tokenizer)
    PAGE.write_text(text.split(BEGIN)[0] + BEGIN + made + END + text.split(END)[1])
