"""Hugging Face folders: what is read, and the error for what may not be."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
import torch
from conftest import F32, greedy
from convert import tiny_models
from convert.stateful_decoder import Decoder, relative
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

import pagewheel
from pagewheel.cli.app import app
from pagewheel.convert import ConversionError, convert, resolve_model
from pagewheel.convert.huggingface.foreign_tokenizer import convert_foreign_tokenizer
from pagewheel.convert.huggingface.safetensors_file import read_safetensors
from pagewheel.convert.huggingface.source import HuggingFaceSource
from pagewheel.convert.huggingface.source_folder import SourceFolder

TEXT = tiny_models.random_ids(60)
INDEX = "model.safetensors.index.json"


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


@pytest.fixture
def damaged(sharded: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(sharded, tmp_path / "damaged"))


def source(folder: Path) -> HuggingFaceSource:
    return HuggingFaceSource(SourceFolder(folder))


def edit_json(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")


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


def remove_shard(folder: Path) -> None:
    sorted(folder.glob("*.safetensors"))[1].unlink()


def cut_shard(folder: Path) -> None:
    path = sorted(folder.glob("*.safetensors"))[1]
    path.write_bytes(path.read_bytes()[:-4])


def promise_more(folder: Path) -> None:
    edit_json(
        folder / INDEX, lambda i: i["weight_map"].update(x=next(iter(i["weight_map"].values())))
    )


def leave_the_folder(folder: Path) -> None:
    edit_json(folder / INDEX, lambda i: i["weight_map"].update(x="../model.safetensors"))


def link_out(folder: Path) -> None:
    path = sorted(folder.glob("*.safetensors"))[0]
    outside = folder.parent / "outside.safetensors"
    path.rename(outside)
    path.symlink_to(outside)


def config(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: edit_json(folder / "config.json", lambda c: c.update(changes))


def deep(name: str, levels: int = 200_000) -> Callable[[Path], None]:
    text = '{"a":[' * (levels // 2) + "]}" * (levels // 2)

    def write(folder: Path) -> None:
        (folder / name).write_text(text)

    return write


def less_deep(name: str) -> Callable[[Path], None]:
    """Not too deep for Python's reader, but for what writes and reads it again."""
    return deep(name, 600)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (remove_shard, r"shard model-00002-of-\d+\.safetensors is missing"),
        (cut_shard, r"model-00002-of-\d+\.safetensors is truncated"),
        (promise_more, "promises the tensor 'x'"),
        (leave_the_folder, r"'\.\./model\.safetensors' is no plain file name"),
        (link_out, "links out of the folder"),
        (lambda folder: (folder / "config.json").unlink(), "holds no config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "no JSON"),
        (config(hidden_size=64), "has shape .*config.json asks for"),
        (config(num_hidden_layers=3), r"layers\.2.*is missing"),
        (
            config(num_attention_heads=2**30, num_key_value_heads=2**30),
            "heads of 32 are more than any model has",
        ),
        (config(num_hidden_layers=1), r"tensor\(s\) that a llama model .* does not have"),
        (config(num_hidden_layers=0), "'num_hidden_layers' must be positive, got 0"),
        (config(num_key_value_heads=4), "no multiple of 4 kv heads"),
        (config(vocab_size="many"), "'vocab_size' must be an integer, got 'many'"),
        (config(mlp_bias=False), r"tensor\(s\) that a llama model"),
        (config(rms_norm_eps=float("nan")), "'rms_norm_eps' must be finite"),
        (config(hidden_act="tanh"), "hidden_act 'tanh' is not supported; supported: silu"),
        (config(model_type="mamba"), "'mamba' is not supported; supported: .*llama"),
        (config(quantization_config={"quant_method": "gptq"}), "'gptq' are not supported"),
        (config(rope_parameters={"rope_type": "odd"}), "rope_type 'odd' is not supported"),
        (config(rope_parameters={"rope_type": "linear"}), "need the number 'factor'"),
        (config(max_position_embeddings=2**32 - 1), "must be at most 2147483647, got 4294967295"),
        (config(max_position_embeddings=10**400), "must be at most 2147483647, got 1000"),
        (config(num_hidden_layers=2**30), "'num_hidden_layers' must be at most 65536"),
        (config(head_dim=2**30), "'head_dim' must be at most 65536"),
        (config(rms_norm_eps=-1.0), "'rms_norm_eps' must not be negative"),
        (config(rms_norm_eps=10**400), "'rms_norm_eps' must be finite"),
        (config(hidden_act=["silu"]), "the config is damaged"),
        (config(partial_rotary_factor=1e300), "rotary dimensions exceed the head size"),
        (config(rope_parameters={"rope_theta": 10**400}), "'rope_theta' must be a positive"),
        (config(rope_parameters={"rope_theta": 1e-300}), "inverse frequencies must be finite"),
        (config(rope_parameters={"rope_type": "linear", "factor": 10**400}), "the number 'factor'"),
        (
            config(rope_parameters={"rope_type": "yarn", "factor": 2.0, "rope_theta": 1.0}),
            "give no finite frequencies",
        ),
        (config(eos_token_id=1.5), "eos_token_id 1.5 is outside"),
        (config(eos_token_id=[2, 1.5]), r"eos_token_id must be integers, got \[2, 1\.5\]"),
        (deep("config.json"), r"config\.json has more than 100 arrays and objects"),
        (deep("generation_config.json"), r"generation_config\.json has more than 100"),
        (deep("tokenizer_config.json"), r"tokenizer_config\.json has more than 100"),
        (deep("tokenizer.json"), r"tokenizer\.json has more than 100"),
        (config(note="\ud83d\ude00 and \ud800"), r"config\.json has half a character"),
        (less_deep("config.json"), r"config\.json has more than 100 arrays and objects"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said(
    damaged: Path, damage: Callable[[Path], None], words: str
) -> None:
    damage(damaged)
    with pytest.raises(ConversionError, match=words):
        convert(damaged)


def with_own_code(folder: Path, target: Path, mark: Path) -> Path:
    """Has a tokenizer that is not supported and brings a class of its own, which leaves a mark."""
    shutil.copytree(folder, target)
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0}, "<unk>"))
    tokenizer.save(str(target / "tokenizer.json"))
    own = {"AutoTokenizer": ["own.OwnTokenizer"] * 2}
    names = {"tokenizer_class": "OwnTokenizer", "auto_map": own}
    (target / "tokenizer_config.json").write_text(json.dumps(names))
    (target / "own.py").write_text(
        f"open({str(mark)!r}, 'w').close()\n"
        "from transformers import PreTrainedTokenizer\n"
        "class OwnTokenizer(PreTrainedTokenizer): pass\n"
    )
    return target


