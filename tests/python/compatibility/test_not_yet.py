"""What openvino_genai has and pagewheel has not: names and values are there, use is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pagewheel
import pagewheel.openvino_genai as genai
from pagewheel import not_yet

# A value of each parameter that asks for its feature.
ASKS: dict[str, Any] = {
    "branching_factor": 2,
    "tree_depth": 2,
}


@pytest.fixture(scope="module")
def llm(tiny_folder: Path) -> genai.LLMPipeline:
    return genai.LLMPipeline(tiny_folder)


@pytest.fixture(scope="module")
def plain(tiny_folder: Path) -> pagewheel.LLMPipeline:
    return pagewheel.LLMPipeline(tiny_folder)


@pytest.fixture(scope="module")
def batching(tiny_folder: Path) -> genai.ContinuousBatchingPipeline:
    scheduler = genai.SchedulerConfig()
    scheduler.num_kv_blocks = 20
    return genai.ContinuousBatchingPipeline(tiny_folder, scheduler)


def asking(name: str) -> genai.GenerationConfig:
    config = genai.GenerationConfig(max_new_tokens=2)
    setattr(config, name, ASKS[name])
    return config


def test_every_parameter_is_tried() -> None:
    # Of adapters no value can be made that asks for anything.
    assert ASKS.keys() == not_yet.OF_GENERATION.keys() - {"adapters"}


@pytest.mark.parametrize("name", ASKS)
def test_a_config_keeps_what_generate_refuses_by_name(
    name: str,
    llm: genai.LLMPipeline,
    plain: pagewheel.LLMPipeline,
    batching: genai.ContinuousBatchingPipeline,
) -> None:
    config = asking(name)
    assert getattr(config, name) == ASKS[name]
    assert getattr(genai.GenerationConfig(**{name: ASKS[name]}), name) == ASKS[name]
    message = f"{name} is .*: pagewheel has no {not_yet.OF_GENERATION[name].feature} yet"
    uses: list[Callable[[], object]] = [
        lambda: llm.generate("a", config),
        lambda: llm.generate("a", max_new_tokens=2, **{name: ASKS[name]}),
        lambda: llm.generate("a", {name: ASKS[name]}),
        lambda: llm.set_generation_config(config),
        lambda: batching.generate(["a"], [config]),
        lambda: batching.add_request(0, "a", config),
        # The two packages' classes may meet.
        lambda: plain.generate("a", config),
        lambda: pagewheel.GenerationConfig(**{name: ASKS[name]}),
    ]
    for use in uses:
        with pytest.raises(NotImplementedError, match=message):
            use()
    assert not batching.has_non_finished_requests()


@pytest.mark.parametrize("name", not_yet.OF_GENERATION)
def test_a_value_that_asks_for_nothing_is_taken(name: str, llm: genai.LLMPipeline) -> None:
    config = genai.GenerationConfig(max_new_tokens=2)
    expected = llm.generate("a", config)
    initial = getattr(config, name)
    setattr(config, name, initial)
    assert llm.generate("a", config) == expected
    assert llm.generate("a", max_new_tokens=2, **{name: initial}) == expected
    off = {"branching_factor": 0}.get(name, initial)
    assert llm.generate("a", max_new_tokens=2, **{name: off}) == expected


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("tree_depth", -1, "an integer, 0 or more"),
        ("tree_depth", "3", "an integer, 0 or more"),
        ("adapters", 3, "AdapterConfig | None"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_by_name(name: str, value: Any, allowed: str) -> None:
    for use in (
        lambda: setattr(genai.GenerationConfig(), name, value),
        lambda: genai.GenerationConfig(**{name: value}),
    ):
        with pytest.raises(pagewheel.InvalidArgumentError) as refused:
            use()
        assert str(refused.value) == f"{name} is {value!r}; allowed: {allowed}"


@pytest.mark.parametrize(
    "parameters",
    [
        {"num_assistant_tokens": 3, "assistant_confidence_threshold": 0.5},
        {"max_ngram_size": 3},
        {"tree_depth": 3},
        {"tree_depth": 3, "num_assistant_tokens": 1},
        {"tree_depth": 3, "num_assistant_tokens": 4, "branching_factor": 0},
        {"tree_depth": 3, "num_assistant_tokens": 4, "do_sample": True},
        {"num_assistant_tokens": 3, "num_beams": 2},
        {"num_assistant_tokens": 3, "do_sample": True, "num_return_sequences": 2},
        {"structured_output_config": genai.StructuredOutputConfig()},
    ],
    ids=str,
)
def test_parameters_that_contradict_each_other_are_refused(parameters: dict[str, Any]) -> None:
    """Each of these openvino_genai 2026.4.1 refuses."""
    with pytest.raises(pagewheel.InvalidArgumentError, match=r"allowed(:| is) "):
        genai.GenerationConfig(max_new_tokens=3, **parameters).validate()


def test_a_config_says_which_speculation_it_asks_for() -> None:
    def asked(**parameters: Any) -> tuple[bool, bool, bool]:
        config = genai.GenerationConfig(max_new_tokens=3, **parameters)
        config.validate()
        return (
            config.is_assisting_generation(),
            config.is_prompt_lookup(),
            config.is_tree_search(),
        )

    # As openvino_genai 2026.4.1 answers.
    assert asked() == (False, False, False)
    assert asked(num_assistant_tokens=0) == (False, False, False)
    assert asked(num_assistant_tokens=3) == (True, False, False)
    assert asked(assistant_confidence_threshold=0.5) == (True, False, False)
    assert asked(num_assistant_tokens=3, max_ngram_size=3) == (True, True, False)
    assert asked(num_assistant_tokens=4, tree_depth=3, branching_factor=2) == (True, False, True)


@pytest.mark.parametrize("name", not_yet.CLASSES)
def test_what_cannot_be_made_says_what_is_missing(name: str) -> None:
    kind: Any = getattr(genai, name)
    with pytest.raises(NotImplementedError, match=f"{name}: pagewheel has no {kind.feature} yet"):
        kind("model.safetensors")


def test_the_scheduler_refuses_what_it_has_not_at_once() -> None:
    config = genai.SchedulerConfig()
    config.sparse_attention_config.mode = genai.SparseAttentionMode.XATTENTION
    assert config.sparse_attention_config.mode == genai.SparseAttentionMode.XATTENTION
    assert genai.SchedulerConfig().sparse_attention_config.mode == 0  # each has its own
    for name, value in (
        ("use_sparse_attention", True),
        ("num_linear_attention_blocks", 3),
        ("cache_interval_multiplier", 2),
    ):
        setattr(config, name, getattr(config, name))
        with pytest.raises(NotImplementedError, match=f"{name} is {value}: pagewheel has no"):
            setattr(config, name, value)
    with pytest.raises(pagewheel.InvalidArgumentError, match="xattention_stride is -1; allowed"):
        config.sparse_attention_config.xattention_stride = -1


def test_copies_of_a_config_are_its_own() -> None:
    config = genai.GenerationConfig(max_new_tokens=3, num_assistant_tokens=4)
    other = genai.GenerationConfig(config)
    other.max_new_tokens = 5
    other.num_assistant_tokens = None
    assert (config.max_new_tokens, config.num_assistant_tokens) == (3, 4)
    assert (other.max_new_tokens, other.num_assistant_tokens) == (5, None)


def test_nothing_is_parsed_or_pooled_for_what_is_not_there(llm: genai.LLMPipeline) -> None:
    assert llm.generate(["a"], max_new_tokens=1).parsed == []
    assert llm.get_metrics().la_peak_pool_blocks == 0
