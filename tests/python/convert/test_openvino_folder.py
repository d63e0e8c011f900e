"""OpenVINO folders that others wrote: what may be missing, and what is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import openvino as ov
import pytest
import tiny_models
from conftest import F32, greedy

import pagewheel
from pagewheel.convert import convert, resolve_model

TEXT = tiny_models.random_ids(90)


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tiny_models.save(tiny_models.make("mistral"), tmp_path_factory.mktemp("source"))
    return convert(source, tmp_path_factory.mktemp("converted") / "model", progress=False)


@pytest.fixture
def folder(converted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(converted, tmp_path / "folder"))


def generated(folder: Path, **properties: str) -> list[int]:
    scheduler = pagewheel.SchedulerConfig()
    pipeline = pagewheel.ContinuousBatchingPipeline(folder, scheduler, "CPU", {**F32, **properties})
    return list(pipeline.generate([TEXT], greedy(16))[0].m_generation_ids[0])


def rename_input(folder: Path, old: str, new: str) -> None:
    path = folder / "openvino_model.xml"
    model = ov.Core().read_model(path)
    model.input(old).tensor.set_names({new})
    ov.save_model(model, folder / "changed.xml", compress_to_fp16=False)
    del model
    (folder / "changed.xml").replace(path)
    (folder / "changed.bin").replace(path.with_suffix(".bin"))


@pytest.mark.parametrize("backend", ["native", "openvino"])
def test_windows_are_found_without_pagewheel_json(
    converted: Path, folder: Path, backend: str
) -> None:
    for name in ("pagewheel.json", "generation_config.json", "tokenizer_config.json"):
        (folder / name).unlink()
    assert resolve_model(folder) == folder
    expected = generated(converted, attention_backend=backend)
    assert generated(folder, attention_backend=backend) == expected
    if backend == "openvino":  # which finds them in the graph
        (folder / "config.json").unlink()
        assert generated(folder, attention_backend=backend) == expected


@pytest.mark.parametrize("name", ["openvino_tokenizer.xml", "openvino_detokenizer.xml"])
def test_missing_graph_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ValueError, match=f"has no {name}"):
        pagewheel.LLMPipeline(folder, "CPU")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("input_ids", "inputs_embeds", "no input input_ids"),
        ("attention_mask", "mask", "no input attention_mask"),
        ("position_ids", "token_type_ids", "an input 'token_type_ids' that nothing fills"),
    ],
)
def test_input_that_nobody_fills_is_named(folder: Path, old: str, new: str, words: str) -> None:
    rename_input(folder, old, new)
    with pytest.raises(ValueError, match=words):
        pagewheel.LLMPipeline(folder, "CPU")
