"""Texts and OpenVINO's properties, as they are given on the command line."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

import typer

Property = bool | int | float | str


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


def _parse_value(text: str) -> Property:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise typer.BadParameter(
                f"numbers must fit 64 bits, got {text!r:.40}", param_hint="'--property' / '-p'"
            )
        return value
    return text


def parse_properties(items: Sequence[str]) -> dict[str, Property]:
    """From "KEY=VALUE"; values are true, false, numbers or text. Raises typer.BadParameter."""
    properties = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not (key and equals):
            raise typer.BadParameter(
                f"expected KEY=VALUE, got {item!r}", param_hint="'--property' / '-p'"
            )
        properties[key] = _parse_value(value)
    return properties
