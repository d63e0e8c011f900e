"""Options of commands that are the parameters of pagewheel.GenerationConfig, out of their table.

A parameter that is new in the table is an option here, too.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import typer

from pagewheel._pagewheel import GenerationParameter, generation_parameters
from pagewheel.cli.sampling import Sampling

# Of parameters that are spelled otherwise here.
_SPELLINGS = {
    "max_new_tokens": ("--max-new-tokens", "-n"),
    "do_sample": ("--do-sample/--greedy",),
    "rng_seed": ("--seed",),
}
# A command that prints one text has no use for these, or an option of its own (--raw).
_NOT_OFFERED = (
    "echo",
    "logprobs",
    "num_return_sequences",
    "apply_chat_template",
    "priority",
    "timeout",
    "cache_salt",
    "bad_words_ids",
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
    """Those that commands have as options."""
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
    return inspect.Parameter(
        parameter.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=info,
        annotation=_TYPES[parameter.type] | None,
    )


def _biases(pairs: list[str]) -> dict[str, float]:
    """Of "TOKEN=BIAS"."""
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
    """Of a command's argument `sampling` makes an option for each parameter.

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
        own = [each for each in signature.parameters.values() if each.name != "sampling"]
        defaults = {"max_new_tokens": f"{max_new_tokens}, unless --max-length is given"}
        options = [_option(each, defaults.get(each.name)) for each in offered]
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own] + options
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate
