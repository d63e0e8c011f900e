"""Fast prefill in graphs that optimum-intel exported."""

from __future__ import annotations

from pathlib import Path

import foreign_folders
import numpy as np
import openvino as ov
import pytest
from conftest import F32
from convert import tiny_models
from fast_prefill_pairs import BACKENDS, log_probs, make_pair, same_answers
from openvino_core import CORE

from pagewheel._pagewheel import describe_operations
from pagewheel.convert import convert

# name -> layers from the last with a cache of its own on
TRIMMED = {"cohere": 1, "gemma3n_text": 3, "gemma4_text": 3, "mixtral": 1, "phi3": 1}


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tiny_models.save(tiny_models.make("llama-even"), tmp_path_factory.mktemp("source"))
    return convert(source, tmp_path_factory.mktemp("converted") / "model", progress=False)


@pytest.fixture(scope="module", params=foreign_folders.NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(name: str, tokenizers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return foreign_folders.unpack(name, tmp_path_factory.mktemp(name) / "model", tokenizers)


@pytest.fixture(scope="module")
def exported(folder: Path) -> ov.CompiledModel:
    """The graph as it came, with its own state, on OpenVINO alone."""
    exact = {**F32, "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
    return CORE.compile_model(folder / "openvino_model.xml", "CPU", exact)


def logits(exported: ov.CompiledModel, ids: list[int]) -> np.ndarray:
    """f32 [len(ids), vocabulary]."""
    inputs = {
        "input_ids": np.array([ids]),
        "attention_mask": np.ones((1, len(ids)), np.int64),
        "position_ids": np.arange(len(ids))[None],
        "beam_idx": np.zeros(1, np.int32),
    }
    named = {name: inputs[name] for each in exported.inputs for name in each.names & set(inputs)}
    return exported.create_infer_request().infer(named)[0][0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_fast_prefill_changes_nothing(
    folder: Path, exported: ov.CompiledModel, backend: str
) -> None:
    """Prompts come whole and in prefill chunks, beside others; tokens are the exported graph's."""
    for step in (200, 7):
        pair = make_pair(folder, backend, max_num_batched_tokens=step, num_kv_blocks=100)
        prompts = [tiny_models.random_ids(count, seed=count) for count in (90, 1, 20)]
        requests = [(prompt, log_probs(8)) for prompt in prompts]
        requests.append((prompts[2], log_probs(2, echo=True)))
        outputs = same_answers(pair, *requests)
        for prompt, output in zip(prompts, outputs, strict=False):
            generated = list(output.generated_ids)
            expected = logits(exported, prompt + generated)[len(prompt) - 1 : -1]
            assert generated == expected.argmax(-1).tolist()


def test_the_layers_from_the_last_owned_cache_on_are_trimmed(name: str, folder: Path) -> None:
    native, openvino = (
        describe_operations(folder, "CPU", {"attention_backend": backend}).fast_prefill
        for backend in BACKENDS
    )
    count = TRIMMED[name]
    assert (native.layers, native.attention_nodes, native.why) == (count, count, [])
    # The openvino backend's attention writes keys for its queries alone.
    assert (openvino.layers, openvino.attention_nodes) == (count, count - 1)
    if name == "phi3":  # whose one matrix gives queries, keys and values
        assert 0 < openvino.work_skipped == native.work_skipped < 1
    else:
        assert 0 < openvino.work_skipped < native.work_skipped < 1
