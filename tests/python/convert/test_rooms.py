"""The packages of pagewheel.convert depend on each other one way, as the table here says."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import pagewheel.convert

ROOT = Path(pagewheel.convert.__file__).parent
PACKAGE = "pagewheel.convert"
ENTRY = "entry"  # the modules at the top, but for errors.py

# room -> the rooms it may import, each with the reason. All may import errors.
ALLOWED: Mapping[str, Mapping[str, str]] = {
    "errors": {},
    "files": {},
    "decoder": {},
    "tokenizers": {},
    "weights": {},
    "architectures": {
        "decoder": "a config is read into the description of a decoder",
    },
    "gguf": {
        "files": "a mapped file gives pages back",
        "decoder": "which weights there are, in which shapes",
        "weights": "blocks become weights",
        "tokenizers": "a file holds a vocabulary",
        "architectures": "which names and numbers a file of an architecture has",
    },
    "huggingface": {
        "files": "mapped pages, JSON, the digest of a folder",
        "decoder": "which weights there are, in which shapes",
        "weights": "tensors become weights",
        "tokenizers": "tokenizer.json holds a vocabulary",
        "architectures": "which numbers a config has and where a checkpoint keeps weights",
    },
    "graph": {
        "decoder": "a graph is built from the description",
        "weights": "constants are made of weights",
    },
    ENTRY: {
        "files": "the cache and output folders",
        "decoder": "pagewheel.json describes a model's attention",
        "weights": "the compression that is asked for",
        "tokenizers": "a folder holds the tokenizer's graphs",
        "gguf": "what is converted",
        "huggingface": "what is converted",
        "graph": "a folder holds the model's graph",
        "chat_template": "of pagewheel itself: a chat format is found by rendering",
        "hub": "of pagewheel itself: a model may be named as the hub names it",
    },
}


def module_of(path: Path) -> str:
    name = ".".join([PACKAGE, *path.relative_to(ROOT).with_suffix("").parts])
    return name.removesuffix(".__init__")


MODULES = {module_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def room_of(module: str) -> str:
    """Of modules outside of pagewheel.convert the name after pagewheel."""
    if module != PACKAGE and not module.startswith(PACKAGE + "."):
        return module.split(".")[1]
    parts = module.removeprefix(PACKAGE).split(".")[1:]
    if parts == ["errors"]:
        return "errors"
    is_package = bool(parts) and (ROOT / parts[0]).is_dir()
    return parts[0] if is_package else ENTRY


def imports_of(module: str, path: Path) -> Iterator[str]:
    """pagewheel's modules that it imports anywhere: in functions and for type checking too."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.startswith("pagewheel"))
        if not isinstance(node, ast.ImportFrom):
            continue
        parents = package.split(".")
        base = ".".join(parents[: len(parents) + 1 - node.level]) if node.level else ""
        name = ".".join(filter(None, [base, node.module or ""]))
        if name.startswith("pagewheel"):
            for each in node.names:
                full = f"{name}.{each.name}"
                yield full if full in MODULES else name


IMPORTS = {module: set(imports_of(module, path)) for module, path in MODULES.items()}


def test_rooms_import_only_what_the_table_allows() -> None:
    forbidden = [
        f"{module} imports {target}: {room_of(module)} may import "
        f"{', '.join(['errors', *ALLOWED[room_of(module)]])}"
        for module, targets in IMPORTS.items()
        for target in sorted(targets)
        if room_of(target) not in {room_of(module), "errors", *ALLOWED[room_of(module)]}
    ]
    assert forbidden == []


def test_the_table_allows_nothing_that_is_not_needed() -> None:
    used: dict[str, set[str]] = {room: set() for room in ALLOWED}
    for module, targets in IMPORTS.items():
        used[room_of(module)] |= {room_of(target) for target in targets}
    for room, allowed in ALLOWED.items():
        assert used[room] - {room, "errors"} == set(allowed), room


def test_every_folder_is_a_room_of_the_table() -> None:
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert folders == set(ALLOWED) - {"errors", ENTRY}


def cycle_in(graph: Mapping[str, set[str]]) -> list[str]:
    """Nodes that lead back to the first of them; empty where there are none."""
    finished: set[str] = set()

    def walk(node: str, path: list[str]) -> list[str]:
        if node in path:
            return path[path.index(node) :]
        if node in finished:
            return []
        for target in sorted(graph.get(node, ())):
            found = walk(target, [*path, node])
            if found:
                return found
        finished.add(node)
        return []

    return next(filter(None, (walk(node, []) for node in graph)), [])


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert cycle_in(IMPORTS) == []


def test_the_table_has_no_circle() -> None:
    assert cycle_in({room: set(allowed) for room, allowed in ALLOWED.items()}) == []


@pytest.mark.parametrize(
    ("graph", "cycle"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": {"b"}}, ["b", "c"]),
        ({"a": {"b", "c"}, "b": {"c"}}, []),
        ({"a": {"a"}}, ["a"]),
    ],
)
def test_circles_are_found(graph: dict[str, set[str]], cycle: list[str]) -> None:
    assert cycle_in(graph) == cycle


def test_imports_are_found_wherever_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "source.py"
    path.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from ..graph import nodes\n"
        "def f():\n    from . import file\n    from ...chat_template import render\n"
        "import pagewheel.convert.cache\n"
    )
    assert set(imports_of("pagewheel.convert.gguf.source", path)) == {
        "pagewheel.convert.graph.nodes",
        "pagewheel.convert.gguf.file",
        "pagewheel.chat_template",
        "pagewheel.convert.cache",
    }
