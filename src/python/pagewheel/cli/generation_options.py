"""Options for generating an answer: GenerationConfig's parameters, and structured output.

The parameters come from their table: one that is new there is an option here, too.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from pagewheel._pagewheel import (
    GenerationConfig,
    GenerationParameter,
    Grammar,
    LLMPipeline,
    StructuredOutputConfig,
    generation_parameters,
)
from pagewheel.cli.terminal import check_text
from pagewheel.options import keyword_parameter, option, with_options, wrong_usage
from pagewheel.parameters import apply_parameters


@dataclass(frozen=True)
class Sampling:
    """Generation parameters that were given; the others stay as the model's config has them."""

    given: dict[str, Any]

    def check(
        self,
        config: GenerationConfig,
        shape: StructuredOutputConfig | None,
        pipeline: LLMPipeline,
    ) -> None:
        """Changes the config. Raises typer.BadParameter for what does not fit."""
        with wrong_usage():
            apply_parameters(config, self.given)
            config.structured_output_config = shape
            config.validate()
            if shape is not None:
                Grammar(shape, pipeline.get_tokenizer())


# Options that are not called as their parameters.
_SPELLINGS = {
    "max_new_tokens": ("--max-new-tokens", "-n"),
    "do_sample": ("--do-sample/--greedy",),
    "rng_seed": ("--seed",),
}
# A command that prints one text has no use for these, or an option of its own (--raw).
_NOT_OFFERED = (
    *("echo", "logprobs", "num_return_sequences", "apply_chat_template"),
    *("priority", "timeout", "cache_salt", "cache_eviction", "bad_words_ids", "prediction"),
)
_TYPES: dict[str, Any] = {
    "bool": bool,
    "int": int,
    "int | None": int,
    "float": float,
    "float | None": float,
    "str": str,
    "set[int]": list[int],
    "set[str]": list[str],
    "dict[int, float]": list[str],
    "StopCriteria": str,
}


def spelling(parameter: GenerationParameter) -> str:
    """The option's name: "--top-p"."""
    names = _SPELLINGS.get(parameter.name, ("--" + parameter.name.replace("_", "-"),))
    return names[0].split("/")[0]


def offered_parameters(*, with_beams: bool = True) -> list[GenerationParameter]:
    """The parameters that commands have as options."""
    beams = next(each.section for each in generation_parameters() if each.name == "num_beams")
    return [
        each
        for each in generation_parameters()
        if each.name not in _NOT_OFFERED and (with_beams or each.section != beams)
    ]


def _option(parameter: GenerationParameter, shown_default: str | None) -> inspect.Parameter:
    sampling = next(each.section for each in generation_parameters() if each.name == "do_sample")
    form = " Written TOKEN=BIAS, once for each." if parameter.type == "dict[int, float]" else ""
    allowed = f"{form} Allowed: {parameter.allowed}." if parameter.allowed else form
    panel = parameter.section
    info = typer.Option(
        None,
        *_SPELLINGS.get(parameter.name, ()),
        show_default=shown_default or False,
        help=parameter.help + allowed,
        rich_help_panel=f"{panel} (each turns it on)" if panel == sampling else panel,
    )
    return keyword_parameter(parameter.name, info, _TYPES[parameter.type] | None)


def _biases(pairs: list[str]) -> dict[str, float]:
    """Parses "TOKEN=BIAS"."""
    biases = {}
    for pair in pairs:
        token, _, bias = pair.partition("=")
        try:
            biases[token] = float(bias)
        except ValueError:
            raise ValueError(f"{pair!r} is not TOKEN=BIAS, such as 50256=-10") from None
    return biases


def _checked(parameter: GenerationParameter, value: object) -> object:
    try:
        if parameter.type == "dict[int, float]" and isinstance(value, list):
            value = _biases(value)
        parameter.check(value)
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(str(error), param_hint=f"'{spelling(parameter)}'") from None
    return value


def generation_options(
    *, max_new_tokens: int, with_beams: bool = True
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes an option for each parameter, in place of a command's argument `sampling`.

    `max_new_tokens` is its default; all others are left as the model has them.
    """
    offered = offered_parameters(with_beams=with_beams)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**arguments: Any) -> None:
            given = {
                each.name: _checked(each, value)
                for each in offered
                if (value := arguments.pop(each.name)) not in (None, [])
            }
            if not given.keys() & {"max_new_tokens", "max_length"}:
                given["max_new_tokens"] = max_new_tokens
            command(**arguments, sampling=Sampling(given))

        signature = inspect.signature(command, eval_str=True)
        defaults = {"max_new_tokens": f"{max_new_tokens}, unless --max-length is given"}
        options = [_option(each, defaults.get(each.name)) for each in offered]
        return with_options(run, signature, ("sampling",), options)

    return decorate


@dataclass(frozen=True)
class StructureOptions:
    """The shape of the answer."""

    json_schema: Path | None = option(
        None,
        "The answer is JSON of the schema in this file.",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        rich_help_panel="Structured output",
    )
    regex: str | None = option(
        None,
        "This regular expression (Rust's syntax) matches the whole answer.",
        rich_help_panel="Structured output",
    )
    choice: list[str] | None = option(
        None,
        "The answer is one of these texts; repeat it.",
        metavar="TEXT",
        rich_help_panel="Structured output",
    )

    def config(self) -> StructuredOutputConfig | None:
        """What was asked for, if anything was. Raises typer.BadParameter for more than one."""
        given = {"--json-schema": self.json_schema, "--regex": self.regex, "--choice": self.choice}
        names = [name for name, value in given.items() if value]
        if len(names) > 1:
            raise typer.BadParameter(f"{' and '.join(names)} are given; allowed is one of them")
        if self.json_schema is not None:
            return StructuredOutputConfig(json_schema=_text_of(self.json_schema))
        if self.regex is not None:
            check_text("--regex", self.regex)
            return StructuredOutputConfig(regex=self.regex)
        if self.choice:
            for text in self.choice:
                check_text("--choice", text)
            return StructuredOutputConfig(
                compound_grammar=StructuredOutputConfig.Choice(self.choice)
            )
        return None


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise UnicodeError(f"{path} is not UTF-8") from None
