"""What makers publish where transformers writes the same model otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from convert import tiny_models
from safetensors.numpy import load_file, save_file
from transformers import AutoConfig

from pagewheel.convert import convert
from pagewheel.convert.architectures.registry import read_architecture


def test_kimis_config_keeps_the_numbers_of_delta_attention_in_an_object() -> None:
    published = {
        "first_k_dense_replace": 2,
        "num_hidden_layers": 6,
        "num_experts_per_token": 4,
        "linear_attn_config": {
            "full_attn_layers": [3, 6],
            "kda_layers": [1, 2, 4, 5],
            "num_heads": 5,
            "head_dim": 24,
            "short_conv_kernel_size": 3,
        },
    }
    written = AutoConfig.for_model("kimi_linear", **published).to_dict()
    written.pop("linear_attn_config", None)
    arch = read_architecture({"model_type": "kimi_linear", **published}, "where")
    assert arch == read_architecture(written, "where")
    assert list(arch.attentions) == [2, 5]


def test_every_fourth_layer_of_kimi_attends_where_nothing_is_said() -> None:
    written = AutoConfig.for_model("kimi_linear").to_dict()
    assert read_architecture({"model_type": "kimi_linear"}, "where") == read_architecture(
        written, "where"
    )


@pytest.mark.parametrize(
    ("name", "written", "published"),
    [
        ("olmo_hybrid", "layers.1.feedforward_layer_norm", "layers.1.post_attention_layernorm"),
        ("kimi_linear", "layers.0.block_sparse_moe", "layers.0.mlp"),
    ],
)
def test_tensors_have_the_names_that_makers_or_transformers_gave_them(
    name: str, written: str, published: str, tmp_path: Path
) -> None:
    source = tiny_models.save(tiny_models.make(name), tmp_path / "source")
    expected = convert(source, tmp_path / "written", progress=False)
    tensors = load_file(source / "model.safetensors")
    assert any(written in each for each in tensors)
    renamed = {each.replace(written, published): values for each, values in tensors.items()}
    save_file(renamed, source / "model.safetensors")
    got = convert(source, tmp_path / "published", progress=False)
    weights = "openvino_model.bin"
    assert (got / weights).read_bytes() == (expected / weights).read_bytes()
