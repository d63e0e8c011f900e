"""The server's modules depend on each other one way, as the table here says."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

import pagewheel

ROOT = Path(pagewheel.__file__).parent
BASE = "base"  # modules beside the layers that all may import
# layer -> the layers that it may import besides itself and the base.
ALLOWED: Mapping[str, Sequence[str]] = {
    BASE: (),
    "http": (),
    "models": (),
    "api": ("http", "models"),
    "page": ("api", "http", "models"),
    "app": ("api", "http", "models", "page"),
    "server": ("api", "http", "models", "app"),
    "embedding": ("api", "http", "models", "app", "server"),
}


def module_of(path: Path) -> str:
    name = ".".join(["pagewheel", *path.relative_to(ROOT).with_suffix("").parts])
    return name.removesuffix(".__init__")


def modules_of(package: str) -> dict[str, Path]:
    return {module_of(path): path for path in sorted((ROOT / package).rglob("*.py"))}


MODULES = modules_of("serve")


def layer_of(module: str) -> str:
    parts = module.split(".")[2:]
    return parts[0] if parts and parts[0] in ALLOWED else BASE


def imports_of(path: Path) -> Iterator[str]:
    """pagewheel's modules that it imports anywhere: in functions and for type checking too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, path
            names = [f"{node.module}.{each.name}" for each in node.names]
            names = [each if each in MODULES else node.module for each in names]
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        yield from (each for each in names if each.split(".")[0] == "pagewheel")


IMPORTS = {module: set(imports_of(path)) for module, path in MODULES.items()}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_what_its_layer_may(module: str) -> None:
    layer = layer_of(module)
    allowed = {layer, BASE, *ALLOWED[layer]}
    inside = {each for each in IMPORTS[module] if f"{each}.".startswith("pagewheel.serve.")}
    assert {each for each in inside if layer_of(each) not in allowed} == set()
    others = {each.split(".")[1] for each in IMPORTS[module] - inside if "." in each}
    assert not others & {"cli", "ray_serve", "bench_serve", "trace"}


def test_no_modules_import_each_other_in_a_circle() -> None:
    left = {module: found & set(MODULES) - {module} for module, found in IMPORTS.items()}
    while ends := {module for module, found in left.items() if not found & set(left)}:
        for module in ends:
            del left[module]
    assert set(left) == set()


def test_models_know_no_http() -> None:
    for module, path in MODULES.items():
        if layer_of(module) == "models":
            text = path.read_text(encoding="utf-8")
            assert not any(each in text for each in ("starlette", "fastapi", "ApiError", "header"))


@pytest.mark.parametrize("package", ["bench_serve", "ray_serve", "trace"])
def test_others_import_what_is_for_them_alone(package: str) -> None:
    found = {each for path in modules_of(package).values() for each in imports_of(path)}
    inside = {each for each in found if f"{each}.".startswith("pagewheel.serve.")}
    assert inside <= {"pagewheel.serve.embedding"}
