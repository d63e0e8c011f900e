"""What a model or a remote server says does not command the terminal."""

from __future__ import annotations

import io
import sys

import pytest

from pagewheel.cli.chat import Printer


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("out", "shown"),
    [(Terminal(), "a\tb\n]0;titled"), (io.StringIO(), "a\tb\n\x1b]0;title\x07\x9bd")],
)
def test_control_characters_reach_files_and_no_terminal(
    monkeypatch: pytest.MonkeyPatch, out: io.StringIO, shown: str
) -> None:
    monkeypatch.setattr(sys, "stdout", out)
    printer = Printer()
    printer("a\tb\n\x1b]0;title\x07\x9bd")
    assert out.getvalue() == shown
    assert printer.text == "a\tb\n\x1b]0;title\x07\x9bd"
