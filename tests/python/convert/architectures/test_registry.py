"""Every architecture of the registry is documented and tried, and nothing else is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from convert import tiny_models
from convert.gguf_models import ARCHITECTURES as GGUF_NAMES

from pagewheel.convert import ConversionError
from pagewheel.convert.architectures import registry
from pagewheel.convert.architectures.registry import GGUF_ARCHITECTURES, MODEL_TYPES

ROOT = Path(__file__).parents[4]


def documented() -> list[tuple[str, str]]:
    """Model type and GGUF architecture ("" for none) of each row of the table in docs/models.md."""
    text = (ROOT / "docs/models.md").read_text(encoding="utf-8")
    table = text.partition("| architecture | `model_type` |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    assert rows
    return [(row[1].split()[0], "".join(re.findall("`(.+?)`", row[4]))) for row in rows]


def test_the_documented_model_types_are_the_registrys() -> None:
    assert sorted(name for name, _ in documented()) == sorted(MODEL_TYPES)


def test_the_documented_gguf_architectures_are_the_registrys() -> None:
    assert {name for _, name in documented() if name} == set(GGUF_ARCHITECTURES)


def test_every_model_type_is_compared_with_a_reference() -> None:
    """transformers' models here; yoco, which it does not have, in test_shared_caches.py."""
    tried = {model_type for model_type, _ in tiny_models.ARCHITECTURES.values()}
    assert tried | {"yoco"} == set(MODEL_TYPES)


def test_every_gguf_architecture_is_compared_with_a_reference() -> None:
    tried = {model_type for model_type, _ in tiny_models.ARCHITECTURES.values()}
    tried -= set(tiny_models.WITHOUT_GGUF)
    assert {GGUF_NAMES.get(each, each) for each in tried} == set(GGUF_ARCHITECTURES)


def test_no_two_families_claim_one_name() -> None:
    types = [each.name for family in registry._FAMILIES for each in family.model_types]
    assert len(types) == len(set(types)) == len(MODEL_TYPES)
    files = [each.name for family in registry._FAMILIES for each in family.gguf]
    assert len(files) == len(set(files)) == len(GGUF_ARCHITECTURES)


def test_an_unknown_model_type_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConversionError, match=r"where: the model type 'gpt2' .*: deepseek_v2, .*"):
        registry.read_architecture({"model_type": "gpt2"}, "where")
