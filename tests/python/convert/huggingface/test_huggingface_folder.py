"""Hugging Face folders are read whatever types and shards their weights are in."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import F32, greedy
from convert import tiny_models
from convert.huggingface_folders import config, edit_json
from convert.stateful_decoder import Decoder, relative
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

import pagewheel
from pagewheel.cli.app import app
from pagewheel.convert import convert, resolve_model
from pagewheel.convert.files.source_folder import SourceFolder
from pagewheel.convert.huggingface.source import HuggingFaceSource

TEXT = tiny_models.random_ids(60)


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_models.make("llama3")


@pytest.fixture(scope="module")
def whole(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.save(model, tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def sharded(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny_models.save(model, tmp_path_factory.mktemp("shards"), max_shard_size="60KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    return folder


def source(folder: Path) -> HuggingFaceSource:
    return HuggingFaceSource(SourceFolder(folder))


def test_a_folder_runs_in_one_call_and_is_converted_once(whole: Path, model: Any) -> None:
    pipeline = pagewheel.LLMPipeline(whole, "CPU", F32)
    tokenizer = tiny_models.byte_tokenizer()
    for text in ("then there", "  two spaces, Ça và? 你好\n"):
        ids = pipeline.get_tokenizer().encode(text).input_ids.data[0].tolist()
        assert ids == tokenizer.encode(text).ids
        expected = model.generate(
            torch.tensor([ids]), max_new_tokens=12, do_sample=False, eos_token_id=None
        )[0, len(ids) :]
        got = pipeline.generate([text], greedy(12, apply_chat_template=False))
        assert got.texts[0] == pipeline.get_tokenizer().decode(expected.tolist())
    assert resolve_model(whole) == convert(whole)


def test_shards_give_the_weights_of_one_file(whole: Path, sharded: Path) -> None:
    one, many = source(whole), source(sharded)
    assert one.architecture == many.architecture
    for name in ("embed_tokens", "layers.1.mlp.down_proj", "layers.0.self_attn.q_proj.bias"):
        assert (one.weight(name).values == many.weight(name).values).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_checkpoints_are_exact(tmp_path: Path, dtype: torch.dtype) -> None:
    folder = tiny_models.save(tiny_models.make("qwen3").to(dtype), tmp_path / "source")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    decoder = Decoder(convert(folder, tmp_path / "converted", progress=False))
    assert relative(decoder(TEXT), tiny_models.logits(model, TEXT)) < 1e-4


@pytest.mark.parametrize("suffix", ["weight_scale_inv", "weight_scale"])
def test_8_bit_float_checkpoints_are_multiplied_by_their_scales(
    whole: Path, tmp_path: Path, suffix: str
) -> None:
    """Scales for blocks of 16 x 16, and one scale for a tensor."""
    folder = Path(shutil.copytree(whole, tmp_path / "f8"))
    tensors, expected = load_file(folder / "model.safetensors"), {}
    for name in [each for each in tensors if each.endswith("_proj.weight")]:
        rows, columns = tensors[name].shape
        scale = 0.01 + torch.rand(-(-rows // 16), -(-columns // 16))
        if suffix == "weight_scale":
            scale = scale[:1, :1].reshape(())
        tensors[name] = (tensors[name] * 20).to(torch.float8_e4m3fn)
        tensors[name.removesuffix("weight") + suffix] = scale
        spread = scale
        if scale.ndim:
            spread = scale.repeat_interleave(16, 0).repeat_interleave(16, 1)[:rows, :columns]
        expected[name] = tensors[name].float() * spread
    save_file(tensors, folder / "model.safetensors")
    edit_json(
        folder / "config.json", lambda c: c.update(quantization_config={"quant_method": "fp8"})
    )
    read = source(folder)
    for name, value in expected.items():
        got = read.weight(name.removeprefix("model.").removesuffix(".weight")).values
        np.testing.assert_array_equal(got, value.numpy())


def test_mxfp4_experts_are_read_as_they_are_packed(tmp_path: Path) -> None:
    """gpt-oss keeps its experts so; the reference gets their values, by the format's table."""
    model = tiny_models.make("gpt_oss-even")
    folder = tiny_models.save(model, tmp_path / "source")
    tensors = load_file(folder / "model.safetensors")
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    table = torch.cat([table, -table])
    generator = torch.Generator().manual_seed(4)
    state = model.state_dict()
    for name in [each for each in tensors if each.endswith(("gate_up_proj", "down_proj"))]:
        experts, columns, rows = tensors.pop(name).shape
        shape = (experts, rows, columns // 32)
        blocks = torch.randint(0, 256, (*shape, 16), dtype=torch.uint8, generator=generator)
        scales = torch.randint(122, 126, shape, dtype=torch.uint8, generator=generator)
        tensors[f"{name}_blocks"], tensors[f"{name}_scales"] = blocks, scales
        values = torch.stack([table[(blocks & 15).long()], table[(blocks >> 4).long()]], -1)
        values = values.flatten(3) * 2.0 ** (scales.float() - 127)[..., None]
        state[name].copy_(values.flatten(2).transpose(1, 2))
    save_file(tensors, folder / "model.safetensors")
    config(quantization_config={"quant_method": "mxfp4"})(folder)
    decoder = Decoder(convert(folder, tmp_path / "converted", progress=False))
    assert relative(decoder(TEXT), tiny_models.logits(model, TEXT)) < 1e-4


def test_longrope_takes_the_long_factors_for_a_longer_context(tmp_path: Path) -> None:
    model = tiny_models.make("phi3-longrope")
    folder = tiny_models.save(model, tmp_path / "source")
    text = tiny_models.random_ids(420)  # transformers changes over at 400
    short = convert(folder, tmp_path / "short", progress=False)
    long = convert(folder, tmp_path / "long", context_length=1024, progress=False)
    contexts = [
        json.loads((f / "pagewheel.json").read_text())["context_length"] for f in (short, long)
    ]
    assert contexts == [400, 1024]
    assert relative(Decoder(long)(text), tiny_models.logits(model, text)) < 1e-4


def test_text_part_of_a_larger_model_is_found(whole: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "larger"))
    tensors = load_file(folder / "model.safetensors")
    renamed = {
        name.replace("model.", "model.language_model.", 1): tensor
        for name, tensor in tensors.items()
    }
    save_file(
        {**renamed, "model.vision_tower.x.weight": torch.ones(3)}, folder / "model.safetensors"
    )
    text = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({"model_type": "llava", "text_config": text}))
    got, expected = source(folder), source(whole)
    assert got.architecture == expected.architecture
    assert (got.weight("norm").values == expected.weight("norm").values).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weight_format": "int3"}, "weight_format is 'int3'; allowed: auto, f16, int8, int4"),
        ({"group_size": 48}, "group_size is 48; allowed: 32, 64, 128"),
        ({"context_length": 0}, "context_length is 0"),
    ],
)
def test_options_that_are_not_allowed_are_named(
    whole: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        convert(whole, **options)


def test_the_command_line_converts_with_options(whole: Path, tmp_path: Path) -> None:
    arguments = ["convert", str(whole), str(tmp_path / "out"), "--weight-format", "int8", "-q"]
    result = CliRunner().invoke(app, [*arguments, "--symmetric"])
    assert result.exit_code == 0, result.output
    description = json.loads((tmp_path / "out" / "pagewheel.json").read_text())
    assert description["source"]["weight_format"] == "int8 symmetric"
    shown = CliRunner().invoke(app, ["info", str(tmp_path / "out")]).stdout
    assert "int8 symmetric" in shown
    refused = CliRunner().invoke(app, ["convert", str(whole), "--weight-format", "int3"])
    assert refused.exit_code == 2
    assert "allowed: auto, f16, int8, int4" in refused.stderr
