"""Layers that keep a state for each sequence: the tokens of transformers, whatever shares steps."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import openvino.opset13 as ops
import pytest
import torch
from conftest import batching_pipeline, drain, greedy
from convert import tiny_models
from openvino_core import CORE

import pagewheel
from pagewheel._pagewheel import describe_operations
from pagewheel.convert import convert
from pagewheel.model_info import read_info

TEXT = tiny_models.random_ids(300)


NAMES = [
    *("qwen3_5", "qwen3_5-odd", "qwen3_5_moe", "qwen3_next"),
    *("lfm2", "lfm2-bias", "lfm2_moe", "granitemoehybrid", "granitemoehybrid-experts"),
    *("mamba2", "falcon_h1", "falcon_h1-norm", "nemotron_h"),
    *("kimi_linear", "olmo_hybrid"),
]


def blocks(model: Any, count: int, states: int) -> int:
    """How many blocks a pool has for `count` blocks of tokens and the states besides that a model
    without attention needs: 256 blocks are counted for each.
    """
    return count + 256 * states if model.config.model_type == "mamba2" else count


@pytest.fixture(scope="module", params=NAMES)
def model(request: pytest.FixtureRequest) -> Any:
    return tiny_models.make(request.param)


@pytest.fixture(scope="module")
def folder(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tiny_models.save(model, tmp_path_factory.mktemp("source"))
    return convert(source, tmp_path_factory.mktemp("converted") / "model", progress=False)


@pytest.fixture(scope="module")
def log_probs(model: Any) -> Callable[[list[int], list[int]], Any]:
    """Of transformers: those of each token after a prompt, f64 [tokens, vocabulary]."""

    @functools.cache
    def after(prompt: tuple[int, ...], tokens: tuple[int, ...]) -> Any:
        logits = tiny_models.logits(model, [*prompt, *tokens])[len(prompt) - 1 : -1]
        return torch.log_softmax(torch.from_numpy(logits).double(), 1).numpy()

    return lambda prompt, tokens: after(tuple(prompt), tuple(tokens))


def check_greedy(log_probs: Any, prompt: list[int], tokens: list[int]) -> None:
    """Where each token is the best after those before, both went one way."""
    assert tokens == log_probs(prompt, tokens).argmax(-1).tolist()


@pytest.mark.parametrize("chunk", [1, 7, 33, 256])
def test_chunks_of_any_size_give_the_tokens_of_transformers(
    folder: Path, model: Any, log_probs: Any, chunk: int
) -> None:
    pipeline = batching_pipeline(
        folder, max_num_batched_tokens=chunk, num_kv_blocks=blocks(model, 40, 2)
    )
    handle = pipeline.add_request(0, TEXT, greedy(64))
    drain(pipeline)
    generated = list(handle.read_all()[0].generated_ids)
    assert len(generated) == 64
    check_greedy(log_probs, TEXT, generated)


def prompts(count: int, most: int) -> list[list[int]]:
    rng = np.random.default_rng(5)
    return [
        rng.integers(3, tiny_models.VOCABULARY, size).tolist()
        for size in rng.integers(1, most, count)
    ]


def check_mixed(pipeline: Any, log_probs: Any, requests: list[list[int]], tokens: int) -> None:
    """Requests that come while others run, some of which are cancelled."""
    handles = {}
    for number, prompt in enumerate(requests):
        handles[number] = pipeline.add_request(number, prompt, greedy(tokens))
        pipeline.step()
        if number % 5 == 4:
            handles.pop(number).cancel()
    drain(pipeline)
    for number, handle in handles.items():
        generated = list(handle.read_all()[0].generated_ids)
        assert len(generated) == tokens
        check_greedy(log_probs, requests[number], generated)


def test_mixed_batches_give_the_tokens_of_transformers(
    folder: Path, model: Any, log_probs: Any
) -> None:
    pipeline = batching_pipeline(
        folder, max_num_batched_tokens=50, num_kv_blocks=blocks(model, 400, 16)
    )
    check_mixed(pipeline, log_probs, prompts(15, 120), 30)
    assert pipeline.get_metrics().preemptions == 0


def test_preempted_sequences_give_the_tokens_of_transformers(
    folder: Path, model: Any, log_probs: Any
) -> None:
    attends = model.config.model_type != "mamba2"
    pipeline = batching_pipeline(
        folder, max_num_batched_tokens=50, num_kv_blocks=blocks(model, 14 if attends else 6, 3)
    )
    check_mixed(pipeline, log_probs, prompts(15, 60), 40)
    metrics = pipeline.get_metrics()
    assert metrics.preemptions > 0
    assert metrics.cache_usage == 0


def test_samples_of_one_prompt_go_on_from_its_state(
    folder: Path, model: Any, log_probs: Any
) -> None:
    pipeline = batching_pipeline(
        folder, max_num_batched_tokens=50, num_kv_blocks=blocks(model, 100, 10)
    )
    config = pagewheel.GenerationConfig(
        max_new_tokens=20, ignore_eos=True, do_sample=True, num_return_sequences=4, logprobs=1
    )
    handle = pipeline.add_request(0, TEXT[:70], config)
    drain(pipeline)
    outputs = handle.read_all()
    assert len({tuple(output.generated_ids) for output in outputs}) == 4
    for output in outputs:
        ids = list(output.generated_ids)
        best = [each[0].log_prob for each in output.top_log_probs]
        np.testing.assert_allclose(best, log_probs(TEXT[:70], ids).max(1), atol=2e-4)


def test_beams_go_on_from_their_own_states(folder: Path, model: Any, log_probs: Any) -> None:
    pipeline = batching_pipeline(
        folder, max_num_batched_tokens=50, num_kv_blocks=blocks(model, 100, 10)
    )
    config = pagewheel.GenerationConfig(
        max_new_tokens=20, ignore_eos=True, num_beams=4, num_return_sequences=4, length_penalty=0.0
    )
    result = pipeline.generate([TEXT[:70]], [config])[0]
    assert len(result.m_generation_ids) == 4
    for ids, score in zip(result.m_generation_ids, result.m_scores, strict=True):
        expected = log_probs(TEXT[:70], list(ids))[np.arange(20), list(ids)].sum()
        assert score == pytest.approx(expected, abs=2e-3)


def test_eviction_leaves_states_alone(folder: Path, model: Any, log_probs: Any) -> None:
    """Where nothing is evicted yet, the tokens are those of transformers; then it goes on."""
    if model.config.model_type == "mamba2":
        pytest.skip("refused by name, below")
    eviction = pagewheel.CacheEvictionConfig(32, 64, 128, apply_rotation=True)
    pipeline = batching_pipeline(
        folder,
        max_num_batched_tokens=50,
        num_kv_blocks=20,
        use_cache_eviction=True,
        cache_eviction_config=eviction,
    )
    handle = pipeline.add_request(0, TEXT[:90], greedy(150))
    drain(pipeline)
    generated = list(handle.read_all()[0].generated_ids)
    assert len(generated) == 150
    check_greedy(log_probs, TEXT[:90], generated[:38])


def test_quantised_weights_give_nearly_the_same_distribution(
    folder: Path, tmp_path: Path, model: Any, log_probs: Any
) -> None:
    """With pagewheel's linear layers beside the layers that keep states."""
    source = tiny_models.save(model, tmp_path / "source")
    quantised = convert(source, tmp_path / "model", progress=False, weight_format="int8")
    pipeline = batching_pipeline(
        quantised, {}, max_num_batched_tokens=33, num_kv_blocks=blocks(model, 40, 2)
    )
    handle = pipeline.add_request(0, TEXT, greedy(1, logprobs=1, echo=True))
    drain(pipeline)
    got = handle.read_all()[0].prompt_log_probs
    expected = log_probs(TEXT[:1], TEXT[1:])[np.arange(len(TEXT) - 1), TEXT[1:]]
    assert np.abs(np.array(got) - expected).mean() < 0.1


