"""The options of `pagewheel bench-serve`, in groups."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer


@dataclass(frozen=True)
class TargetOptions:
    """Which server, and how it is asked."""

    url: Annotated[str, typer.Option(help="Where the server is; /v1 may be left out.")] = (
        "http://127.0.0.1:8000"
    )
    api_key: Annotated[
        str, typer.Option(envvar="OPENAI_API_KEY", help="The environment is not seen by others.")
    ] = ""
    model: Annotated[str, typer.Option(help="By default the first one that the server names.")] = ""
    api: Annotated[str, typer.Option(help="chat or completions.")] = "chat"
    fields: Annotated[
        list[str] | None,
        typer.Option(
            "--field",
            metavar="KEY=VALUE",
            help="In each request's body, e.g. ignore_eos=true; repeat it.",
        ),
    ] = None
    timeout: Annotated[
        str, typer.Option(metavar="TIME", help="Of a request; then it is an error.")
    ] = "10m"


@dataclass(frozen=True)
class WorkloadOptions:
    """What is asked."""

    prompts: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="A prompt per line; as .jsonl texts, prompts or messages. Else random words.",
        ),
    ] = None
    prompt_tokens: Annotated[
        int, typer.Option(min=1, help="Random words of a question, about.")
    ] = 128
    spread: Annotated[
        float, typer.Option(min=0, max=1, help="Lengths vary by this share, up and down.")
    ] = 0.0
    questions: Annotated[
        int, typer.Option(min=1, help="Of a conversation; each is sent with all that was said.")
    ] = 1
    think: Annotated[
        str, typer.Option(metavar="TIME", help="Between an answer and the next question.")
    ] = "0"
    shared_tokens: Annotated[
        int, typer.Option(min=0, help="Words of a system message that conversations share.")
    ] = 0
    num_shared: Annotated[int, typer.Option(min=1, help="Different ones of these.")] = 1
    max_tokens: Annotated[int, typer.Option(min=1, help="Of an answer.")] = 64
    seed: Annotated[int, typer.Option(help="Of prompts and arrivals.")] = 0


@dataclass(frozen=True)
class LoadOptions:
    """How much of it at a time."""

    rates: Annotated[
        list[float] | None,
        typer.Option(
            "--rate",
            metavar="PER_SECOND",
            help="Conversations begin at this rate, as a Poisson process; repeat it for more "
            "loads.",
        ),
    ] = None
    concurrencies: Annotated[
        list[int] | None,
        typer.Option(
            "--concurrency",
            min=1,
            metavar="COUNT",
            help="So many at once, each followed by the next; repeat it for more loads.",
        ),
    ] = None
    requests: Annotated[int, typer.Option(min=1, help="Conversations of each load.")] = 32
    warm_up: Annotated[int, typer.Option(min=0, help="Conversations before the first load.")] = 1


@dataclass(frozen=True)
class ResultOptions:
    """What is made of the answers."""

    goals: Annotated[
        list[str] | None,
        typer.Option(
            "--goal",
            metavar="NAME=TIME",
            help="For goodput: ttft=500ms, tpot=50ms (per token) or e2e=10s; repeat it.",
        ),
    ] = None
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A JSON file.")] = None
    chart: Annotated[Path | None, typer.Option("--chart", help="An SVG file.")] = None
