"""A checkpoint's own head for further tokens drafts as vLLM's does, and changes no answer."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import batching_pipeline, drain
from convert import tiny_models, tiny_mtp
from safetensors.torch import load_file, save_file

import pagewheel
from pagewheel.convert import convert
from pagewheel.errors import ConversionError

NAMES = ["qwen3_5", "qwen3_5-odd", "qwen3_5_moe", "qwen3_next"]


@pytest.fixture(scope="module", params=NAMES)
def models(request: pytest.FixtureRequest) -> Any:
    return tiny_mtp.make(request.param)


@pytest.fixture(scope="module")
def source(models: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_mtp.save(*models, tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def folder(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return convert(source, tmp_path_factory.mktemp("converted") / "model", progress=False)


@pytest.fixture(scope="module")
def int8_folder(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("int8") / "model"
    return convert(source, path, weight_format="int8", progress=False)


def config(count: int, **parameters: Any) -> pagewheel.GenerationConfig:
    return pagewheel.GenerationConfig(max_new_tokens=count, ignore_eos=True, **parameters)


def answer(pipeline: Any, prompt: list[int], one: pagewheel.GenerationConfig) -> list[int]:
    handle = pipeline.add_request(0, prompt, one)
    drain(pipeline)
    return list(handle.read_all()[0].generated_ids)


def test_drafts_are_those_of_the_reference(models: Any, folder: Path) -> None:
    """No token comes twice, so that nothing is drafted but by the head."""
    order = torch.randperm(297, generator=torch.Generator().manual_seed(1))
    prompt = order[:80].add(3).tolist()
    one = config(50, no_repeat_ngram_size=1)
    expected = answer(batching_pipeline(folder, num_kv_blocks=40), prompt, one)
    one.num_assistant_tokens = 3
    pipeline = batching_pipeline(
        folder, num_kv_blocks=40, max_num_batched_tokens=60, speculation="mtp"
    )
    assert answer(pipeline, prompt, one) == expected
    steps = pipeline.get_statistics().all_steps
    counts = tiny_mtp.count_accepted(*models, prompt + expected, len(prompt), 3)
    assert (steps.num_drafted_tokens, steps.num_accepted_tokens) == counts
    assert counts[1] > 4


def test_random_requests_together_get_the_same_tokens(int8_folder: Path) -> None:
    """Requests wait, are preempted, share prefixes and have samples."""
    rng = random.Random(6)
    prompts, configs = [], []
    for _ in range(30):
        words = [rng.randrange(3, 200) for _ in range(rng.randrange(1, 9))]
        prompts.append([words[rng.randrange(len(words))] for _ in range(rng.randrange(1, 90))])
        configs.append(config(rng.randrange(1, 30)))
        if rng.random() < 0.3:
            configs[-1].do_sample, configs[-1].rng_seed = True, rng.randrange(1000)
            configs[-1].num_return_sequences = rng.choice([1, 2])

    def answers(speculation: str) -> tuple[Any, Any]:
        pipeline = batching_pipeline(
            int8_folder,
            {"batch_invariant": True},
            num_kv_blocks=20,
            max_num_batched_tokens=50,
            enable_prefix_caching=True,
            speculation=speculation,
        )
        handles = [
            pipeline.add_request(i, prompt, one)
            for i, (prompt, one) in enumerate(zip(prompts, configs, strict=True))
        ]
        drain(pipeline)
        found = [[list(each.generated_ids) for each in handle.read_all()] for handle in handles]
        return found, pipeline.get_statistics()

    expected, plain = answers("off")
    for one in configs:
        one.num_assistant_tokens = rng.choice([0, 1, 4])
    found, drafting = answers("mtp")
    assert found == expected
    assert plain.num_preemptions > 0
    assert plain.all_steps.num_drafted_tokens == 0
    assert drafting.all_steps.num_drafted_tokens > drafting.all_steps.num_accepted_tokens > 5
    assert drafting.num_used_blocks == 0


@pytest.mark.parametrize("properties", [{}, {"KV_CACHE_PRECISION": "f32"}])
def test_a_request_alone_gets_the_same_tokens(
    int8_folder: Path, properties: dict[str, str]
) -> None:
    """By default settings, whose kernels round by the rows of a step."""
    off = batching_pipeline(int8_folder, properties, num_kv_blocks=40)
    mtp = batching_pipeline(int8_folder, properties, num_kv_blocks=40, speculation="mtp")
    for seed in range(3):
        prompt = tiny_models.random_ids(30 * seed + 1, seed)
        expected = answer(off, prompt, config(40))
        for count in (0, 4):
            assert answer(mtp, prompt, config(40, num_assistant_tokens=count)) == expected
    assert mtp.get_statistics().all_steps.num_accepted_tokens > 8


def test_drafts_by_the_head_go_with_eviction_grammars_and_beams(int8_folder: Path) -> None:
    pipeline = batching_pipeline(
        int8_folder,
        {},
        num_kv_blocks=30,
        speculation="mtp",
        use_cache_eviction=True,
        cache_eviction_config=pagewheel.CacheEvictionConfig(32, 32, 128, policy="streaming"),
    )
    shape = pagewheel.StructuredOutputConfig(regex="(the |abc){3,30}")
    prompt = tiny_models.random_ids(50)
    configs = [
        config(150, num_assistant_tokens=4),
        pagewheel.GenerationConfig(
            max_new_tokens=60, structured_output_config=shape, num_assistant_tokens=4
        ),
        config(20, num_beams=3),
    ]
    handles = [pipeline.add_request(i, prompt, each) for i, each in enumerate(configs)]
    drain(pipeline)
    counts = [len(handle.read_all()[0].generated_ids) for handle in handles]
    assert counts[0] == 150
    assert counts[2] == 20
    assert pipeline.get_statistics().all_steps.num_drafted_tokens > 50
    assert pipeline.get_statistics().num_used_blocks == 0


def test_what_the_head_costs_is_told(int8_folder: Path) -> None:
    scheduler = pagewheel.SchedulerConfig()
    scheduler.speculation = "mtp"
    pipe = pagewheel.LLMPipeline(int8_folder, "CPU", scheduler_config=scheduler)
    result = pipe.generate(["the"], max_new_tokens=30, ignore_eos=True, num_assistant_tokens=3)
    assert result.extended_perf_metrics.get_num_draft_tokens() > 0


def test_a_model_without_a_head_is_refused_by_name(tiny_folder: Path) -> None:
    with pytest.raises(pagewheel.InvalidArgumentError, match=r"speculation is 'mtp', but .*head"):
        batching_pipeline(tiny_folder, speculation="mtp")
    with pytest.raises(pagewheel.InvalidArgumentError, match="draft_model is set and speculation"):
        batching_pipeline(tiny_folder, {"draft_model": str(tiny_folder)}, speculation="mtp")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tiny_mtp.save(*tiny_mtp.make("qwen3_5"), tmp_path / "source")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("fc.weight", torch.ones(3, 2), "'mtp.fc.weight' has shape"),
        ("norm.weight", None, "'mtp.norm.weight' is missing"),
        ("scale", torch.ones(3), "first 'mtp.scale'"),
    ],
)
def test_a_damaged_head_is_refused(
    checkpoint: Path, tmp_path: Path, name: str, value: Any, message: str
) -> None:
    file = checkpoint / "model.safetensors"
    tensors = load_file(file)
    tensors.pop(f"mtp.{name}", None)
    if value is not None:
        tensors[f"mtp.{name}"] = value
    save_file(tensors, file)
    with pytest.raises(ConversionError, match=message):
        convert(checkpoint, tmp_path / "model", progress=False)


def test_heads_of_several_layers_are_left_out(checkpoint: Path, tmp_path: Path) -> None:
    path = checkpoint / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "mtp_num_hidden_layers": 2}))
    folder = convert(checkpoint, tmp_path / "model", progress=False)
    assert not (folder / "openvino_mtp_model.xml").exists()
