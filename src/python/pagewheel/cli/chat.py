"""`pagewheel chat`: the loop of a conversation."""

from __future__ import annotations

import sys
from contextlib import suppress

import typer

from pagewheel.cli.answers import Answerer, Message
from pagewheel.cli.options import check_text
from pagewheel.cli.pipeline import Printer

_HELP = "/reset forgets the conversation, /quit leaves; Ctrl-C stops an answer"


class Chat:
    """Owns the history: every question in it has its answer, cut short or not."""

    def __init__(self, answerer: Answerer, system: str | None, stats: bool) -> None:
        self._answerer = answerer
        self._system = system
        self._stats = stats
        self.reset()

    def reset(self) -> None:
        """Forget everything but the system message."""
        self._history: list[Message] = []
        if self._system is not None:
            self._history.append({"role": "system", "content": self._system})

    def run(self) -> None:
        """Until /quit or end of input."""
        with suppress(ImportError):
            import readline  # noqa: F401 - gives input() line editing
        if sys.stdin.isatty():
            typer.echo(_HELP, err=True)
        while (line := self._read()) is not None:
            if line == "/quit":
                return
            if line == "/reset":
                self.reset()
            elif line.startswith("/"):
                typer.echo(_HELP, err=True)
            elif line:
                self._answer(line)

    @staticmethod
    def _read() -> str | None:
        """The next line, stripped; None at the end; empty after Ctrl-C."""
        try:
            line = input("> " if sys.stdin.isatty() else "").strip()
            check_text("the line", line)
            return line
        except UnicodeError:
            typer.echo("that line is not UTF-8", err=True)
            return ""
        except EOFError:
            if sys.stdin.isatty():
                typer.echo()
            return None
        except KeyboardInterrupt:
            typer.echo()
            return ""

    def _answer(self, question: str) -> None:
        self._history.append({"role": "user", "content": question})
        printer = Printer()
        times = None
        try:
            times = self._answerer.answer(self._history, printer)
        except KeyboardInterrupt:
            pass
        except BaseException:
            self._history.pop()
            raise
        typer.echo()
        self._history.append({"role": "assistant", "content": printer.text})
        if self._stats and times is not None:
            typer.echo(times, err=True)
