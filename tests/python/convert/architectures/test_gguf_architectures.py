"""Each architecture as a GGUF file gives transformers' logits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import openvino as ov
import pytest
from convert import tiny_models
from convert.gguf_models import write
from convert.stateful_decoder import Decoder, relative
from gguf.constants import GGMLQuantizationType as Kind

from pagewheel.convert import ConversionError
from pagewheel.convert.gguf.file import GGUFFile
from pagewheel.convert.gguf.source import GGUFSource
from pagewheel.convert.graph.model import build_model
from pagewheel.convert.weights.weight import dense_f32

# Files have one number of heads for both kinds of layers.
KIMI = {"linear_num_heads": 6}
# What llama.cpp's files have no key for is left at the value that llama.cpp takes.
CHANGES: dict[str, dict[str, Any]] = {
    "qwen3_5-odd": {"layer_types": ["linear_attention", "full_attention", "linear_attention"]},
    "lfm2": {"block_auto_adjust_ff_dim": False},
    "lfm2-bias": {"conv_bias": False},
    "lfm2_moe": {"routed_scaling_factor": 1.0},
    "granitemoehybrid-experts": {
        "time_step_limit": [0.0, float("inf")],
        "shared_intermediate_size": 44,
        "layer_types": ["full_attention", "linear_attention"],
        "mamba_proj_bias": False,
    },
    "falcon_h1-norm": {
        "mamba_norm_before_gate": False,
        **dict.fromkeys(
            ("projectors_bias", "attention_bias", "mlp_bias", "mamba_proj_bias"), False
        ),
    },
    "nemotron_h": {"time_step_min": 1e-9},
    "kimi_linear": KIMI,
    "kimi_linear-odd": {**KIMI, "q_lora_rank": None},
    "llama3": {"attention_bias": False, "mlp_bias": False},
    "mistral": {"sliding_window": None},
    "mixtral": {"sliding_window": None},
    "smollm3": {"no_rope_layer_interval": 4, "num_hidden_layers": 4},
    "qwen2": {"use_sliding_window": False, "sliding_window": None},
    "gemma2": {"query_pre_attn_scalar": 32},
    "deepseek_v3": {"rope_parameters": {**tiny_models.YARN, "mscale": 0.7, "mscale_all_dim": 0.7}},
    "gemma3": {
        "query_pre_attn_scalar": 32,
        "num_hidden_layers": 6,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
    },
}


def logits(source: GGUFSource, ids: list[int]) -> Any:
    """All positions: half as a prompt, then the rest with a cache."""
    decoder = Decoder(build_model(source.architecture, source.weight))
    half = len(ids) // 2
    return np.concatenate(
        [decoder(each) for each in (ids[:half], ids[half : half + 1], ids[half + 1 :])]
    )


NAMES = [
    name
    for name, (model_type, _) in tiny_models.ARCHITECTURES.items()
    if model_type not in tiny_models.WITHOUT_GGUF
]


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_transformers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, options = tiny_models.ARCHITECTURES[name]
    changed = (kind, {**options, **CHANGES.get(name, {})})
    monkeypatch.setitem(tiny_models.ARCHITECTURES, name, changed)
    model = tiny_models.make(name)
    ids = tiny_models.random_ids(300)
    with tiny_models.without_attention_caps(model):  # OpenVINO's attention has none
        expected = tiny_models.logits(model, ids)
    with GGUFFile(write(model, tmp_path / "model.gguf")) as file:
        source = GGUFSource(file)
        cap = getattr(model.config, "attn_logit_softcapping", None)
        assert source.architecture.attention_soft_cap == (cap or 0.0)
        got = logits(source, ids)
    error = relative(got, expected)
    print(f"{error:.1e}")
    assert error < 1e-4


def test_deepseeks_keys_and_values_may_be_one_tensor(tmp_path: Path) -> None:
    """As in files before 2025-04, which describe heads as the model has them."""
    model = tiny_models.make("deepseek_v2")
    ids = tiny_models.random_ids(60)
    with GGUFFile(write(model, tmp_path / "model.gguf", fused_latent=True)) as file:
        assert "blk.0.attn_kv_b.weight" in file.tensors
        got = logits(GGUFSource(file), ids)
    assert relative(got, tiny_models.logits(model, ids)) < 1e-4


def test_an_expert_may_have_tensors_of_its_own(tmp_path: Path) -> None:
    """As in Mixtral's files before 2024-04."""
    model = tiny_models.make("mixtral")
    ids = tiny_models.random_ids(30)  # shorter than a window
    path = write(model, tmp_path / "model.gguf", tensor_per_expert=True)
    with GGUFFile(path) as file:
        assert "blk.0.ffn_up.4.weight" in file.tensors
        got = logits(GGUFSource(file), ids)
        assert relative(got, tiny_models.logits(model, ids)) < 1e-4
        del file.tensors["blk.0.ffn_up.3.weight"]
        with pytest.raises(ConversionError, match=r"4 tensors like 'blk\.0\.ffn_up\.0\.weight'"):
            GGUFSource(file)


