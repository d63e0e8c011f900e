"""What eviction computes, against transformers with the same entries deleted from its cache."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
import torch
from conftest import F32
from convert import tiny_llama, tiny_models
from eviction_replay import Replay, Watching, replayed, run_with_recorded_evictions
from transformers import LlamaForCausalLM

import pagewheel
from pagewheel.convert import convert
from pagewheel.convert.files.source_folder import SourceFolder
from pagewheel.convert.folder import describe_rotary
from pagewheel.convert.graph.model import build_model
from pagewheel.convert.huggingface.source import HuggingFaceSource

SIZES = (32, 32, 128)  # start, recent, budget
BLOCK = 32
CLOSED_UP = 1  # a position_limit that closes positions up with each decision
OPENVINO = {**F32, "attention_backend": "openvino"}


@pytest.fixture(scope="module")
def prompt(shallow_folder: Path) -> list[int]:
    """Of 300 tokens."""
    text = Path(__file__).read_text()
    return pagewheel.Tokenizer(shallow_folder).encode(text).input_ids.data[0, :300].tolist()


@pytest.mark.parametrize(
    ("granularity", "rotation", "limit", "during_prefill", "new_tokens"),
    [
        ("block", True, CLOSED_UP, False, 300),
        ("token", True, CLOSED_UP, True, 120),
        ("token", False, 0, False, 120),
        ("block", True, 400, False, 420),
        ("token", True, 400, False, 420),
    ],
)
def test_evictions_equal_a_replay_in_transformers(
    shallow_folder: Path,
    shallow_reference: LlamaForCausalLM,
    prompt: list[int],
    granularity: str,
    rotation: bool,
    limit: int,
    during_prefill: bool,
    new_tokens: int,
) -> None:
    """Greedy tokens are those of the reference, and their log-probabilities within 1e-3."""
    policy, generated, log_probs = run_with_recorded_evictions(
        shallow_folder,
        prompt,
        new_tokens,
        SIZES,
        apply_rotation=rotation,
        position_limit=limit,
        granularity=granularity,
        evict_during_prefill=during_prefill,
    )
    assert len(policy.decisions) > 3 * shallow_reference.config.num_hidden_layers
    assert (policy.decisions[0][1] == 300) is not during_prefill
    replay = Replay(shallow_reference, rotation, limit, SIZES[2] + BLOCK)
    expected = replayed(replay, prompt, generated, policy.decisions)
    if limit == 400:  # at 400 and 672 tokens, and once more
        assert replay.times_closed == 2
    assert expected.argmax(-1).tolist() == generated
    chosen = expected[np.arange(len(generated)), generated]
    np.testing.assert_allclose(log_probs, chosen, atol=1e-3)


@pytest.mark.parametrize(
    ("granularity", "limit", "during_prefill", "cache", "tolerance"),
    [("block", 400, False, "f32", 1e-3), ("token", CLOSED_UP, True, "f16", 2e-2)],
)
def test_the_openvino_backend_evicts_alike(
    shallow_folder: Path,
    shallow_reference: LlamaForCausalLM,
    prompt: list[int],
    granularity: str,
    limit: int,
    during_prefill: bool,
    cache: str,
    tolerance: float,
) -> None:
    """Keys are rotated where they lie: an f16 cache rounds them with every decision."""
    policy, generated, log_probs = run_with_recorded_evictions(
        shallow_folder,
        prompt,
        70,
        SIZES,
        {**OPENVINO, "KV_CACHE_PRECISION": cache},
        apply_rotation=True,
        position_limit=limit,
        granularity=granularity,
        evict_during_prefill=during_prefill,
    )
    num_decisions = len(policy.decisions) // shallow_reference.config.num_hidden_layers
    assert num_decisions > 2
    replay = Replay(shallow_reference, True, limit, SIZES[2] + BLOCK)
    expected = replayed(replay, prompt, generated, policy.decisions)
    assert replay.times_closed == (1 if limit == 400 else num_decisions)
    chosen = expected[np.arange(len(generated)), generated]
    np.testing.assert_allclose(log_probs, chosen, atol=tolerance)


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    return convert(tiny_llama.write(folder / "tiny.gguf"), folder / "ir", progress=False)


def convert_tiny(name: str, folder: Path, tokenizer_folder: Path) -> object:
    """transformers' model, and its graph in `folder`."""
    model = tiny_models.make(name)
    source = HuggingFaceSource(SourceFolder(tiny_models.save(model, folder / "checkpoint")))
    graph = build_model(source.architecture, source.weight)
    ov.save_model(graph, folder / "openvino_model.xml", compress_to_fp16=False)
    description = {
        "rotary": describe_rotary(source.architecture),
        "sliding_windows": list(source.architecture.windows),
    }
    (folder / "pagewheel.json").write_text(json.dumps(description))
    (folder / "config.json").symlink_to(folder / "checkpoint" / "config.json")
    for file in tokenizer_folder.glob("openvino_*tokenizer.*"):
        (folder / file.name).symlink_to(file)
    return model


@pytest.mark.parametrize("granularity", ["block", "token"])
@pytest.mark.parametrize(
    "name",
    [
        "llama3",
        "llama-yarn",
        "smollm3",
        "phi3",
        "phi3-longrope",
        "gemma2",
        "gemma3",
        "gpt_oss",
        "mistral",
    ],
)
def test_architectures_evict_and_rotate_by_their_own_rules(
    tmp_path: Path, tokenizer_folder: Path, name: str, granularity: str
) -> None:
    """Frequencies scaled and per layer, layers without positions, partial rotation, sinks, soft
    caps, and sliding windows: layers that slide lose their oldest tokens only."""
    model = convert_tiny(name, tmp_path, tokenizer_folder)
    prompt = tiny_models.random_ids(200)
    policy, generated, log_probs = run_with_recorded_evictions(
        tmp_path,
        prompt,
        80,
        SIZES,
        apply_rotation=True,
        position_limit=CLOSED_UP,
        granularity=granularity,
    )
    replay = Replay(model, rotation=True)
    decisions = policy.decisions
    if name == "mistral":  # no layer is asked, as all slide; nothing is lost
        assert not decisions
    expected = replayed(replay, prompt, generated, decisions, replay.slides)
    chosen = expected[np.arange(len(generated)), generated]
    np.testing.assert_allclose(log_probs, chosen, atol=2e-3)


