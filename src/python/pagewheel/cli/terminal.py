"""What commands share: texts that come in, and the line and exit code that an error becomes."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from pagewheel.errors import InvalidArgumentError
from pagewheel.options import one_line

EXIT_FAILED = 1
EXIT_WRONG_USAGE = 2
EXIT_INTERRUPTED = 130


@contextmanager
def ended_as_interrupted() -> Iterator[None]:
    """Treats SIGTERM and a closed terminal as Ctrl-C, so that what was begun is cleaned up."""

    def interrupt(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    # nohup has SIGHUP ignored, and means it.
    ends = [
        each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) != signal.SIG_IGN
    ]
    before = {each: signal.signal(each, interrupt) for each in ends}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def failures(*, debug: bool) -> Iterator[None]:
    """Wraps a command's body. With `debug` every exception passes through untouched."""
    if debug:
        yield
        return
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except BrokenPipeError:
        # The reader has left (`| head`): nothing more may be written, at exit neither.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(EXIT_FAILED) from None
    except Exception as error:
        typer.echo(f"error: {one_line(error)}", err=True)
        is_usage = (
            isinstance(error, InvalidArgumentError) and error.code == InvalidArgumentError.code
        )
        raise typer.Exit(EXIT_WRONG_USAGE if is_usage else EXIT_FAILED) from None


def show_any_path() -> None:
    """Lets a path that is not UTF-8 be printed as the bytes that it is."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")


def prompt_text(prompt: str) -> str:
    """The prompt, or standard input's text for '-'. Raises UnicodeError where it is not UTF-8."""
    if prompt != "-":
        check_text("the prompt", prompt)
        return prompt
    try:
        text = sys.stdin.read()
    except UnicodeDecodeError:
        raise _not_utf8("standard input") from None
    check_text("standard input", text)
    return text


def check_text(what: str, text: str) -> None:
    """Raises UnicodeError for bytes that Python could not read and keeps as surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _not_utf8(what) from None


def _not_utf8(what: str) -> UnicodeError:
    return UnicodeError(f"{what} is not UTF-8")
