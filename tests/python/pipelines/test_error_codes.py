"""Errors as data: each has a code and the name of the parameter, wherever it is raised."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import batching_pipeline, greedy

import pagewheel

PROMPT = [10, 11, 12]


@pytest.fixture(scope="module")
def tiny(tiny_folder: Path) -> pagewheel.ContinuousBatchingPipeline:
    return batching_pipeline(tiny_folder)


@pytest.fixture(scope="module")
def limited(tiny_folder: Path) -> pagewheel.ContinuousBatchingPipeline:
    return batching_pipeline(tiny_folder, max_queue=1)


def raised(kind: type[pagewheel.PagewheelError], call: Callable[[], Any]) -> tuple[str, str | None]:
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, RuntimeError)  # which programs for openvino_genai catch
    return caught.value.code, caught.value.parameter


@pytest.mark.parametrize(
    "parameters",
    [
        {"temperature": -1.0, "do_sample": True},
        {"num_beams": 1001},
        {"top_k": "many"},
        {"stop_strings": {""}},
        {"logit_bias": {5: 101.0}},
        {"min_new_tokens": 10},
    ],
    ids=lambda parameters: next(iter(parameters)),
)
def test_a_refused_generation_parameter_is_named(
    tiny: pagewheel.ContinuousBatchingPipeline, parameters: dict[str, Any]
) -> None:
    def call() -> None:
        tiny.add_request(0, PROMPT, greedy(4, **parameters))

    name = next(iter(parameters))
    assert raised(pagewheel.InvalidArgumentError, call) == ("invalid_parameter", name)


def test_a_parameter_that_is_unknown_is_named() -> None:
    config = pagewheel.GenerationConfig()
    assert raised(
        pagewheel.InvalidArgumentError, lambda: config.update_generation_config(top_q=1)
    ) == ("invalid_parameter", "top_q")


def test_configs_of_the_pipeline_name_their_fields() -> None:
    scheduling = pagewheel.SchedulerConfig()
    scheduling.max_num_seqs = 0
    assert raised(pagewheel.InvalidArgumentError, scheduling.validate)[1] == "max_num_seqs"
    assert raised(
        pagewheel.InvalidArgumentError, lambda: pagewheel.CacheEvictionConfig(32, 32, 32)
    ) == ("invalid_parameter", "max_cache_size")


def test_what_prompts_may_be_refused_for(tiny: pagewheel.ContinuousBatchingPipeline) -> None:
    def add(prompt: list[int]) -> Callable[[], Any]:
        return lambda: tiny.add_request(0, prompt, greedy(4))

    kind = pagewheel.InvalidArgumentError
    assert raised(kind, add([])) == ("invalid_parameter", "prompt")
    assert raised(kind, add([1 << 20])) == ("invalid_parameter", "prompt")
    assert raised(kind, add([10] * 100_000)) == ("context_too_long", "prompt")


def test_a_full_queue(limited: pagewheel.ContinuousBatchingPipeline) -> None:
    handle = limited.add_request(0, PROMPT, greedy(4))
    assert raised(pagewheel.QueueFullError, lambda: limited.add_request(1, PROMPT, greedy(4))) == (
        "queue_full",
        None,
    )
    handle.cancel()
    assert raised(pagewheel.PagewheelError, handle.read) == ("cancelled", None)


def fails(logits: np.ndarray[Any, Any], history: Any) -> None:
    raise KeyError("what a caller's processor may do")


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"allowed_token_ids": {5}, "suppress_tokens": {5}}, ("no_token_possible", None)),
        ({"logits_processors": [fails]}, ("processor_failed", "logits_processors")),
    ],
    ids=["banned", "processor"],
)
def test_an_error_that_ends_a_running_request_has_its_code(
    tiny: pagewheel.ContinuousBatchingPipeline,
    parameters: dict[str, Any],
    expected: tuple[str, str | None],
) -> None:
    config = greedy(4, **parameters)
    handle = tiny.add_request(0, PROMPT, config)
    kind = pagewheel.PagewheelError
    assert raised(kind, handle.read_all) == expected
    assert raised(kind, handle.read_all) == expected
    assert raised(kind, lambda: tiny.generate([PROMPT], [config])) == expected


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    code, _ = raised(pagewheel.PagewheelError, lambda: pagewheel.LLMPipeline(tmp_path / "no"))
    assert code == "model_not_found"


def test_what_python_raises_has_codes_too() -> None:
    assert pagewheel.ModelNotFoundError("no such model").code == "model_not_found"
    assert pagewheel.UnfinishedOutputError("the JSON ended", "[").code == "output_unfinished"


def test_code_and_parameter_pass_to_other_processes() -> None:
    error = pagewheel.InvalidArgumentError("top_k is -1", parameter="top_k")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.code, copy.parameter, str(copy)) == ("invalid_parameter", "top_k", "top_k is -1")
