"""Mixtures of experts by pagewheel's own operation, beside f32 inference of the same folder."""

from __future__ import annotations

from pathlib import Path

import foreign_folders
import numpy as np
import pytest
from conftest import F32
from convert import tiny_llama, tiny_models
from gguf import GGUFReader
from prompt_log_probs import prompt_log_probs

import pagewheel
from benchmarks.random_mixture import Shape, write_random_mixture
from benchmarks.record import share_of_a_token
from pagewheel.convert import convert

PROMPT = [3 + (7 * i + i * i // 5) % 250 for i in range(300)]
SHAPES = {
    "qwen3_moe": {"hidden_size": 64, "moe_intermediate_size": 96},
    "gpt_oss-even": {},
    "deepseek_v3": {"hidden_size": 64, "moe_intermediate_size": 96, "intermediate_size": 96},
    "gemma4-experts": {"hidden_size": 64, "moe_intermediate_size": 96, "intermediate_size": 96},
}


# GGUF files whose experts are of these types.
KINDS = ("Q2_K", "Q3_K", "MXFP4")


def write_gguf(kind: str, path: Path) -> Path:
    shape = Shape(2, hidden=256, inner=512, experts=8, active=2, heads=4, head_size=64, kind=kind)
    write_random_mixture(tiny_llama.write(path / "small.gguf"), path / "a.gguf", "qwen3moe", shape)
    return path / "a.gguf"


@pytest.fixture(scope="module", params=[*SHAPES, *KINDS, "mixtral of optimum-intel"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    name = request.param
    path = tmp_path_factory.mktemp(name)
    if name in KINDS:
        return convert(write_gguf(name, path), path / "converted", progress=False)
    if name not in SHAPES:
        source = tiny_models.save(tiny_models.make("llama-even"), path / "llama")
        tokenizers = convert(source, path / "tokenizers", progress=False)
        exported = foreign_folders.unpack("mixtral", path / "exported", tokenizers)
        foreign_folders.compress(exported)
        return exported
    model_type, changes = tiny_models.ARCHITECTURES[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tiny_models.ARCHITECTURES, name, (model_type, {**changes, **SHAPES[name]}))
        checkpoint = tiny_models.save(tiny_models.make(name), path / "checkpoint")
    return convert(
        checkpoint,
        path / "converted",
        weight_format="int4",
        group_size=32,
        progress=False,
    )


def make_pipeline(folder: Path, **properties: object) -> pagewheel.ContinuousBatchingPipeline:
    return pagewheel.ContinuousBatchingPipeline(
        folder, pagewheel.SchedulerConfig(), "CPU", properties
    )


def test_experts_give_what_f32_inference_gives(folder: Path) -> None:
    exact = prompt_log_probs(make_pipeline(folder, **F32), PROMPT)
    rounded = make_pipeline(folder, activation_precision="int16", KV_CACHE_PRECISION="f32")
    difference = prompt_log_probs(rounded, PROMPT) - exact
    # A choice between experts that nearly tie may fall otherwise.
    assert np.median(np.abs(difference)) < 0.005
    assert np.mean(np.abs(difference) > 0.2) < 0.05


def test_every_layer_is_taken(folder: Path) -> None:
    found = pagewheel._pagewheel.describe_operations(str(folder), "CPU", {})
    counts = {(one.runs_on, one.operation): one.count for one in found.counts}
    assert counts[("pagewheel", "RoutedExperts")] > 0
    assert not any(one.operation == "TopK" for one in found.counts)  # the router is a part of it
    assert not any("experts" in sentence for sentence in found.left)


def test_benchmarks_know_what_a_token_reads(tmp_path: Path) -> None:
    file = write_gguf("Q3_K", tmp_path)
    total = sum(int(tensor.n_bytes) for tensor in GGUFReader(file).tensors)
    others = 2 * 3 * 6 * (256 * 512 * 110 // 256)  # layers, matrices, experts that it has not
    embedding = len(tiny_llama.vocabulary()[0]) * 256 * 18 // 32
    assert share_of_a_token(file) == (total - others - embedding) / total
    folder = convert(file, tmp_path / "converted", progress=False)
    assert 0.2 < share_of_a_token(folder) < 0.5
