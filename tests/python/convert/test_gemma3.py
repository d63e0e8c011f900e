"""Gemma 3 270M, Q4_K_M: five tensor types, windows, two rotary bases, SentencePiece.

Runs where conftest's gemma3_file is at hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import openvino as ov
import pytest
import torch
from conftest import F32, greedy
from convert.sentencepiece_reference import reference
from convert.stateful_decoder import Decoder, relative
from convert.tokenizer_reference import corpus
from eviction_replay import Replay, replayed, run_with_recorded_evictions
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

import pagewheel
from benchmarks.prompts import real_text
from pagewheel.convert.gguf.blocks import decode
from pagewheel.convert.gguf.file import GGUFFile
from pagewheel.convert.gguf.vocabulary import read_vocabulary
from pagewheel.convert.weights.weight import DenseWeight, Weight, dense_f32


@pytest.fixture(scope="module")
def tokenizer(gemma3_folder: Path) -> pagewheel.Tokenizer:
    return pagewheel.Tokenizer(gemma3_folder)


def tokens(tokenizer: pagewheel.Tokenizer, text: str, count: int) -> list[int]:
    return tokenizer.encode(text).input_ids.data[0].tolist()[:count]


def values_of(weight: Weight) -> Any:
    """f32; with more than f16's precision, as OpenVINO's kernels have it."""
    if isinstance(weight, DenseWeight):
        return dense_f32(weight)
    values = weight.values
    if weight.element_type == ov.Type.u4:
        values = np.stack([values & 15, values >> 4], -1)
    elif weight.element_type == ov.Type.i8:
        values = values.view(np.int8)
    groups = values.reshape(*weight.scale.shape, -1).astype(np.float32)
    zero_point = weight.zero_point
    if isinstance(zero_point, np.ndarray):
        zero_point = zero_point[..., None]
    groups -= 0 if zero_point is None else zero_point
    return (groups * weight.scale.astype(np.float32)[..., None]).reshape(weight.shape)


@pytest.fixture(scope="module")
def model(gemma3_file: Path) -> Gemma3ForCausalLM:
    """transformers' model with the weights that the file's constants stand for, which
    test_weight_constants.py compares with the gguf package's.
    """
    config = Gemma3TextConfig(
        vocab_size=262144,
        hidden_size=640,
        intermediate_size=2048,
        num_hidden_layers=18,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=256,
        max_position_embeddings=32768,
        sliding_window=512,
        query_pre_attn_scalar=256,
        tie_word_embeddings=True,
    )
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GEMMA3, config.num_hidden_layers)
    with torch.device("meta"):
        model = Gemma3ForCausalLM(config)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(gemma3_file).tensors}
    state = {}
    for name in model.state_dict():
        if name == "lm_head.weight":
            continue
        tensor = tensors.pop(f"{names.get_name(name.removesuffix('.weight'))}.weight")
        shape = tuple(int(each) for each in tensor.shape[::-1])
        weight = decode(tensor.name, tensor.tensor_type, shape, tensor.data.view(np.uint8))
        values = values_of(weight)
        state[name] = torch.from_numpy(values - 1 if "norm" in name else values)
    assert not tensors
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True, assign=True)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    model.model.embed_tokens.embed_scale = torch.tensor(config.hidden_size**0.5)
    return model.eval()


def test_logits_and_text_are_transformers(
    gemma3_folder: Path, model: Gemma3ForCausalLM, tokenizer: pagewheel.Tokenizer
) -> None:
    ids = tokens(tokenizer, real_text(None), 600)  # beyond the window of 512
    rows = list(range(0, 590, 5))  # of the prompt; of 262,144 logits each
    with torch.no_grad():
        kept = torch.tensor([*rows, *range(590, 600)])
        expected = model(torch.tensor([ids]), logits_to_keep=kept).logits[0].numpy()
        prompt = torch.tensor([ids[:100]])
        continued = model.generate(prompt, max_new_tokens=16, do_sample=False)[0, 100:].tolist()
    decoder = Decoder(gemma3_folder)
    got = np.concatenate([decoder(ids[:590])[rows], *(decoder([token]) for token in ids[590:])])
    assert relative(got, expected) < 5e-4
    for backend in ("native", "openvino"):
        pipeline = pagewheel.LLMPipeline(
            gemma3_folder, "CPU", {**F32, "attention_backend": backend}
        )
        encoded = pagewheel.TokenizedInputs(np.array([ids[:100]]), np.ones((1, 100), np.int64))
        assert pipeline.generate(encoded, greedy(16)).tokens[0] == continued


def test_every_matrix_runs_on_pagewheels_kernels(gemma3_folder: Path) -> None:
    assert pagewheel._pagewheel.describe_operations(str(gemma3_folder)).left == []


def test_evictions_with_rotation_equal_a_replay_in_transformers(
    gemma3_folder: Path, model: Gemma3ForCausalLM, tokenizer: pagewheel.Tokenizer
) -> None:
    """Keys of both rotary bases are rotated. A policy chooses in every layer while the budget is
    less than the windows of 512; beyond them, layers that slide lose their oldest tokens."""
    ids = tokens(tokenizer, real_text(None), 640)
    for granularity, budget, length in (("block", 128, 200), ("token", 576, 640)):
        policy, generated, log_probs = run_with_recorded_evictions(
            gemma3_folder,
            ids[:length],
            40,
            (32, 32, budget),
            apply_rotation=True,
            position_limit=1,
            granularity=granularity,
        )
        replay = Replay(model, rotation=True)
        oldest = replay.slides if budget > 512 else lambda _layer: False
        expected = replayed(replay, ids[:length], generated, policy.decisions, oldest)
        assert len({held for _, held, _ in policy.decisions}) > 1  # at the prompt's end and later
        assert expected.argmax(-1).tolist() == generated
        chosen = expected[np.arange(len(generated)), generated]
        np.testing.assert_allclose(log_probs, chosen, atol=1e-3)


def test_text_becomes_the_tokens_of_sentencepiece_and_returns(
    gemma3_file: Path, tokenizer: pagewheel.Tokenizer
) -> None:
    with GGUFFile(gemma3_file) as file:
        vocabulary = read_vocabulary(file, 32768)
    processor = reference(vocabulary)
    for line in corpus(31, 5000):
        ids = tokenizer.encode(line, add_special_tokens=False).input_ids.data[0].tolist()
        assert ids == processor.encode(line)
        if ids:
            assert tokenizer.decode(ids) == processor.decode(ids) == line
