"""The converted decoder computes what transformers computes, and OpenVINO fuses it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import openvino.opset13 as ops
import pytest
import torch
from conftest import SHALLOW
from convert import tiny_llama
from convert.stateful_decoder import EXACT, Decoder, relative, runtime_layers
from gguf.constants import GGMLQuantizationType as Kind
from openvino._offline_transformations import paged_attention_transformation
from openvino_core import CORE
from references import dequantised_llama

from pagewheel.convert import convert
from pagewheel.convert.decoder.architecture import Attention
from pagewheel.convert.graph.attention import AttentionBuilder


def rope_freqs(tensors: dict[str, Any]) -> None:
    tensors["rope_freqs.weight"] = np.linspace(1, 8, tiny_llama.HEAD_SIZE // 2, dtype=np.float32)


@pytest.mark.parametrize(
    "options",
    [
        {"kind": Kind.Q4_0},
        {"kind": Kind.Q4_1, "tied": False},
        {"kind": Kind.Q8_0},
        {"kind": Kind.F16},
        {"kind": Kind.BF16, "tied": False},
        {"kind": Kind.F32},
        {"edit": rope_freqs},
        {"metadata": {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}},
    ],
    ids=["q4_0", "q4_1-untied", "q8_0", "f16", "bf16-untied", "f32", "llama3-rope", "linear-rope"],
)
def test_small_models_equal_transformers(tmp_path: Path, options: dict[str, Any]) -> None:
    path = tiny_llama.write(tmp_path / "model.gguf", **options)
    ids = np.random.default_rng(5).integers(0, 260, 40).tolist()
    # Far from the start as well: an error of the angles would show there.
    for first in (0, 400):
        positions = torch.arange(first, first + 40)[None]
        with torch.no_grad():
            model = dequantised_llama(path)
            expected = model(torch.tensor([ids]), position_ids=positions).logits[0].numpy()
        decoder = Decoder(convert(path))
        got = np.concatenate(
            [decoder(ids[:25], first_position=first)]
            + [decoder([ids[i]], first_position=first + i) for i in range(25, 40)]
        )
        assert relative(got, expected) < 2e-5


@pytest.fixture(scope="module")
def smollm2(smollm2_folder: Path) -> Decoder:
    return Decoder(smollm2_folder)


TEXT = Path(tiny_llama.__file__).read_bytes()[:900].decode() + " Ça va ? 你好, 1 2 3 👋🏽\n" * 4


def tokens(folder: Path, text: str) -> list[int]:
    import openvino_tokenizers  # noqa: F401  (teaches ov.Core the tokenizer's operations)

    tokenizer = CORE.compile_model(folder / "openvino_tokenizer.xml", "CPU")
    return [int(each) for each in tokenizer([text])["input_ids"][0]]


def test_smollm2_logits_equal_transformers(
    smollm2: Decoder, smollm2_folder: Path, smollm2_reference: Any
) -> None:
    ids = tokens(smollm2_folder, TEXT)[:300]
    assert len(ids) == 300
    with torch.no_grad():
        expected = smollm2_reference(torch.tensor([ids])).logits[0].numpy()
    smollm2.reset()
    assert relative(smollm2(ids), expected) < 1e-4


def test_smollm2_positions_are_exact_at_8000(
    smollm2: Decoder, smollm2_folder: Path, smollm2_reference: Any
) -> None:
    ids = tokens(smollm2_folder, TEXT)[:32]
    with torch.no_grad():
        positions = torch.arange(8000, 8032)[None]
        expected = smollm2_reference(torch.tensor([ids]), position_ids=positions).logits[0].numpy()
    smollm2.reset()
    assert relative(smollm2(ids, first_position=8000), expected) < 1e-4


@pytest.mark.parametrize("prompt", ["def fibonacci(n):\n", "Il était une fois"])
def test_smollm2_greedy_tokens_equal_transformers(
    smollm2: Decoder, smollm2_folder: Path, smollm2_reference: Any, prompt: str
) -> None:
    prompt_ids = tokens(smollm2_folder, prompt)
    smollm2.reset()
    got: list[int] = []
    step = prompt_ids
    while len(got) < 64:
        step = [int(smollm2(step)[-1].argmax())]
        got += step
    # Where every token is the reference's best after the same tokens, both went one way.
    with torch.no_grad():
        logits = smollm2_reference(torch.tensor([prompt_ids + got])).logits[0]
    assert got == logits[len(prompt_ids) - 1 : -1].argmax(-1).tolist()


def test_left_padding_changes_nothing(smollm2: Decoder, smollm2_folder: Path) -> None:
    ids = tokens(smollm2_folder, TEXT)[:12]
    smollm2.reset()
    alone = smollm2(ids)
    smollm2.reset()
    padded = smollm2.request.infer(
        {
            "input_ids": np.array([[2] * 5 + ids, ids + ids[:5]], np.int64),
            "attention_mask": np.array([[0] * 5 + [1] * 12, [1] * 17], np.int64),
            "position_ids": np.array([[0] * 5 + list(range(12)), range(17)], np.int64),
            "beam_idx": np.arange(2, dtype=np.int32),
        }
    )["logits"]
    assert relative(padded[0, 5:], alone) < 1e-4


@pytest.mark.parametrize("config", [EXACT, {}], ids=["f32", "default"])
def test_smollm2_is_fused_by_the_cpu_plugin(shallow_folder: Path, config: dict[str, str]) -> None:
    model = CORE.read_model(shallow_folder / "openvino_model.xml")
    layers = runtime_layers(model, config)
    paged_attention_transformation(model)
    paged = runtime_layers(model, config)
    for found in (layers, paged):
        kinds: Counter[str] = Counter()
        for (kind, _), count in found.items():
            kinds[kind] += count
        assert found["FullyConnected", "u4"] == 7 * SHALLOW
        assert found["FullyConnected", "i8"] == 1
        assert kinds["FullyConnected"] == 7 * SHALLOW + 1
        assert found["Gather", "i8"] == 1
        assert (kinds["RMS"], kinds["RoPE"]) == (2 * SHALLOW + 1, 2 * SHALLOW)
        # Angles at position 8000 need all of f32, whatever the inference precision.
        assert found["Math", "f32"] == kinds["Math"] == 2
    assert (
        sum(n for (kind, _), n in layers.items() if kind == "ScaledDotProductAttention") == SHALLOW
    )
    assert sum(n for (kind, _), n in paged.items() if kind == "PagedAttention") == SHALLOW
    assert "attention_mask" not in {port.get_any_name() for port in model.inputs}


def test_values_are_repeated_at_their_own_head_size() -> None:
    attention = Attention(heads=6, kv_heads=3, head_size=8, scale=1.0, separate_value_size=5)
    values = ops.parameter([1, 3, 7, attention.value_size])
    repeated = AttentionBuilder._repeat_kv(values, attention, attention.value_size)
    assert list(repeated.get_output_shape(0)) == [1, 6, 7, 5]
