"""Chat templates: the Jinja2 dialect of Hugging Face's models, in a sandbox."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from .template_sandbox import BoundedEnvironment, time_limit

# No real conversation takes a hundredth of it.
_MAX_SECONDS = 10.0


class _GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}` marks what the assistant wrote; rendered as is."""

    tags = {"generation"}  # noqa: RUF012 (an instance attribute of the base class)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller: Callable[[], str]) -> str:
        return caller()


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own tojson escapes for HTML, which models have not seen.
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


@lru_cache(maxsize=32)
def _compile(template: str) -> jinja2.Template:
    environment = BoundedEnvironment(
        {"tojson": _to_json},
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationTag, "jinja2.ext.loopcontrols"],
    )
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment.from_string(template)


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool,
    tools: Sequence[Any] | None = None,
    documents: Sequence[Any] | None = None,
    extra_context: Mapping[str, Any] | None = None,
    bos_token: str = "",
    eos_token: str = "",
) -> str:
    """The prompt for a conversation, as transformers' apply_chat_template gives it.

    `extra_context` adds names to the template's context and overrides those above.
    Raises ValueError, with the template's own message, for a template that does not
    compile, refuses the conversation, fails on it, or does not end within ten seconds and
    16 million characters.
    """
    context: dict[str, Any] = {
        "messages": messages,
        "tools": tools,
        "documents": documents,
        "add_generation_prompt": add_generation_prompt,
        "bos_token": bos_token,
        "eos_token": eos_token,
        **(extra_context or {}),
    }
    try:
        with time_limit(_MAX_SECONDS):
            return _compile(template).render(context)
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(f"chat template, line {error.lineno}: {error.message}") from error
    except jinja2.TemplateError as error:
        raise ValueError(f"chat template: {error}") from error
    except RecursionError:
        raise ValueError("chat template: it calls itself without an end") from None
    except (TypeError, KeyError, AttributeError, IndexError, ArithmeticError) as error:
        raise ValueError(f"chat template: {type(error).__name__}: {error}") from error
