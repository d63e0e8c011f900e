"""Speculative decoding changes the speed and no answer."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import pagewheel
import pagewheel.openvino_genai as genai

CODE = """def mean(values):
    total = 0
    for value in values:
        total += value
    return total / len(values)

def variance(values):
    center = mean(values)
    total = 0
    for value in values:
        total += (value - center) ** 2
    return total / len(values)
"""
PROMPTS = [
    f"Repeat this code exactly.\n```python\n{CODE}```\nThe same again:\n```python\n",
    "1, 2, 3, 1, 2, 3, 1, 2, 3, 1,",
    "The wheel turns. The wheel turns. The wheel turns. The",
    "Once upon a time, in a small village by the sea,",
]
Answers = list[tuple[list[list[int]], list[float]]]


def make_pipeline(
    folder: Path, speculation: str, properties: dict[str, Any] | None = None, **scheduling: Any
) -> pagewheel.ContinuousBatchingPipeline:
    scheduler = pagewheel.SchedulerConfig()
    scheduler.num_kv_blocks = 200
    scheduler.speculation = speculation
    for name, value in scheduling.items():
        setattr(scheduler, name, value)
    return pagewheel.ContinuousBatchingPipeline(folder, scheduler, "CPU", properties or {})


def answers(
    pipeline: pagewheel.ContinuousBatchingPipeline,
    prompts: list[str] | list[list[int]],
    configs: list[pagewheel.GenerationConfig],
    *,
    together: bool,
) -> Answers:
    handles = []
    for i, (prompt, config) in enumerate(zip(prompts, configs, strict=True)):
        handles.append(pipeline.add_request(i, prompt, config))
        while not together and pipeline.has_non_finished_requests():
            pipeline.step()
    while pipeline.has_non_finished_requests():
        pipeline.step()
    found = [handle.read_all() for handle in handles]
    return [
        ([list(each.generated_ids) for each in one], list(one[0].generated_log_probs))
        for one in found
    ]


def accepted(pipeline: pagewheel.ContinuousBatchingPipeline) -> int:
    return int(pipeline.get_statistics().all_steps.num_accepted_tokens)


def config(count: int = 60, **parameters: Any) -> pagewheel.GenerationConfig:
    return pagewheel.GenerationConfig(max_new_tokens=count, ignore_eos=True, **parameters)


@pytest.mark.parametrize("cache", ["u8", "f32"])
def test_a_request_alone_gets_the_same_tokens(smollm2_folder: Path, cache: str) -> None:
    """By default settings, whose kernels round by the rows of a step."""
    properties = {"KV_CACHE_PRECISION": cache}
    off = make_pipeline(smollm2_folder, "off", properties)
    auto = make_pipeline(smollm2_folder, "auto", properties)
    expected = answers(off, PROMPTS, [config(logprobs=1)] * 4, together=False)
    assert answers(auto, PROMPTS, [config(logprobs=1)] * 4, together=False) == expected
    assert accepted(auto) > 20
    for count in (1, 5, 15):
        fixed = [config(logprobs=1, num_assistant_tokens=count)] * 4
        assert answers(off, PROMPTS, fixed, together=False) == expected
    assert accepted(off) > 100


def test_500_random_requests_alone_get_the_same_tokens(tiny_folder: Path) -> None:
    rng = random.Random(4)
    off, auto = (make_pipeline(tiny_folder, each) for each in ("off", "auto"))
    for _ in range(500):
        words = [rng.randrange(3, 200) for _ in range(rng.randrange(1, 6))]
        prompt = [words[rng.randrange(len(words))] for _ in range(rng.randrange(1, 40))]
        one = config(rng.randrange(1, 30))
        if rng.random() < 0.3:
            one.do_sample, one.temperature, one.rng_seed = True, 0.5, rng.randrange(1000)
        expected = answers(off, [prompt], [one], together=False)
        one.num_assistant_tokens = rng.choice([0, 3, 15])
        assert answers(auto, [prompt], [one], together=False) == expected
    assert accepted(off) == 0
    assert accepted(auto) > 200


def test_mixed_batches_get_the_same_tokens_with_batch_invariant(smollm2_folder: Path) -> None:
    properties = {"batch_invariant": True}
    off = make_pipeline(smollm2_folder, "off", properties)
    auto = make_pipeline(smollm2_folder, "auto", properties)
    configs = [
        config(logprobs=1, num_assistant_tokens=7),
        config(40),
        config(50, do_sample=True, temperature=0.7, rng_seed=5, num_return_sequences=3),
        config(30, repetition_penalty=1.1, num_assistant_tokens=2),
    ]
    plain = [pagewheel.GenerationConfig(each) for each in configs]
    for each in plain:
        each.num_assistant_tokens = 0
    expected = answers(off, PROMPTS, plain, together=True)
    assert accepted(off) == 0
    assert answers(auto, PROMPTS, configs, together=True) == expected
    assert accepted(auto) > 20


def test_grammars_stop_strings_and_least_tokens_end_answers_alike(smollm2_folder: Path) -> None:
    schema = json.dumps(
        {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"enum": ["wheel", "page"]}, "size": {"type": "integer"}},
                "required": ["name", "size"],
                "additionalProperties": False,
            },
            "minItems": 4,
            "maxItems": 6,
        }
    )
    shape = pagewheel.StructuredOutputConfig(json_schema=schema)
    prompts = ["A list of wheels and pages in JSON: ", *PROMPTS[1:3], PROMPTS[2]]
    configs = [
        config(120, structured_output_config=shape),
        config(40, stop_strings={"3, 1, 2, 3, 1, 2"}),
        config(40, stop_strings={"turns"}, min_tokens=17),
        config(40, allowed_token_ids=list(range(100, 2000))),
    ]
    off, auto = (make_pipeline(smollm2_folder, each) for each in ("off", "auto"))
    expected = answers(off, prompts, configs, together=False)
    for each in configs:
        each.num_assistant_tokens = 6
    assert answers(auto, prompts, configs, together=False) == expected
    assert accepted(auto) > 20


def test_eviction_and_prefix_caching_go_with_drafts(smollm2_folder: Path) -> None:
    prompts = [PROMPTS[0], PROMPTS[0] + CODE[:100]]
    scheduling = {
        "use_cache_eviction": True,
        "cache_eviction_config": pagewheel.CacheEvictionConfig(32, 32, 128, policy="streaming"),
        "enable_prefix_caching": True,
    }
    off = make_pipeline(smollm2_folder, "off", **scheduling)
    expected = answers(off, prompts, [config(150)] * 2, together=False)
    auto = make_pipeline(smollm2_folder, "auto", **scheduling)
    fixed = [config(150, num_assistant_tokens=5)] * 2
    assert answers(auto, prompts, fixed, together=False) == expected
    assert accepted(auto) > 20


def test_prompt_lookup_is_chosen_as_in_openvino_genai(smollm2_folder: Path) -> None:
    same = {"max_new_tokens": 40, "apply_chat_template": False}
    plain = genai.LLMPipeline(smollm2_folder)
    expected = plain.generate([PROMPTS[0]], **same).texts
    lookup = genai.LLMPipeline(smollm2_folder, "CPU", prompt_lookup=True)
    found = lookup.generate([PROMPTS[0]], num_assistant_tokens=5, max_ngram_size=3, **same)
    assert found.texts == expected
    metrics = found.perf_metrics
    assert metrics.get_num_accepted_tokens() > 5
    assert metrics.get_num_drafted_tokens() >= metrics.get_num_accepted_tokens()
    assert lookup.generate(PROMPTS[1], **same) == plain.generate(PROMPTS[1], **same)
    with pytest.raises(RuntimeError, match="num_beams"):
        lookup.generate(PROMPTS[0], num_beams=2, num_assistant_tokens=3, **same)


@pytest.mark.parametrize(
    ("name", "value"), [("speculation", "on"), ("num_assistant_tokens", 1001), ("prediction", 3)]
)
def test_wrong_values_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=name):
        if name == "speculation":
            scheduler = pagewheel.SchedulerConfig()
            setattr(scheduler, name, value)
            scheduler.validate()
        else:
            pagewheel.GenerationConfig(max_new_tokens=3, **{name: value}).validate()
