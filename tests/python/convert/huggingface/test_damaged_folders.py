"""What is wrong with a Hugging Face folder is said, and nothing outside of it is read."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from convert import tiny_models
from convert.huggingface_folders import config, edit_json

from pagewheel.convert import ConversionError, convert
from pagewheel.convert.files.source_folder import SourceFolder
from pagewheel.convert.huggingface.safetensors_file import read_safetensors
from pagewheel.convert.huggingface.source import HuggingFaceSource

INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.save(tiny_models.make("llama3"), tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tiny_models.make("llama3")
    return tiny_models.save(model, tmp_path_factory.mktemp("shards"), max_shard_size="60KB")


@pytest.fixture
def damaged(sharded: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(sharded, tmp_path / "damaged"))


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


def architecture_of(folder: Path) -> Any:
    return HuggingFaceSource(SourceFolder(folder)).architecture


def test_links_of_the_hub_cache_are_followed(whole: Path, tmp_path: Path) -> None:
    repository = tmp_path / "models--a--b"
    blobs, snapshot = repository / "blobs", repository / "snapshots" / "main"
    shutil.copytree(whole, blobs)
    snapshot.mkdir(parents=True)
    for blob in blobs.iterdir():
        (snapshot / blob.name).symlink_to(Path("../../blobs") / blob.name)
    assert architecture_of(snapshot) == architecture_of(whole)


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
