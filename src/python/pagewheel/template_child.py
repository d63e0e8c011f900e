"""What runs in the process that renders chat templates; `template_process.py` starts it.

A template is a stranger's program. Jinja's sandbox keeps it from reaching into Python, and this
process's limits and its parent bound its memory and time. Only the standard library and Jinja are
imported here.

Requests come from standard input and answers go to standard output, one for one: eight bytes of
length, big-endian, then JSON.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

# The exit code that says that a template asked for more memory than there may be.
OUT_OF_MEMORY = 3
# Characters of an error's message: a template may choose it.
_MAX_ERROR = 1000
# Bytes that renders may leave behind (compiled templates, garbage) before this process is replaced.
_MAX_LEFT_BEHIND = 64 << 20


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
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationTag, "jinja2.ext.loopcontrols"],
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment.from_string(template)


def _answer(request: bytes) -> dict[str, Any]:
    """{"text": ...} or {"error": ...}. Lets MemoryError pass."""
    try:
        wanted = json.loads(request)
        # The parent ends a render that takes too long; the alarm does if the parent is gone.
        signal.setitimer(signal.ITIMER_REAL, wanted["max_seconds"] + 1)
        text = _compile(wanted["template"]).render(wanted["context"])
        if len(text) > wanted["max_characters"]:
            raise jinja2.TemplateError(f"it makes more than {wanted['max_characters']} characters")
        text.encode()  # a lone surrogate, which no prompt may have, is the template's error
        return {"text": text}
    except MemoryError:
        raise
    except Exception as error:
        what = _described(error)[:_MAX_ERROR]
        return {"error": "chat template" + what.encode(errors="backslashreplace").decode()}


def _described(error: Exception) -> str:
    try:
        if isinstance(error, jinja2.TemplateSyntaxError):
            return f", line {error.lineno}: {error.message}"
        if isinstance(error, jinja2.TemplateError):
            return f": {error}"
        if isinstance(error, RecursionError):
            return ": it calls itself without an end, or is nested too deeply"
        return f": {type(error).__name__}: {error}"
    except MemoryError:
        raise
    except Exception:  # what the template raised has no text either
        return f": {type(error).__name__}"


def _limit(max_memory: int) -> None:
    """Limits this process for good. Raises OSError or ValueError where that is refused."""
    sys.dont_write_bytecode = True
    limits = {
        resource.RLIMIT_AS: max_memory,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: 16,
        resource.RLIMIT_NPROC: 0,
    }
    for kind, value in limits.items():
        hard = resource.getrlimit(kind)[1]
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (allowed, allowed))
    # Some systems take a limit and do not keep it.
    try:
        bytearray(max_memory)
    except MemoryError:
        return
    raise OSError("RLIMIT_AS has no effect")


def _memory() -> int:
    """Bytes of address space in use: what RLIMIT_AS counts."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _read() -> bytes:
    """A request; nothing once the parent is gone."""
    size = int.from_bytes(sys.stdin.buffer.read(8), "big")
    return sys.stdin.buffer.read(size)


def _write(message: dict[str, Any]) -> None:
    body = json.dumps(message, ensure_ascii=False).encode()
    sys.stdout.buffer.write(len(body).to_bytes(8, "big") + body)
    sys.stdout.buffer.flush()


def main() -> None:
    """Serves until standard input ends. The first message says whether the limits hold."""
    max_memory = int(sys.argv[1])
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        _limit(max_memory)
        in_use = _memory()
    except (OSError, ValueError) as error:
        return _write({"refused": str(error)})
    _write({})
    try:
        while request := _read():
            answer = _answer(request)
            _write(answer | {"is_last": _memory() - in_use > _MAX_LEFT_BEHIND})
            signal.setitimer(signal.ITIMER_REAL, 0)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
