"""Heads draft as vLLM's do and as EAGLE-3's authors' code does, and change no answer."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from conftest import F32, batching_pipeline, drain
from convert import gguf_models, tiny_heads, tiny_models
from safetensors.torch import load_file, save_file

import pagewheel
from pagewheel.convert import convert
from pagewheel.errors import ConversionError

MTP = ["qwen3_5", "qwen3_5-odd", "qwen3_5_moe", "qwen3_next", "glm4_moe", "deepseek_v3"]
EAGLE3 = ["llama-even", "gemma3"]


@dataclass(frozen=True)
class Drafted:
    """A model and a head that drafts for it, of its own folder or of another."""

    folder: Path
    head_folder: Path | None

    def pipeline(
        self, drafts: bool, properties: Mapping[str, object] = F32, **limits: object
    ) -> pagewheel.ContinuousBatchingPipeline:
        limits["speculation"] = "mtp" if drafts and self.head_folder is None else "off"
        if drafts and self.head_folder is not None:
            properties = {**properties, "draft_model": str(self.head_folder)}
        return batching_pipeline(self.folder, properties, **limits)


@pytest.fixture(scope="module", params=[*MTP, *EAGLE3])
def models(request: pytest.FixtureRequest) -> Any:
    if request.param in MTP:
        return tiny_heads.make(request.param)
    return tiny_heads.make_eagle3(request.param)


@pytest.fixture(scope="module")
def sources(models: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path | None]:
    """The model's folder, and the head's if it has one."""
    model, head = models
    path = tmp_path_factory.mktemp("source")
    if isinstance(head, tiny_heads.MtpHead):
        return tiny_heads.save(model, head, path / "model"), None
    model_folder = tiny_models.save(model, path / "model")
    return model_folder, tiny_heads.save_eagle3(head, path / "head")


def converted(
    sources: tuple[Path, Path | None], path: Path, weight_format: str, head_format: str
) -> Drafted:
    folder, head_folder = sources
    head = None
    if head_folder is not None:
        head = convert(head_folder, path / "head", progress=False, weight_format=head_format)
    model = convert(folder, path / "model", progress=False, weight_format=weight_format)
    return Drafted(model, head)


@pytest.fixture(scope="module")
def drafted(sources: tuple[Path, Path | None], tmp_path_factory: pytest.TempPathFactory) -> Drafted:
    """Rounded no further than the reference."""
    return converted(sources, tmp_path_factory.mktemp("converted"), "auto", "f16")


@pytest.fixture(scope="module")
def int8_drafted(
    sources: tuple[Path, Path | None], tmp_path_factory: pytest.TempPathFactory
) -> Drafted:
    return converted(sources, tmp_path_factory.mktemp("int8"), "int8", "auto")


def config(count: int, **parameters: Any) -> pagewheel.GenerationConfig:
    return pagewheel.GenerationConfig(max_new_tokens=count, ignore_eos=True, **parameters)


def answer(pipeline: Any, prompt: list[int], one: pagewheel.GenerationConfig) -> list[int]:
    handle = pipeline.add_request(0, prompt, one)
    drain(pipeline)
    return list(handle.read_all()[0].generated_ids)


def check_drafts(models: Any, drafted: Drafted) -> None:
    """No token comes twice, so that nothing is drafted but by the head."""
    order = torch.randperm(297, generator=torch.Generator().manual_seed(1))
    prompt = order[:80].add(3).tolist()
    one = config(50, no_repeat_ngram_size=1)
    expected = answer(drafted.pipeline(False, num_kv_blocks=40), prompt, one)
    one.num_assistant_tokens = 3
    pipeline = drafted.pipeline(True, num_kv_blocks=40, max_num_batched_tokens=60)
    assert answer(pipeline, prompt, one) == expected
    steps = pipeline.get_statistics().all_steps
    counts = tiny_heads.count_accepted(*models, prompt + expected, len(prompt), 3)
    assert (steps.num_drafted_tokens, steps.num_accepted_tokens) == counts
    assert counts[1] > 4


def test_drafts_are_those_of_the_reference(models: Any, drafted: Drafted) -> None:
    check_drafts(models, drafted)


@pytest.mark.parametrize("name", ["qwen3_5-odd", "qwen3_5_moe", "glm4_moe", "deepseek_v3"])
def test_heads_in_gguf_files_draft_as_the_reference_does(name: str, tmp_path: Path) -> None:
    types = ["linear_attention", "linear_attention", "full_attention"]
    model, head = tiny_heads.make(name, **({"layer_types": types} if "qwen" in name else {}))
    file = gguf_models.write(model, tmp_path / "model.gguf", head=head)
    folder = convert(file, tmp_path / "model", progress=False)
    check_drafts((model, head), Drafted(folder, None))


def test_a_layer_that_a_gguf_file_counts_as_a_head_is_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = gguf.GGUFWriter.add_nextn_predict_layers
    monkeypatch.setattr(gguf.GGUFWriter, add.__name__, lambda writer, count: add(writer, count + 1))
    model, head = tiny_heads.make("deepseek_v3")
    file = gguf_models.write(model, tmp_path / "model.gguf", head=head)
    with pytest.raises(ConversionError, match=r"first 'blk\.1\."):
        convert(file, tmp_path / "model", progress=False)


def test_random_requests_together_get_the_same_tokens(int8_drafted: Drafted) -> None:
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

    def answers(drafts: bool) -> tuple[Any, Any]:
        pipeline = int8_drafted.pipeline(
            drafts,
            {"batch_invariant": True},
            num_kv_blocks=20,
            max_num_batched_tokens=50,
            enable_prefix_caching=True,
        )
        handles = [
            pipeline.add_request(i, prompt, one)
            for i, (prompt, one) in enumerate(zip(prompts, configs, strict=True))
        ]
        drain(pipeline)
        found = [[list(each.generated_ids) for each in handle.read_all()] for handle in handles]
        return found, pipeline.get_statistics()

    expected, plain = answers(False)
    for one in configs:
        one.num_assistant_tokens = rng.choice([0, 1, 4])
    found, drafting = answers(True)
    assert found == expected
    assert plain.num_preemptions > 0
    assert plain.all_steps.num_drafted_tokens == 0
    assert drafting.all_steps.num_drafted_tokens > drafting.all_steps.num_accepted_tokens > 5
    assert drafting.num_used_blocks == 0


@pytest.mark.parametrize("properties", [{}, {"KV_CACHE_PRECISION": "f32"}])
def test_a_request_alone_gets_the_same_tokens(
    int8_drafted: Drafted, properties: dict[str, str]
) -> None:
    """By default settings, whose kernels round by the rows of a step."""
    off, drafting = (
        int8_drafted.pipeline(drafts, properties, num_kv_blocks=40) for drafts in (False, True)
    )
    for seed in range(3):
        prompt = tiny_models.random_ids(30 * seed + 1, seed)
        expected = answer(off, prompt, config(40))
        for count in (0, 4):
            assert answer(drafting, prompt, config(40, num_assistant_tokens=count)) == expected
    assert drafting.get_statistics().all_steps.num_accepted_tokens > 8


def test_drafts_by_the_head_go_with_eviction_grammars_and_beams(int8_drafted: Drafted) -> None:
    pipeline = int8_drafted.pipeline(
        True,
        {},
        num_kv_blocks=30,
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


def test_stop_strings_grammars_samples_and_cancels_end_answers_alike(
    int8_drafted: Drafted,
) -> None:
    """With drafts beyond the end, and after a request that was cancelled while it had drafts."""
    prompt = tiny_models.random_ids(40, 7)
    plain, drafting = (
        int8_drafted.pipeline(drafts, {"batch_invariant": True}, num_kv_blocks=60)
        for drafts in (False, True)
    )
    text = plain.get_tokenizer().decode(answer(plain, prompt, config(60)))
    stop = next(  # the shortest one that is not complete in the first quarter
        text[i : i + count]
        for count in range(1, 40)
        for i in range(len(text) - count)
        if "\ufffd" not in text[i : i + count]
        and text.find(text[i : i + count]) + count > len(text) // 4
    )
    shape = pagewheel.StructuredOutputConfig(regex="(the |abc){3,9}")
    configs = [
        config(60, stop_strings={stop}),
        config(60),
        pagewheel.GenerationConfig(max_new_tokens=60, structured_output_config=shape),
        config(25, do_sample=True, rng_seed=3, num_return_sequences=3),
    ]

    def answers(pipeline: pagewheel.ContinuousBatchingPipeline) -> list[Any]:
        handles = [pipeline.add_request(i, prompt, each) for i, each in enumerate(configs)]
        drain(pipeline)
        assert pipeline.get_statistics().num_used_blocks == 0
        return [
            [(list(each.generated_ids), each.finish_reason) for each in handle.read_all()]
            for handle in handles
        ]

    expected = answers(plain)
    assert expected[0][0][1] == pagewheel.GenerationFinishReason.STOP
    assert 4 < len(expected[0][0][0]) < 60
    for each in configs:
        each.num_assistant_tokens = 4
    handle = drafting.add_request(9, prompt, configs[1])
    while drafting.get_statistics().all_steps.num_accepted_tokens == 0:
        drafting.step()
    handle.cancel()
    assert answers(drafting) == expected
    steps = drafting.get_statistics().all_steps
    assert steps.num_drafted_tokens > steps.num_accepted_tokens > 8


def test_what_the_head_costs_is_told(int8_drafted: Drafted) -> None:
    scheduler, properties = pagewheel.SchedulerConfig(), {}
    if int8_drafted.head_folder is None:
        scheduler.speculation = "mtp"
    else:
        properties["draft_model"] = pagewheel.draft_model(int8_drafted.head_folder)
    pipe = pagewheel.LLMPipeline(
        int8_drafted.folder, "CPU", scheduler_config=scheduler, **properties
    )
    result = pipe.generate(["the"], max_new_tokens=30, ignore_eos=True, num_assistant_tokens=3)
    assert result.extended_perf_metrics.get_num_draft_tokens() > 0


def test_a_model_without_a_head_is_refused_by_name(tiny_folder: Path) -> None:
    with pytest.raises(pagewheel.InvalidArgumentError, match=r"speculation is 'mtp', but .*head"):
        batching_pipeline(tiny_folder, speculation="mtp")
    with pytest.raises(pagewheel.InvalidArgumentError, match="draft_model is set and speculation"):
        batching_pipeline(tiny_folder, {"draft_model": str(tiny_folder)}, speculation="mtp")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tiny_heads.save(*tiny_heads.make("qwen3_5"), tmp_path / "source")


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


@pytest.mark.parametrize("value", ["x", [1], True, 1e300])
def test_a_damaged_number_of_heads_is_refused_by_name(
    checkpoint: Path, tmp_path: Path, value: Any
) -> None:
    path = checkpoint / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_nextn_predict_layers": value}))
    with pytest.raises(ConversionError, match="'num_nextn_predict_layers' must be an integer"):
        convert(checkpoint, tmp_path / "model", progress=False)


def test_heads_of_several_layers_are_left_out(checkpoint: Path, tmp_path: Path) -> None:
    path = checkpoint / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "mtp_num_hidden_layers": 2}))
    folder = convert(checkpoint, tmp_path / "model", progress=False)
    assert not (folder / "openvino_mtp_model.xml").exists()


@pytest.fixture(scope="module")
def eagle3_sources(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    model, head = tiny_heads.make_eagle3("llama-even")
    path = tmp_path_factory.mktemp("eagle3")
    model_folder = convert(tiny_models.save(model, path / "source"), path / "model", progress=False)
    return model_folder, tiny_heads.save_eagle3(head, path / "head")


def changed(
    head: Path, folder: Path, config: dict[str, Any], tensors: dict[str, Any] | None = None
) -> Path:
    """A copy of the head with other values; None takes a tensor away."""
    folder.mkdir()
    values = {**json.loads((head / "config.json").read_text()), **config}
    (folder / "config.json").write_text(json.dumps(values))
    weights = {**load_file(head / "model.safetensors"), **(tensors or {})}
    weights = {name: each for name, each in weights.items() if each is not None}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


LAYERS = "eagle_aux_hidden_state_layer_ids"


@pytest.mark.parametrize(
    ("config", "tensors", "message"),
    [
        ({"draft_vocab_size": 301}, {}, "'draft_vocab_size' must be at most 300"),
        ({"draft_vocab_size": 200}, {}, "has shape .*config.json asks for"),
        ({"target_hidden_size": 128}, {}, "'target_hidden_size' must be 64"),
        ({"num_hidden_layers": 2}, {}, "'num_hidden_layers' of a head must be 1"),
        ({"norm_before_residual": True}, {}, "'norm_before_residual' must be false"),
        ({"model_type": "qwen3"}, {}, "of the model type 'llama', not 'qwen3'"),
        ({}, {"d2t": None}, "'d2t' is missing"),
        ({}, {"d2t": torch.zeros(250)}, "must be of type i64"),
        ({}, {"fc.weight": None}, r"no tensor is named '\*fc.weight'"),
        ({}, {"fc.bias": torch.ones(64)}, "first 'fc.bias'"),
        ({}, {"midlayer.hidden_norm.weight": None}, "hidden_norm.weight' is missing"),
    ],
)
def test_a_damaged_head_of_eagle3_is_not_converted(
    eagle3_sources: tuple[Path, Path],
    tmp_path: Path,
    config: dict[str, Any],
    tensors: dict[str, Any],
    message: str,
) -> None:
    folder = changed(eagle3_sources[1], tmp_path / "head", config, tensors)
    with pytest.raises(ConversionError, match=message):
        convert(folder, tmp_path / "model", progress=False)


@pytest.mark.parametrize(
    ("config", "tensors", "message"),
    [
        (
            {"vocab_size": 310},
            {},
            r"made for embeddings f32 \[310,64\]; the model has f32 \[300,64",
        ),
        ({}, {"d2t": torch.full((250,), 51)}, r"drafts token 300 by d2t; allowed: \[0, 300\)"),
        ({}, {"d2t": torch.full((250,), -1)}, "drafts token -1 by d2t"),
        ({}, {"d2t": torch.full((250,), 2**63 - 1)}, "drafts token 9223372036854775807"),
        ({LAYERS: [1, 2, 10]}, {}, "reads what layer 10 reads; the model has 9"),
        (
            {"eagle_config": {LAYERS: [1, 2]}},
            {},
            f"config.json.*{LAYERS} must be an array of 3 numbers",
        ),
        ({LAYERS: [1, 2, 1 << 40]}, {}, f"config.json.*{LAYERS} is 1099511627776; allowed"),
    ],
)
def test_a_head_of_eagle3_that_does_not_fit_is_refused(
    eagle3_sources: tuple[Path, Path],
    tmp_path: Path,
    config: dict[str, Any],
    tensors: dict[str, Any],
    message: str,
) -> None:
    head = convert(
        changed(eagle3_sources[1], tmp_path / "head", config, tensors),
        tmp_path / "converted",
        progress=False,
    )
    with pytest.raises(pagewheel.InvalidArgumentError, match=message) as refused:
        batching_pipeline(eagle3_sources[0], {"draft_model": str(head)})
    told = (refused.value.code, refused.value.parameter)
    assert told == (
        ("file_invalid", None) if "config.json" in message else ("model_unsupported", "draft_model")
    )


def test_a_head_that_computes_no_numbers_changes_no_answer(
    eagle3_sources: tuple[Path, Path], tmp_path: Path
) -> None:
    model, head = eagle3_sources
    tensors = {"midlayer.hidden_norm.weight": torch.full((64,), torch.nan)}
    folder = changed(head, tmp_path / "head", {}, tensors)
    drafted = Drafted(model, convert(folder, tmp_path / "converted", progress=False))
    prompt, one = tiny_models.random_ids(20), config(20)
    expected = answer(drafted.pipeline(False), prompt, one)
    one.num_assistant_tokens = 3
    pipeline = drafted.pipeline(True)
    assert answer(pipeline, prompt, one) == expected
    assert pipeline.get_statistics().all_steps.num_drafted_tokens > 0


def test_a_head_of_eagle3_drafts_for_no_other_model_and_is_no_model_itself(
    eagle3_sources: tuple[Path, Path], tiny_folder: Path
) -> None:
    draft = pagewheel.draft_model(eagle3_sources[1])
    with pytest.raises(pagewheel.InvalidArgumentError, match=r"draft_model (has|was|reads) "):
        batching_pipeline(tiny_folder, {"draft_model": draft})
    with pytest.raises(pagewheel.InvalidArgumentError, match="is a head of EAGLE-3"):
        pagewheel.LLMPipeline(eagle3_sources[1], "CPU")
