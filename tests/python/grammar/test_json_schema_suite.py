"""JSON Schema's own test suite: what masks accept, what is refused, and the docs' table of both."""

from __future__ import annotations

import pytest
from schema_tables import in_page, tables
from suite_run import STRICTER, SuiteResult, run_suite

import pagewheel


@pytest.fixture(scope="module")
def result(real_tokenizer: pagewheel.Tokenizer) -> SuiteResult:
    return run_suite(real_tokenizer)


def test_no_invalid_instance_is_accepted(result: SuiteResult) -> None:
    assert result.counts["invalid"] > 200
    assert result.accepted == []


def test_valid_instances_are_accepted_but_for_those_listed(result: SuiteResult) -> None:
    assert result.counts["valid"] > 300
    assert sorted(result.stricter) == sorted(STRICTER)


def test_what_is_refused_says_why(result: SuiteResult) -> None:
    assert result.counts["schemas"] == result.counts["compiled"] + len(result.refused)
    assert all("JSON schema" in error for error in result.refused.values())


def test_the_table_in_the_docs_is_current(
    result: SuiteResult, smollm2_tokenizer: pagewheel.Tokenizer
) -> None:
    # What compiles is the same for every tokenizer, but for the time that it takes.
    assert in_page() == tables(result, smollm2_tokenizer)