def captured_before_rotation(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[np.ndarray, np.ndarray]]:
    """What the model's calls of apply_rotary_pos_emb get: queries, keys [tokens, heads, size]."""
    calls = []
    module = sys.modules[type(model).__module__]
    rotate = module.apply_rotary_pos_emb

    def spy(query: torch.Tensor, key: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        seen = [x[0].transpose(0, 1).double().numpy() for x in (query, key)]
        calls.append((seen[0], seen[1]))
        return rotate(query, key, *arguments, **options)

    monkeypatch.setattr(module, "apply_rotary_pos_emb", spy)
    return calls


@pytest.mark.parametrize(("rotation", "limit"), [(True, CLOSED_UP), (True, 250), (False, 0)])
@pytest.mark.parametrize("name", ["llama3", "phi3", "glm4_moe"])
def test_policies_see_keys_values_and_queries_before_rotation(
    tmp_path: Path,
    tokenizer_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    rotation: bool,
    limit: int,
) -> None:
    """After a prompt of 200 tokens, the last 64 observed, in decision after decision."""
    model: Any = convert_tiny(name, tmp_path, tokenizer_folder)
    prompt = tiny_models.random_ids(200)
    policy = Watching(prompt=64, decode=pagewheel.ObservedQueries.ALL, accumulate=True)
    _, generated, _ = run_with_recorded_evictions(
        tmp_path,
        prompt,
        60,
        SIZES,
        policy=policy,
        apply_rotation=rotation,
        position_limit=limit,
        granularity="token",
    )
    calls = captured_before_rotation(model, monkeypatch)
    replay = Replay(model, rotation, limit, SIZES[2] + BLOCK)
    replayed(replay, prompt, generated, policy.decisions)
    if limit == 250:
        assert replay.times_closed == 1
    layers = model.config.num_hidden_layers
    assert len(policy.seen) >= 3 * layers
    for seen, (layer, _, _) in zip(policy.seen, policy.decisions, strict=True):
        queries = np.concatenate([query for query, _ in calls[layer::layers]])
        keys = np.concatenate([key for _, key in calls[layer::layers]])
        half = len(seen["frequencies"])
        np.testing.assert_allclose(seen["keys"], keys[seen["positions"]], atol=1e-4)
        # The prompt's last 64, and all that were generated.
        processed = seen["positions"][-1] + 1
        observed = queries[200 - 64 : processed]
        assert seen["count"] == len(observed)
        np.testing.assert_allclose(seen["mean_query"], observed.mean(0), atol=1e-4)
        amplitudes = np.hypot(observed[..., :half], observed[..., half : 2 * half])
        np.testing.assert_allclose(seen["mean_amplitude"], amplitudes.mean(0), atol=1e-4)
        # The first tokens stay, so the reference still holds their values.
        first = replay.cache.layers[layer].values[0, :, : SIZES[0]].transpose(0, 1).numpy()
        np.testing.assert_allclose(seen["values"][: SIZES[0]], first, atol=1e-4)


@pytest.mark.parametrize("properties", [F32, OPENVINO])
@pytest.mark.parametrize("during_prefill", [False, True])
def test_tokens_of_a_block_that_is_not_full_may_go(
    tmp_path: Path, tokenizer_folder: Path, during_prefill: bool, properties: dict[str, str]
) -> None:
    """A budget that is no multiple of the block size and keeps almost no recent tokens."""
    model = convert_tiny("llama3", tmp_path, tokenizer_folder)
    policy, generated, log_probs = run_with_recorded_evictions(
        tmp_path,
        tiny_models.random_ids(200),
        80,
        (5, 1, 75),
        properties,
        apply_rotation=True,
        position_limit=CLOSED_UP,
        granularity="token",
        evict_during_prefill=during_prefill,
    )
    assert any(slots[-1] >= held // 32 * 32 for _, held, slots in policy.decisions)
    expected = replayed(
        Replay(model, rotation=True), tiny_models.random_ids(200), generated, policy.decisions
    )
    chosen = expected[np.arange(len(generated)), generated]
    np.testing.assert_allclose(log_probs, chosen, atol=2e-3)


@pytest.mark.parametrize("name", ["llama3", "smollm3", "phi3", "gemma3"])
def test_the_openvino_backend_evicts_architectures_alike(
    tmp_path: Path, tokenizer_folder: Path, name: str
) -> None:
    """Scaled frequencies, layers without positions, partial rotation, two rotary bases."""
    model = convert_tiny(name, tmp_path, tokenizer_folder)
    prompt = tiny_models.random_ids(200)
    policy, generated, log_probs = run_with_recorded_evictions(
        tmp_path,
        prompt,
        80,
        SIZES,
        OPENVINO,
        apply_rotation=True,
        position_limit=CLOSED_UP,
        granularity="token",
    )
    replay = Replay(model, rotation=True)
    expected = replayed(replay, prompt, generated, policy.decisions, replay.slides)
    chosen = expected[np.arange(len(generated)), generated]
    np.testing.assert_allclose(log_probs, chosen, atol=2e-3)
