"""JSON Schema's own test suite, token by token."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from schemas import in_schema_order, suite

import pagewheel
from pagewheel import StructuredOutputConfig as Config

# Valid instances that are not accepted, and why.
STRICTER: dict[str, str] = json.loads(
    (Path(__file__).parent / "stricter_than_the_suite.json").read_text()
)


@dataclass
class SuiteResult:
    counts: Counter[str] = field(default_factory=Counter)
    refused: dict[str, str] = field(default_factory=dict)  # errors by schema
    accepted: list[str] = field(default_factory=list)  # though they are invalid
    stricter: list[str] = field(default_factory=list)  # valid, not accepted


def accepted_by_masks(matcher: pagewheel.GrammarMatcher, tokens: list[int]) -> bool:
    for token in tokens:
        mask = matcher.compute_mask()
        is_allowed = bool(mask[token // 32] >> (token % 32) & 1)
        # Where a text is forced the mask has one token; others with its bytes are accepted too.
        if not is_allowed and not matcher.jump_forward_tokens():
            return False
        if not matcher.accept(token):
            return False
    return matcher.is_accepting


def tokens_of(tokenizer: pagewheel.Tokenizer, text: str) -> list[int]:
    ids = tokenizer.encode(text, add_special_tokens=False).input_ids.data
    return [int(token) for token in ids.reshape(-1)]


def specified(schema: str) -> Config:
    """As JSON Schema specifies it: additional properties may come where none are mentioned."""
    return Config(json_schema=schema, allow_additional_properties=True)


def run_suite(tokenizer: pagewheel.Tokenizer) -> SuiteResult:
    result = SuiteResult()
    for case in suite():
        result.counts["schemas"] += 1
        name = f"{case.keyword}: {case.description}"
        try:
            grammar = pagewheel.Grammar(specified(json.dumps(case.schema)), tokenizer)
        except ValueError as error:
            result.refused[name] = str(error)
            continue
        result.counts["compiled"] += 1
        for description, value, is_valid in case.instances:
            result.counts["valid" if is_valid else "invalid"] += 1
            ordered = in_schema_order(value, case.schema, case.schema)
            text = json.dumps(ordered, ensure_ascii=False)
            if accepted_by_masks(grammar.matcher(), tokens_of(tokenizer, text)) != is_valid:
                (result.stricter if is_valid else result.accepted).append(f"{name}: {description}")
    return result
