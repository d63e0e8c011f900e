"""The shape of an answer, as it is given on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pagewheel._pagewheel import StructuredOutputConfig
from pagewheel.cli.options import check_text

JsonSchema = Annotated[
    Path | None,
    typer.Option(
        "--json-schema",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="The answer is JSON of the schema in this file.",
        rich_help_panel="Structured output",
    ),
]
Regex = Annotated[
    str | None,
    typer.Option(
        "--regex",
        help="This regular expression (Rust's syntax) matches the whole answer.",
        rich_help_panel="Structured output",
    ),
]
Choice = Annotated[
    list[str] | None,
    typer.Option(
        "--choice",
        metavar="TEXT",
        help="The answer is one of these texts; repeat it.",
        rich_help_panel="Structured output",
    ),
]


def structure(
    json_schema: Path | None, regex: str | None, choices: Sequence[str] | None
) -> StructuredOutputConfig | None:
    """What was asked for, if anything was. Raises typer.BadParameter for more than one."""
    given = {"--json-schema": json_schema, "--regex": regex, "--choice": choices or None}
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise typer.BadParameter(f"{' and '.join(names)} are given; allowed is one of them")
    if json_schema is not None:
        return StructuredOutputConfig(json_schema=_text_of(json_schema))
    if regex is not None:
        check_text("--regex", regex)
        return StructuredOutputConfig(regex=regex)
    if choices:
        for text in choices:
            check_text("--choice", text)
        return StructuredOutputConfig(compound_grammar=StructuredOutputConfig.Choice(choices))
    return None


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise UnicodeError(f"{path} is not UTF-8") from None
