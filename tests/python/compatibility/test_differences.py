"""docs/differences.md lists what a comparison of the two packages finds."""

from __future__ import annotations

from benchmarks.compatibility.compare import PAGE, differences, written


def test_the_list_is_what_the_comparison_finds() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert written(page) == page


def test_something_is_compared() -> None:
    assert 0 < len(list(differences())) < 120
