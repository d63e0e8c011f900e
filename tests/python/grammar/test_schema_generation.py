"""A sample of benchmarks/schema_generation.py: what a model finishes under a schema is valid."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.schema_generation import (
    Schema,
    make_pipeline,
    package_schemas,
    run,
    suite_schemas,
)


@pytest.mark.parametrize(
    ("schemas", "every", "least"),
    [(suite_schemas, 16, 6), (package_schemas, 24, 4)],
    ids=["suite", "packages"],
)
def test_every_finished_text_is_valid(
    schemas: Callable[[], list[Schema]], every: int, least: int, smollm2_folder: Path
) -> None:
    sample = schemas()[::every]
    result = run(make_pipeline(smollm2_folder), sample, seeds=1, more=2, max_new_tokens=150)
    assert result.listed == []
    assert result.failed == []
    assert len(result.finished) >= least
    assert len(result.refused) < len(sample)
