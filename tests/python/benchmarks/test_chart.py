"""Charts and tables of a record."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.chart import peer_colours, save_chart
from benchmarks.report import number


def test_a_chart_of_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        save_chart({"scenarios": [], "peers": []}, tmp_path / "x.png")


def test_chart_colours_do_not_depend_on_who_else_is_there() -> None:
    assert peer_colours(["x", "pagewheel"])["pagewheel"] == peer_colours(["pagewheel"])["pagewheel"]
    assert len(set(peer_colours(["pagewheel", "openvino-genai", "x", "y"]).values())) == 4


def test_numbers_are_short() -> None:
    shown = [number(value) for value in (12345.6, 123.45, 12.345, 1.2345, 0.12345)]
    assert shown == ["12,346", "123", "12.3", "1.23", "0.123"]
