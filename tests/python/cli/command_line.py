"""Runs the command line: as a process, or in this one."""

from __future__ import annotations

import subprocess
import sys

from typer.testing import CliRunner

from pagewheel.cli.app import app


def run(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from pagewheel.cli import main; main()", *arguments]
    return subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=300, encoding="utf-8"
    )


def invoke(*arguments: str):  # type: ignore[no-untyped-def]
    return CliRunner().invoke(app, list(arguments))
