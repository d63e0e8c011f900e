"""A config leaves out what equals its class' default: ours are transformers'."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import AutoConfig

from pagewheel.convert import ConversionError
from pagewheel.convert.architectures.registry import MODEL_TYPES, read_architecture


def value_of(config: Any, key: str) -> Any:
    if key == "rope_theta":
        parameters = config.rope_parameters
        return parameters.get("full_attention", parameters)["rope_theta"]
    if key == "rope_parameters":
        parameters = dict(config.rope_parameters)
        if not isinstance(next(iter(parameters.values())), dict):
            parameters.pop("rope_theta")
        return parameters
    if key == "attention_bias" and config.model_type == "qwen2":
        return True  # built in
    if key == "partial_rotary_factor" and not hasattr(config, key):
        return config.rope_parameters[key]
    config.allow_global_per_layer_attribute_access = True
    return getattr(config, key)


# transformers has no models that are called so.
OURS = ("yoco",)
# transformers' classes have no such value: a name that reading shares, and a context without end.
OUR_KEYS = {("nemotron_h", "mamba_n_heads"), ("mamba2", "max_position_embeddings")}


@pytest.mark.parametrize("model_type", [each for each in MODEL_TYPES if each not in OURS])
def test_defaults_are_those_of_transformers(model_type: str) -> None:
    config = AutoConfig.for_model(model_type)
    defaults = MODEL_TYPES[model_type].defaults
    for key, value in defaults.items():
        if (model_type, key) in OUR_KEYS:
            continue
        if key == "sliding_window" and "use_sliding_window" in defaults:
            continue  # transformers forgets the window where it is not used
        assert value_of(config, key) == value, key


GEMMA3N = {"model_type": "gemma3n_text", "num_kv_shared_layers": 0}
DEEPSEEK = {"model_type": "deepseek_v3"}
YOCO = {"model_type": "yoco"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"head_dim": 0}, "'head_dim' must be positive, got 0"),
        ({"num_attention_heads": True}, "'num_attention_heads' must be an integer, got True"),
        ({"rope_theta": -1.0}, "'rope_theta' must be a positive number, got -1.0"),
        ({"rope_scaling": 4}, "'rope_parameters' must be an object, got 4"),
        ({"partial_rotary_factor": 0.1}, "rotary dimensions must be even and positive, got 3"),
        ({"partial_rotary_factor": 2.0}, "64 rotary dimensions exceed the head size 32"),
        ({"hidden_size": None}, "'hidden_size' is missing"),
        ({"sliding_window": 0, "model_type": "mistral"}, "'sliding_window' must be positive"),
        ({"layer_types": ["chunked_attention"] * 2, "model_type": "mistral"}, "chunked_attention"),
        ({"layer_types": ["full_attention"], "model_type": "mistral"}, "must be 2 values"),
        ({"model_type": "gemma4_text", "enable_moe_block": True}, "num_experts"),
        ({**GEMMA3N, "altup_num_inputs": 2**31 - 1}, "must be 1 to 64, got 2147483647"),
        ({**GEMMA3N, "altup_active_idx": 4}, "the active stream must be 0 to 3, got 4"),
        ({**GEMMA3N, "altup_active_idx": -1}, "the active stream must be 0 to 3, got -1"),
        ({**DEEPSEEK, "kv_lora_rank": 2**31 - 1}, "rank of latent keys must be 1 to 65536, got 2"),
        ({**DEEPSEEK, "q_lora_rank": 2**31 - 1}, "query_rank of latent keys must be 0 to 65536"),
        (
            {**DEEPSEEK, "n_routed_experts": 2**31 - 1},
            "experts must be at most 65536",
        ),
        ({**DEEPSEEK, "n_group": 7}, "256 experts are no multiple of 7 groups"),
        ({**DEEPSEEK, "topk_group": 9}, "groups of experts must be 1 to 8, got 9"),
        ({**YOCO, "cache_of_layer": [None, 2]}, "layer 1 cannot read the cache of layer 2, which"),
        ({**YOCO, "cache_of_layer": [1, None]}, "layer 0 cannot read the cache of layer 1, which"),
        ({**YOCO, "cache_of_layer": [None, 1]}, "layer 1 cannot read the cache of layer 1, which"),
        ({**YOCO, "cache_of_layer": [None, -1]}, "layer 1 cannot read the cache of layer -1"),
        (
            {**YOCO, "cache_of_layer": [None, 0, 1], "num_hidden_layers": 3},
            "layer 2 cannot read the cache of layer 1, which is no earlier layer with a cache of",
        ),
        (
            {**YOCO, "cache_of_layer": [None]},
            "must be 2 numbers of layers or nulls, got ",
        ),
        ({**YOCO, "cache_of_layer": [None, True]}, "must be 2 numbers of layers or nulls"),
        ({**YOCO, "cache_of_layer": "half"}, "must be 2 numbers of layers or nulls, got 'half'"),
        ({**YOCO, "cache_of_layer": [None, 0], "num_kv_shared_layers": 1}, "cannot both be given"),
        ({**YOCO, "num_kv_shared_layers": 2}, "'num_kv_shared_layers' leaves 0 of 2 layers"),
        ({**YOCO, "num_kv_shared_layers": -1}, "'num_kv_shared_layers' leaves 3 of 2 layers"),
        (
            {**YOCO, "num_key_value_heads": [2, 1]},
            "layer 1 reads the cache of layer 0, but their kv heads differ",
        ),
        ({**YOCO, "num_key_value_heads": [2]}, "'num_key_value_heads' must be 2 values"),
    ],
)
def test_values_that_make_no_sense_are_named(changes: dict[str, Any], words: str) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "vocab_size": 100,
        **changes,
    }
    with pytest.raises(ConversionError, match=f"where: .*{words}"):
        read_architecture(config, "where")


@pytest.mark.parametrize(
    ("changes", "owners"),
    [
        ({}, [None, None, None, 2, 2]),
        ({"num_kv_shared_layers": 0}, [None] * 5),
        ({"num_kv_shared_layers": 1}, [None, None, None, None, 3]),
        ({"cache_of_layer": [None, 0, None, 2, 0]}, [None, 0, None, 2, 0]),
    ],
)
def test_yoco_shares_half_of_its_layers_unless_it_says_which(
    changes: dict[str, Any], owners: list[int | None]
) -> None:
    config = {**YOCO, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 5}
    config |= {"num_attention_heads": 2, "vocab_size": 100, **changes}
    layers = read_architecture(config, "where").layers
    assert [layer.attention.cache_of for layer in layers] == owners


def test_the_error_for_a_damaged_config_keeps_its_cause() -> None:
    """Which may be a mistake of the converter's."""
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2}
    config |= {"intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 100}
    with pytest.raises(ConversionError, match="the config is damaged") as caught:
        read_architecture({**config, "hidden_act": ["silu"]}, "where")
    assert isinstance(caught.value.__cause__, TypeError)