def test_rows_are_trimmed_behind_the_last_layer_that_writes(folder: Path) -> None:
    """A state needs all tokens; what follows the last one does not."""
    assert 0 < describe_operations(folder, "CPU", {}).fast_prefill.work_skipped < 1


def test_openvinos_attention_is_refused_by_name(folder: Path) -> None:
    with pytest.raises(
        ValueError, match=r"attention_backend is 'openvino', but .*Paged(Causal|Sel).*auto, native"
    ):
        pagewheel.LLMPipeline(folder, "CPU", attention_backend="openvino")


def test_the_info_names_layers_without_pages(folder: Path, model: Any) -> None:
    kinds = model.config.get_text_config().layer_types
    paged = ("full_attention", "hybrid")  # Falcon-H1 attends everywhere
    with_states = [i for i, kind in enumerate(kinds) if kind not in paged]
    assert read_info(folder).layers_without_pages == with_states


def test_a_model_without_attention_has_nothing_to_evict(tmp_path: Path) -> None:
    source = tiny_models.save(tiny_models.make("mamba2"), tmp_path / "source")
    folder = convert(source, tmp_path / "model", progress=False)
    with pytest.raises(ValueError, match="no layer of the model attends"):
        batching_pipeline(folder, use_cache_eviction=True, num_kv_blocks=600)


def test_decay_rates_may_be_computed_of_constants(tmp_path: Path) -> None:
    """optimum-intel's graphs multiply Mamba 2's with an integer -1."""
    model = tiny_models.make("granitemoehybrid")
    folder = convert(tiny_models.save(model, tmp_path / "source"), tmp_path / "ir", progress=False)
    graph = CORE.read_model(folder / "openvino_model.xml")
    changed = 0
    for node in graph.get_ordered_ops():
        if node.get_type_name() != "Exp":
            continue
        product = node.input_value(0).get_node()
        rates = product.input_value(0).get_node()
        minus = ops.convert(ops.constant(np.int32(-1)), "f32")
        opposite = ops.multiply(ops.constant(-rates.data), minus)
        product.input(0).replace_source_output(opposite.output(0))
        changed += 1
    assert changed == 3
    ov.save_model(graph, tmp_path / "openvino_model.xml", compress_to_fp16=False)
    del graph, node, product, rates  # which map the file
    for suffix in (".xml", ".bin"):
        (tmp_path / "openvino_model").with_suffix(suffix).replace(
            (folder / "openvino_model").with_suffix(suffix)
        )
    pipeline = batching_pipeline(folder, num_kv_blocks=40)
    handle = pipeline.add_request(0, TEXT, greedy(24))
    drain(pipeline)
    tokens = list(handle.read_all()[0].generated_ids)
    logits = tiny_models.logits(model, TEXT + tokens)[len(TEXT) - 1 : -1]
    assert tokens == logits.argmax(-1).tolist()