def test_kimis_projections_may_have_types_that_differ(tmp_path: Path) -> None:
    """As quantised files have them: values more bits than queries and keys."""
    model = tiny_models.make("kimi_linear", **KIMI)
    with GGUFFile(write(model, tmp_path / "model.gguf")) as file:
        rows = []
        for each, kind in (("q", Kind.Q5_1), ("k", Kind.F16), ("v", Kind.Q8_0)):
            tensor = file.tensors[f"blk.0.attn_{each}.weight"]
            data = gguf.quantize(tensor.data.view(np.float32), kind).view(np.uint8)
            file.tensors[tensor.name] = replace(tensor, type=kind, data=data)
            rows.append(gguf.dequantize(data, kind))
        weight = GGUFSource(file).weight("layers.0.linear_attn.in_proj_qkv")
    assert weight.shape == (3 * 192, 96)
    assert weight.element_type == ov.Type.i8
    want = np.concatenate(rows)
    assert np.abs(dense_f32(weight) - want).max() < np.abs(want).max() / 250


@pytest.mark.parametrize(
    ("tensor", "shape", "key", "value", "says"),
    [
        ("blk.0.ssm_conv1d_k.weight", None, "", 0, r"'blk\.0\.ssm_conv1d_k\.weight' is missing"),
        ("blk.2.ssm_conv1d_v.weight", (1, 32, 1, 24), "", 0, r"shape \[1, 32, 1, 24\]"),
        ("blk.0.attn_k.weight", (96, 192), "", 0, r"shape \[96, 192\], the metadata asks"),
        ("", None, "kda.head_dim", 0, "must be positive"),
        ("", None, "expert_gating_func", 1, "expert_gating_func must be 2, got 1"),
        ("", None, "attention.head_count_kv", [0, 1], "must be 3 integers"),
        ("", None, "ssm.conv_kernel", 1 << 20, "convolutions"),
    ],
)
def test_a_damaged_kimi_is_refused(
    tmp_path: Path, tensor: str, shape: tuple[int, ...] | None, key: str, value: Any, says: str
) -> None:
    with GGUFFile(write(tiny_models.make("kimi_linear", **KIMI), tmp_path / "model.gguf")) as file:
        if key:
            file.metadata[f"kimi-linear.{key}"] = value
        elif shape is None:
            del file.tensors[tensor]
        else:
            file.tensors[tensor] = replace(file.tensors[tensor], shape=shape)
        with pytest.raises(ConversionError, match=says):
            GGUFSource(file)


def test_stacked_experts_stay_in_the_files_type(tmp_path: Path) -> None:
    model = tiny_models.make("gpt_oss")
    with GGUFFile(write(model, tmp_path / "model.gguf", Kind.F16)) as file:
        weight = GGUFSource(file).weight("layers.1.mlp.experts.up_proj")
    assert weight.shape == (5, 52, 60)
    assert weight.element_type == ov.Type.f16
