"""The engines that can be measured, one adapter per file.

A new engine is a subclass of `Engine` in a file here and a line in `ENGINES`;
`--peer name=module:Class` also takes one that lives elsewhere.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass

from benchmarks.peers.engine import Engine

ENGINES = {
    "pagewheel": "benchmarks.peers.pagewheel_engine:PagewheelEngine",
    "openvino-genai": "benchmarks.peers.genai_engine:GenaiEngine",
    "llama.cpp": "benchmarks.peers.llama_engine:LlamaEngine",
}

Option = bool | int | float | str


@dataclass(frozen=True)
class Peer:
    """An engine under the name it has in the results."""

    name: str
    engine: str
    options: dict[str, Option]


def load_engine(reference: str) -> type[Engine]:
    """The class of an engine by its name in ENGINES or as "module:Class"; raises ValueError."""
    target = ENGINES.get(reference, reference)
    module, colon, name = target.partition(":")
    if not colon:
        raise ValueError(
            f"unknown engine {reference!r}: expected one of {', '.join(ENGINES)} or module:Class"
        )
    engine = getattr(importlib.import_module(module), name)
    if not (isinstance(engine, type) and issubclass(engine, Engine)):
        raise ValueError(f"{target} is no benchmarks.peers.engine.Engine")
    return engine


def parse_option(text: str) -> Option:
    """A value from the command line: true, false, an integer, a float, else the text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def parse_peers(peers: list[str], settings: list[str]) -> list[Peer]:
    """Peers from "name" or "name=engine", settings from "name.key=value"; raises ValueError."""
    engines: dict[str, str] = {}
    for text in peers:
        name, equals, engine = text.partition("=")
        if not re.fullmatch(r"[A-Za-z0-9_+-]+(\.[A-Za-z0-9_+-]+)*", name) or name in engines:
            raise ValueError(
                f"peer {text!r}: names are unique and of letters, digits, _, +, - and ."
            )
        engines[name] = engine if equals else name
        if ":" not in engines[name] and engines[name] not in ENGINES:
            raise ValueError(
                f"peer {text!r}: expected one of {', '.join(ENGINES)} or name=module:Class"
            )
    options: dict[str, dict[str, Option]] = {name: {} for name in engines}
    for text in settings:
        key, equals, value = text.partition("=")
        # Names and options may both hold dots; the longest name that fits is meant.
        name = max((one for one in engines if key.startswith(f"{one}.")), key=len, default="")
        option = key[len(name) + 1 :]
        if not (equals and name and option):
            raise ValueError(
                f"setting {text!r}: expected PEER.KEY=VALUE with PEER one of {', '.join(engines)}"
            )
        options[name][option] = parse_option(value)
    return [Peer(name, engine, options[name]) for name, engine in engines.items()]
