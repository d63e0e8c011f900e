"""Turns exceptions into one line on standard error and an exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from pagewheel.errors import InvalidArgumentError

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def one_line(error: BaseException) -> str:
    """An error's message without line breaks, or its type where it has none."""
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def ended_as_interrupted() -> Iterator[None]:
    """Makes of SIGTERM and a closed terminal what Ctrl-C is: what was begun is cleaned up."""

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
def wrong_usage(*options: str) -> Iterator[None]:
    """Around what checks values that were given: of these options, or of those the message names.

    Raises typer.BadParameter for an InvalidArgumentError.
    """
    try:
        yield
    except InvalidArgumentError as error:
        hint = " / ".join(options) or None
        raise typer.BadParameter(one_line(error), param_hint=hint) from error


@contextmanager
def failures(*, debug: bool) -> Iterator[None]:
    """Around a command's body. With `debug` every exception passes through untouched."""
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
        raise typer.Exit(EXIT_FAILED) from None
