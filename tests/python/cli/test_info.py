"""`pagewheel info`: what a folder holds, in words and as JSON."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import openvino as ov
import openvino.opset13 as ops
import pytest
from command_line import invoke, run
from convert import tiny_models
from openvino_core import CORE

import pagewheel
from pagewheel._pagewheel import describe_threads
from pagewheel.cli.info import operation_rows
from pagewheel.convert import convert
from pagewheel.model_info import read_info


def tiny_model(folder: Path) -> Path:
    """An IR folder with one f32 constant of 2 x 3."""
    parameter = ops.parameter([2, 3], np.float32)
    total = ops.add(parameter, ops.constant(np.arange(6, dtype="f4").reshape(2, 3)))
    model = ov.Model([total], [parameter])
    ov.save_model(model, folder / "openvino_model.xml", compress_to_fp16=False)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_size": 32,
        "vocab_size": 100,
        "max_position_embeddings": 64,
        "rope_theta": 5000.0,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", ["config.json", "pagewheel.json"])
@pytest.mark.parametrize("text", ["[" * 200_000, "[]", "{", '{"a":' * 200_000, "\xff"])
def test_info_of_a_damaged_folder_is_one_line(tmp_path: Path, name: str, text: str) -> None:
    (tiny_model(tmp_path) / name).write_bytes(text.encode("latin-1"))
    result = invoke("info", str(tmp_path))
    assert result.exit_code == 1
    assert name in result.stderr and result.stderr.startswith("error: ")


def test_info_says_that_a_value_has_the_wrong_type(tmp_path: Path) -> None:
    text = json.dumps({"num_attention_heads": "four", "hidden_size": "many"})
    (tiny_model(tmp_path) / "config.json").write_text(text, encoding="utf-8")
    result = invoke("info", str(tmp_path))
    assert result.exit_code == 1
    assert "is damaged: TypeError" in result.stderr
    with pytest.raises(ValueError, match="is damaged: TypeError") as caught:
        read_info(tmp_path)
    assert isinstance(caught.value.__cause__, TypeError)


def test_info_reads_shape_weights_and_cache_size(tmp_path: Path) -> None:
    info = read_info(tiny_model(tmp_path))
    assert (info.layers, info.heads, info.kv_heads, info.head_size) == (2, 4, 2, 8)
    assert info.rotary == {"theta": 5000.0}
    assert info.weights["f32"].bytes == 24
    assert info.kv_cache_bytes_per_token == {"f32": 256, "f16": 128, "u8": 64, "u4": 32}


def test_info_counts_each_layer_of_a_model_whose_layers_differ(tmp_path: Path) -> None:
    """Four layers of two kinds, of which two read the caches of the others."""
    config = {
        "model_type": "gemma4_text",
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "global_head_dim": 16,
        "hidden_size": 32,
        "intermediate_size": 32,
        "vocab_size": 100,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "sliding_window": 24,
    }
    (tiny_model(tmp_path) / "config.json").write_text(json.dumps(config), encoding="utf-8")
    info = read_info(tmp_path)
    assert info.kv_cache_bytes_per_token["f16"] == 2 * (2 * 2 * 8 + 2 * 2 * 16)
    assert info.windows == {0: 2, 24: 2}
    text = invoke("info", str(tmp_path)).stdout
    assert "24 in 2 layers" in text


def test_info_counts_what_a_token_uses_of_the_experts(tmp_path: Path) -> None:
    source = tiny_models.save(tiny_models.make("qwen3_moe"), tmp_path / "source")
    folder = convert(source, tmp_path / "model", progress=False)
    info = read_info(folder)
    assert info.active_parameters is not None
    experts = 2 * 5 * 3 * 36 * 60  # layers, experts, matrices
    assert info.parameters is not None and info.weight_bytes_per_token is not None
    assert info.parameters - info.active_parameters == experts * 3 // 5
    embeddings = tiny_models.VOCABULARY * 60
    norms_and_more = info.weight_bytes_per_token - 4 * (info.active_parameters - embeddings)
    assert 0 <= norms_and_more < 4096
    text = invoke("info", str(folder)).stdout
    assert f"million, {info.active_parameters / 1e6:,.1f} million active; a token reads" in text


def test_info_prints_json(tmp_path: Path) -> None:
    result = invoke("info", str(tiny_model(tmp_path)), "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["architecture"] == "LlamaForCausalLM"


def test_info_says_what_fast_prefill_trims(tiny_folder: Path) -> None:
    """Of the last of two layers all but keys and values."""
    result = invoke("info", "--ops", "--json", str(tiny_folder))
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["fast_prefill"]
    assert (found["layers"], found["attention_nodes"]) == (1, 1)
    assert 0.3 < found["work_skipped"] < 0.5
    text = invoke("info", "--ops", str(tiny_folder)).stdout
    share = f"{found['work_skipped']:.1%}"
    assert f"fast prefill        trims 1 layer, 1 attention node: {share} of a prompt's" in text
    assert all(why in text for why in found["why"])


@pytest.mark.parametrize(
    ("layers", "attention_nodes", "work_skipped", "why", "lines"),
    [
        (3, 2, 0.6195, [], ["trims 3 layers, 2 attention nodes: 62.0% of a prompt's work"]),
        (0, 0, 0.125, ["Abs_1 is why"], ["trims less than a layer: 12.5% of", "Abs_1 is why"]),
        (0, 0, 0.0, ["Abs_1 is why", "so is TopK_2"],
         ["trims nothing", "Abs_1 is why", "so is TopK_2"]),
        (0, 0, 0.0, [], ["trims nothing"]),
    ],
)  # fmt: skip
def test_info_prints_what_is_trimmed_and_why_not_more(
    layers: int, attention_nodes: int, work_skipped: float, why: list[str], lines: list[str]
) -> None:
    found = {
        "layers": layers,
        "attention_nodes": attention_nodes,
        "work_skipped": work_skipped,
        "why": why,
    }
    operations = {
        "operations": {},
        "left_to_openvino": [],
        "linear_layers": "",
        "fast_prefill": found,
    }
    ((label, text),) = operation_rows(operations)
    assert label == "fast prefill"
    assert len(text.splitlines()) == len(lines)
    for got, expected in zip(text.splitlines(), lines, strict=True):
        assert got.startswith(expected)


def test_info_says_what_linear_layers_round_to(tiny_folder: Path) -> None:
    text = invoke("info", "--ops", str(tiny_folder)).stdout
    assert re.search(r"linear layers +(amx|avx512|avx2) kernels, activations in int16 up to", text)
    described = pagewheel._pagewheel.describe_operations
    asked = described(str(tiny_folder), "CPU", {"activation_precision": "int8"}).linear
    assert asked.endswith(" kernels, activations in int8")
    assert described(str(tiny_folder), "CPU", {"linear_backend": "openvino"}).linear == ""


def test_info_says_what_keeps_more_from_being_trimmed(tiny_folder: Path, tmp_path: Path) -> None:
    """By an operation of no known rule before the vocabulary's matrix."""
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "folder"))
    model = CORE.read_model(tiny_folder / "openvino_model.xml")
    head = model.get_results()[0].input_value(0).get_node()
    assert head.get_type_name() == "MatMul"
    rolled = ops.roll(head.input_value(0), ops.constant(0), ops.constant(1))
    rolled.set_friendly_name("the_roll")
    head.input(0).replace_source_output(rolled.output(0))
    ov.save_model(model, folder / "openvino_model.xml", compress_to_fp16=False)
    text = invoke("info", "--ops", str(folder)).stdout
    assert "fast prefill        trims nothing\n" in text
    assert "the_roll (Roll) is not known to keep tokens apart" in text


def test_info_without_operations_says_nothing_of_them(tiny_folder: Path) -> None:
    assert "fast_prefill" not in json.loads(invoke("info", "--json", str(tiny_folder)).stdout)
    assert "fast prefill" not in invoke("info", str(tiny_folder)).stdout


def test_info_says_what_a_config_does_not_state(tmp_path: Path) -> None:
    (tiny_model(tmp_path) / "config.json").unlink()
    result = invoke("info", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "not stated" in result.stdout


@pytest.mark.usefixtures("default_model_is_converted")
def test_info_of_the_default_model() -> None:
    result = run("info", "--json")
    assert result.returncode == 0, result.stderr
    info = json.loads(result.stdout)
    assert (info["layers"], info["heads"], info["kv_heads"], info["head_size"]) == (30, 9, 3, 64)


def test_info_says_how_many_threads_there_are_and_why(tmp_path: Path) -> None:
    default = describe_threads()
    lines = invoke("info", str(tiny_model(tmp_path))).stdout.splitlines()
    assert f"{'threads':<20}{default.count}: {default.why}" in lines
    found = json.loads(invoke("info", str(tmp_path), "--json").stdout)
    assert found["threads"] == {"count": default.count, "why": default.why}
