"""A grammar that was refused is not compiled again at once."""

from __future__ import annotations

import pytest

from pagewheel import StructuredOutputConfig
from pagewheel.errors import InvalidArgumentError
from pagewheel.serve.models.engine import RefusedGrammars


def schema(text: str) -> StructuredOutputConfig:
    part = StructuredOutputConfig.JSONSchema(text)
    return StructuredOutputConfig(compound_grammar=part)


def test_the_same_grammar_is_refused_with_the_same_words() -> None:
    refused = RefusedGrammars()
    refused.add(schema('{"type": "none"}'), InvalidArgumentError("no such type"))
    with pytest.raises(ValueError, match="no such type"):
        refused.check(schema('{"type": "none"}'))
    refused.check(schema('{"type": "object"}'))


def test_a_refusal_is_forgotten() -> None:
    short = RefusedGrammars(seconds=0)
    short.add(schema("{}"), InvalidArgumentError("no"))
    short.check(schema("{}"))
    small = RefusedGrammars(most=1)
    small.add(schema("{}"), InvalidArgumentError("no"))
    small.add(schema("[]"), InvalidArgumentError("no"))
    small.check(schema("{}"))


def test_a_busy_compiler_says_nothing_of_the_grammar() -> None:
    refused = RefusedGrammars()
    refused.add(schema("{}"), InvalidArgumentError("not now", code="grammar_busy"))
    refused.check(schema("{}"))