def test_a_folder_does_not_run_its_own_code_nor_asks_to(whole: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    folder = with_own_code(whole, tmp_path / "folder", mark)
    code = "from pagewheel.cli import main; main()"
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home")}
    result = subprocess.run(
        [sys.executable, "-c", code, "info", str(folder)],
        input="y\n" * 9,
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert not mark.exists()
    assert result.returncode == 1
    assert "the tokenizer cannot be converted" in result.stderr
    assert "[y/N]" not in result.stdout


def test_a_tokenizer_left_to_transformers_does_not_link_out_of_the_folder(
    whole: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "folder"))
    Tokenizer(models.WordLevel({"<unk>": 0}, "<unk>")).save(str(folder / "tokenizer.json"))
    (tmp_path / "secret").write_text("secret")
    (folder / "vocab.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(ConversionError, match="links out of the folder"):
        convert(folder)


def test_settings_of_a_tokenizer_left_to_transformers_name_no_file(tmp_path: Path) -> None:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (tmp_path / "secret").write_text("\n".join([*special, "secretword"]))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join([*special, "ownword"]))
    paths = {"vocab": str(tmp_path / "secret"), "vocab_file": str(tmp_path / "secret")}
    names = {"tokenizer_class": "BertTokenizer", "do_lower_case": False}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        (folder / name).write_text(json.dumps(names | paths))
    tokenizer, _ = convert_foreign_tokenizer(SourceFolder(folder))
    ov.save_model(tokenizer, tmp_path / "tokenizer.xml")
    saved = (tmp_path / "tokenizer.bin").read_bytes()
    assert b"ownword" in saved
    assert b"secretword" not in saved


def test_links_that_only_look_like_the_hub_caches_are_not_followed(
    whole: Path, tmp_path: Path
) -> None:
    (tmp_path / "private").write_text("{}")
    for parent in (tmp_path / "snapshots", tmp_path / "models--a--b" / "snapshots"):
        folder = Path(shutil.copytree(whole, parent / "m"))
        (folder / "tokenizer_config.json").unlink(missing_ok=True)
        (folder / "tokenizer_config.json").symlink_to(tmp_path / "private")
        with pytest.raises(ConversionError, match="links out of the folder"):
            convert(folder)


def test_links_of_the_hub_cache_are_followed(whole: Path, tmp_path: Path) -> None:
    repository = tmp_path / "models--a--b"
    blobs, snapshot = repository / "blobs", repository / "snapshots" / "main"
    shutil.copytree(whole, blobs)
    snapshot.mkdir(parents=True)
    for blob in blobs.iterdir():
        (snapshot / blob.name).symlink_to(Path("../../blobs") / blob.name)
    assert source(snapshot).architecture == source(whole).architecture


def test_damaged_headers_are_refused(whole: Path, tmp_path: Path) -> None:
    """Random bytes over the header: every result is a ConversionError or the file's tensors."""
    original = (whole / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", original[:8])
    path, refused = tmp_path / "model.safetensors", 0
    generator = random.Random(1)
    for _ in range(400):
        damaged = bytearray(original)
        for _ in range(generator.choice([1, 2, 8])):
            where = generator.randrange(8 + length) if generator.random() < 0.9 else 0
            damaged[where] = generator.choice(b'0129{}[]",:-. \xff\x00')
        path.write_bytes(damaged)
        try:
            for tensor in read_safetensors(path).values():
                assert tensor.data.size <= len(original)
        except ConversionError:
            refused += 1
    assert refused > 150


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


def character_tokenizer(prefix: bool) -> Tokenizer:
    """BPE on characters with bytes for the rest, as SentencePiece vocabularies are converted."""
    pieces = ["<pad>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["\u2581", *"abcdehnrtx.", "th", "the", "\u2581the", "\u2581a", "re"]
    merges = [("t", "h"), ("th", "e"), ("\u2581", "the"), ("\u2581", "a"), ("r", "e")]
    model = models.BPE(
        {piece: i for i, piece in enumerate(pieces)}, merges, byte_fallback=True, fuse_unk=True
    )
    tokenizer = Tokenizer(model)
    replace = [normalizers.Replace(" ", "\u2581")]
    start = [normalizers.Prepend("\u2581")] if prefix else []
    tokenizer.normalizer = normalizers.Sequence(start + replace)
    tokenizer.add_special_tokens(["<pad>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return tokenizer


@pytest.mark.parametrize("prefix", [False, True])
def test_vocabularies_on_characters_are_read_without_transformers(
    whole: Path, tmp_path: Path, prefix: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "characters"))
    reference = character_tokenizer(prefix)
    reference.save(str(folder / "tokenizer.json"))
    monkeypatch.setitem(sys.modules, "transformers", None)
    tokenizer = pagewheel.Tokenizer(convert(folder, tmp_path / "converted", progress=False))
    for text in ("the thread", " a  there.", "Ça 你好 \n the", "", "x"):
        ids = tokenizer.encode(text).input_ids.data[0].tolist()
        assert ids == reference.encode(text).ids, text
        assert tokenizer.decode(ids) == text


def test_other_vocabularies_ask_for_transformers(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "unigram"))
    edit_json(folder / "tokenizer.json", lambda t: t["model"].update(type="Unigram"))
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConversionError, match="'Unigram' is not supported; with the package"):
        convert(folder)


@pytest.mark.parametrize(
    "pattern", [r"\p{N}{1,3}|[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", r" ?\p{L}+|\s|[^\s\p{L}]"]
)
def test_split_patterns_of_a_tokenizer_are_followed(
    whole: Path, tmp_path: Path, pattern: str
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "pattern"))
    reference = tiny_models.byte_tokenizer()
    reference.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    reference.save(str(folder / "tokenizer.json"))
    tokenizer = pagewheel.Tokenizer(convert(folder, tmp_path / "converted", progress=False))
    for text in ("then the a\u180ethe 12345", "a  a\n\n a\u00a0the", "<s>the a</s>"):
        assert tokenizer.encode(text).input_ids.data[0].tolist() == reference.encode(text).ids


def test_the_command_line_converts_with_options(whole: Path, tmp_path: Path) -> None:
    arguments = ["convert", str(whole), str(tmp_path / "out"), "--weight-format", "int8", "-q"]
    result = CliRunner().invoke(app, [*arguments, "--symmetric"])
    assert result.exit_code == 0, result.output
    description = json.loads((tmp_path / "out" / "pagewheel.json").read_text())
    assert description["source"]["weight_format"] == "int8 symmetric"
    shown = CliRunner().invoke(app, ["info", str(tmp_path / "out")]).stdout
    assert "int8 symmetric" in shown
    refused = CliRunner().invoke(app, ["convert", str(whole), "--weight-format", "int3"])
    assert refused.exit_code == 1
    assert "allowed: auto, f16, int8, int4" in refused.stderr
