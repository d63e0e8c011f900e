"""Fast prefill where pagewheel's own linear layers and regions run, which take int8 activations.

The caches are f32: what differs is the order of sums, and where it changes how an activation is
rounded, an activation.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import batching_pipeline, drain
from convert import tiny_models, tiny_yoco
from fast_prefill_pairs import log_probs

import pagewheel
from pagewheel._pagewheel import describe_operations
from pagewheel.convert import convert

EXACT_CACHE = {"KV_CACHE_PRECISION": "f32"}
# Of a log-probability. Measured is 1e-6 at most; the same prompts in other prefill chunks, which
# round some activations otherwise, are up to 0.03 apart.
BOUND = 0.05


@pytest.fixture(scope="module", params=["llama-even", "gemma3n", "phi3", "yoco-half"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def source(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    kind, _, pattern = name.partition("yoco-")
    if kind:
        return tiny_models.save(tiny_models.make(name), folder)
    return tiny_yoco.save(tiny_yoco.make(pattern), folder)


@pytest.fixture(scope="module", params=["int8", "int4"])
def folder(
    request: pytest.FixtureRequest, source: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    return convert(
        source,
        tmp_path_factory.mktemp("converted") / "model",
        weight_format=request.param,
        group_size=32,
        progress=False,
    )


def prompts_beside_decodes(folder: Path, step: int, fast: bool) -> list[pagewheel.GenerationOutput]:
    pipeline = batching_pipeline(
        folder,
        {**EXACT_CACHE, "fast_prefill": fast},
        max_num_batched_tokens=step,
        num_kv_blocks=100,
    )
    handles = [pipeline.add_request(0, [5], log_probs(24))]
    pipeline.step()
    for count in (90, 20, 1, 64):
        prompt = tiny_models.random_ids(count, seed=count)
        handles.append(pipeline.add_request(count, prompt, log_probs(4)))
    prompt = tiny_models.random_ids(40, seed=40)
    handles.append(pipeline.add_request(40, prompt, log_probs(1, echo=True)))
    drain(pipeline)
    return [handle.read_all()[0] for handle in handles]


@pytest.mark.parametrize("step", [200, 33, 7])
def test_first_tokens_are_as_likely_with_fast_prefill(folder: Path, step: int) -> None:
    """Of prompts whole and in prefill chunks, beside a sequence that is being continued."""
    fast, slow = (prompts_beside_decodes(folder, step, fast) for fast in (True, False))
    got, expected = ([each.generated_log_probs[0] for each in found] for found in (fast, slow))
    assert np.std(expected) > 3 * BOUND
    np.testing.assert_allclose(got, expected, atol=BOUND, rtol=0)
    got, expected = fast[-1].prompt_log_probs, slow[-1].prompt_log_probs
    assert len(expected) == 39
    np.testing.assert_allclose(got, expected, atol=BOUND, rtol=0)


def test_trimmed_layers_are_in_regions(folder: Path) -> None:
    """With the rows that are picked."""
    found = describe_operations(folder, "CPU", EXACT_CACHE)
    assert found.fast_prefill.layers > 0
    assert found.left == []
    ours = {each.operation for each in found.counts if each.runs_on == "pagewheel"}
    assert {"GatherRows", "QuantizedLinear", "NativeRegion", "PagedAttention"} <= ours


def test_the_real_model_writes_the_same(smollm2_folder: Path) -> None:
    """Where short prompts come whole and a long one in prefill chunks."""
    texts = [
        "The capital of France is",
        "Why is the sky blue?",
        "def fibonacci(n):\n",
        Path(__file__).read_text()[:1500],
    ]

    def generated(fast: bool) -> list[list[int]]:
        pipeline = batching_pipeline(
            smollm2_folder,
            {**EXACT_CACHE, "fast_prefill": fast},
            max_num_batched_tokens=33,
            num_kv_blocks=100,
        )
        handles = [pipeline.add_request(i, text, log_probs(32)) for i, text in enumerate(texts)]
        drain(pipeline)
        return [list(handle.read_all()[0].generated_ids) for handle in handles]

    assert generated(True) == generated(False)
