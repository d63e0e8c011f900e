"""Random weights in the shape of Gemma 3n."""

from __future__ import annotations

from pathlib import Path

import pagewheel
from benchmarks.gemma3n_model import make_gemma3n
from pagewheel.model_info import read_info


def test_a_random_model_of_gemma_3ns_shape_runs(tmp_path: Path) -> None:
    count = make_gemma3n(
        tmp_path / "model",
        vocab_size=300,
        vocab_size_per_layer_input=300,
        hidden_size=64,
        hidden_size_per_layer_input=32,
        intermediate_size=128,
        num_hidden_layers=4,
        num_kv_shared_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        laurel_rank=32,
        layer_types=["sliding_attention", "full_attention"] * 2,
        activation_sparsity_pattern=[0.95, 0.0, 0.0, 0.0],
    )
    assert 200_000 < count < 400_000
    info = read_info(tmp_path / "model")
    assert info.weight_format == "int4 asymmetric groups of 64"
    assert info.kv_cache_bytes_per_token["f32"] == 2 * 2 * 32 * 4  # of two layers out of four
    pipeline = pagewheel.LLMPipeline(tmp_path / "model", "CPU")
    result = pipeline.generate([[5, 6, 7]], max_new_tokens=3, ignore_eos=True)
    assert len(result.tokens[0]) == 3
