"""Layers that read earlier layers' caches compute what is written down in tiny_yoco."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from convert import tiny_yoco
from convert.stateful_decoder import Decoder, relative
from openvino._offline_transformations import paged_attention_transformation
from openvino_core import CORE
from test_architectures import TEXT, check_tokens

from pagewheel.convert import convert


@pytest.fixture(scope="module", params=tiny_yoco.PATTERNS)
def model(request: pytest.FixtureRequest) -> tiny_yoco.Yoco:
    return tiny_yoco.make(request.param)


@pytest.fixture(scope="module")
def folder(model: tiny_yoco.Yoco, tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tiny_yoco.save(model, tmp_path_factory.mktemp("source"))
    return convert(source, tmp_path_factory.mktemp("converted") / "model", progress=False)


@pytest.fixture(scope="module")
def expected(model: tiny_yoco.Yoco) -> Any:
    return tiny_yoco.logits(model, TEXT)


def test_prefill_and_decode_give_the_reference_logits(folder: Path, expected: Any) -> None:
    decoder = Decoder(folder)
    got = [decoder(TEXT[:230])] + [decoder([token]) for token in TEXT[230:]]
    error = relative(np.concatenate(got), expected)
    print(f"{error:.1e}")
    assert error < 1e-4


@pytest.mark.parametrize("backend", ["native", "openvino"])
def test_paged_attention_gives_the_reference_tokens(
    folder: Path, model: tiny_yoco.Yoco, expected: Any, backend: str
) -> None:
    check_tokens(folder, backend, lambda ids: tiny_yoco.logits(model, ids), expected)


def test_paged_attention_writes_to_the_caches_of_owners_alone(
    folder: Path, model: tiny_yoco.Yoco
) -> None:
    graph = CORE.read_model(folder / "openvino_model.xml")
    paged_attention_transformation(graph)
    found = [
        (node.get_attributes()["write_kv_cache"], node.input(3).get_source_output().any_name)
        for node in graph.get_ordered_ops()
        if node.get_type_name() == "PagedAttentionExtension"
    ]
    assert found == [
        (owner is None, f"key_cache.{layer if owner is None else owner}")
        for layer, owner in enumerate(model.owners)
    ]
