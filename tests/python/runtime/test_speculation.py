"""Speculative decoding changes the speed and no answer."""

from __future__ import annotations

import copy
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import F32
from convert import tiny_models

import pagewheel
import pagewheel.openvino_genai as genai
from pagewheel.convert import convert

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


def exact_drafts(folder: Path, count: int) -> int:
    """`count`, or as many drafts as leave a row's bits those of a decode on this processor."""
    found = pagewheel._pagewheel.describe_operations(str(folder), "CPU", {})
    rows = re.search(r"int16 up to (\d+) rows", found.linear)
    assert rows is not None, found.linear
    return min(count, int(rows[1]) - 1)


@pytest.mark.parametrize("cache", ["u8", "f32"])
def test_a_request_alone_gets_the_same_tokens(shallow_folder: Path, cache: str) -> None:
    """By default settings, whose kernels round by the rows of a step."""
    properties = {"KV_CACHE_PRECISION": cache}
    # Asked again, a request finds its prompt, and then blocks with its own answer.
    prompts = [*PROMPTS, *PROMPTS[:2]]
    off, auto = (
        make_pipeline(shallow_folder, each, properties, enable_prefix_caching=True)
        for each in ("off", "auto")
    )
    expected = answers(off, prompts, [config(logprobs=1)] * 6, together=False)
    assert answers(auto, prompts, [config(logprobs=1)] * 6, together=False) == expected
    assert accepted(auto) > 40
    for count in (1, 5, 15):
        off.get_prefix_cache().clear()
        before = accepted(off)
        drafts = exact_drafts(shallow_folder, count)
        configs = [config(logprobs=1, num_assistant_tokens=drafts)] * 6
        assert answers(off, prompts, configs, together=False) == expected
        assert accepted(off) - before > 40


def test_a_span_of_jump_forward_tokens_and_drafts_is_computed_query_by_query(
    shallow_folder: Path,
) -> None:
    """Attention does so for up to 16 tokens of a request alone: their bits are those of decodes."""
    shape = pagewheel.StructuredOutputConfig(
        regex="(In [A-Z][a-z]{2,9} it will be warm and sunny tomorrow, with a light wind\\. ){4}"
        "(So they will carry neither coats nor umbrellas, but hats, glasses, and much water. ){2}"
    )
    expected = None
    for count in (0, 5, 15):
        drafts = exact_drafts(shallow_folder, count)
        pipeline = make_pipeline(shallow_folder, "off")
        one = pagewheel.GenerationConfig(max_new_tokens=160, num_assistant_tokens=drafts)
        one.structured_output_config = shape
        handle = pipeline.add_request(0, "The weather in some cities of Italy:", one)
        pipeline.step()  # the prompt
        spans = []
        while pipeline.has_non_finished_requests():
            pipeline.step()
            spans.append(pipeline.get_statistics().latest_step.num_tokens)
        tokens = handle.read_all()[0].generated_ids
        expected = expected or tokens
        assert tokens == expected
        assert 1 < max(spans) <= 16
        assert accepted(pipeline) == 0 or drafts > 0


def random_request(rng: random.Random) -> tuple[list[int], pagewheel.GenerationConfig]:
    """A prompt of few words, and a config that is greedy or sampled."""
    words = [rng.randrange(3, 200) for _ in range(rng.randrange(1, 6))]
    prompt = [words[rng.randrange(len(words))] for _ in range(rng.randrange(1, 40))]
    one = config(rng.randrange(1, 30))
    if rng.random() < 0.3:
        one.do_sample, one.temperature, one.rng_seed = True, 0.5, rng.randrange(1000)
    return prompt, one


def test_500_random_requests_alone_get_the_same_tokens(tiny_folder: Path) -> None:
    rng = random.Random(4)
    off, auto = (make_pipeline(tiny_folder, each) for each in ("off", "auto"))
    lengths = [exact_drafts(tiny_folder, count) for count in (0, 3, 15)]
    for _ in range(500):
        prompt, one = random_request(rng)
        expected = answers(off, [prompt], [one], together=False)
        one.num_assistant_tokens = rng.choice(lengths)
        assert answers(auto, [prompt], [one], together=False) == expected
    assert accepted(off) == 0
    assert accepted(auto) > 200


@pytest.fixture(scope="module")
def byte_model() -> Any:
    """A model whose tokens all have bytes."""
    model = tiny_models.make("llama-even")
    model.lm_head.weight.data[262:] = 0
    return model


@pytest.fixture(scope="module")
def byte_folder(byte_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bytes")
    source = tiny_models.save(byte_model, path / "source")
    return convert(source, path / "model", weight_format="int8", progress=False)


@pytest.fixture(scope="module")
def shuffled_folder(byte_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model, whose tokens have other numbers."""
    order = list(range(300))
    middle = order[3:262]
    random.Random(5).shuffle(middle)
    order[3:262] = middle
    model = copy.deepcopy(byte_model)
    for weights, own in (
        (model.model.embed_tokens.weight, byte_model.model.embed_tokens.weight),
        (model.lm_head.weight, byte_model.lm_head.weight),
    ):
        weights.data[order] = own.data
    path = tmp_path_factory.mktemp("shuffled")
    source = tiny_models.save(model, path / "source")
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    tokenizer["model"]["vocab"] = {piece: order[token] for piece, token in vocabulary.items()}
    (source / "tokenizer.json").write_text(json.dumps(tokenizer))
    return convert(source, path / "model", weight_format="int8", progress=False)


def test_a_draft_model_with_other_numbers_of_the_same_tokens_drafts_the_same(
    byte_folder: Path, shuffled_folder: Path
) -> None:
    rng = random.Random(3)
    prompts = [[rng.randrange(3, 262) for _ in range(count)] for count in (1, 20, 70)]
    configs = [config(60, num_assistant_tokens=4)] * 3
    found: list[Any] = []
    for draft in (None, byte_folder, shuffled_folder):
        properties = {} if draft is None else {"draft_model": str(draft)}
        pipeline = make_pipeline(byte_folder, "off", {**F32, **properties})
        given = configs if draft else [config(60)] * 3
        found.append(answers(pipeline, prompts, given, together=False))
        steps = pipeline.get_statistics().all_steps
        found.append((steps.num_drafted_tokens, steps.num_accepted_tokens))
    assert found[0] == found[2] == found[4]
    assert found[3] == found[5]
    assert found[5][1] > 100


@pytest.mark.parametrize("draft", [None, "tiny_folder", "byte_folder"])
def test_500_random_requests_together_get_the_same_tokens(
    tiny_folder: Path, draft: str | None, request: pytest.FixtureRequest
) -> None:
    """Requests wait, are preempted and share prefixes; a second model is right or not at all, or
    has another vocabulary.
    """
    rng = random.Random(6)
    properties: dict[str, Any] = {"batch_invariant": True}
    scheduling = {"num_kv_blocks": 30, "enable_prefix_caching": True}
    off = make_pipeline(tiny_folder, "off", properties, **scheduling)
    if draft:
        properties["draft_model"] = pagewheel.draft_model(request.getfixturevalue(draft))
    auto = make_pipeline(tiny_folder, "auto", properties, **scheduling)
    prompts, configs = map(list, zip(*(random_request(rng) for _ in range(500)), strict=True))
    expected = answers(off, prompts, configs, together=True)
    for each in configs:
        each.num_assistant_tokens = rng.choice([0, 3, 15])
    assert answers(auto, prompts, configs, together=True) == expected
    assert off.get_statistics().num_preemptions > 0
    assert accepted(off) == 0
    assert accepted(auto) > 200
    assert auto.get_statistics().num_used_blocks == 0


def test_what_is_cached_afterwards_is_what_no_drafts_leave(
    tiny_folder: Path, tmp_path: Path
) -> None:
    rng = random.Random(8)
    requests = [random_request(rng) for _ in range(40)]
    for prompt, one in requests:
        one.max_new_tokens = 97 - len(prompt)  # whole blocks of tokens are computed
    files, counts = [], []
    for num_drafts in (0, 5):
        pipeline = make_pipeline(
            tiny_folder, "off", {"batch_invariant": True}, enable_prefix_caching=True
        )
        for prompt, one in requests:
            one.num_assistant_tokens = num_drafts
            answers(pipeline, [prompt], [one], together=False)
        cache = pipeline.get_prefix_cache()
        cache.save(tmp_path / "prefixes")
        files.append((tmp_path / "prefixes").read_bytes())
        now = pipeline.get_statistics()
        counts.append((cache.num_tokens(), now.num_used_blocks, now.num_cached_blocks))
    assert now.all_steps.num_drafted_tokens > now.all_steps.num_accepted_tokens > 50
    assert counts[0] == counts[1]
    assert files[0] == files[1]


def test_drafts_go_with_eviction_preemption_and_cancels(tiny_folder: Path) -> None:
    rng = random.Random(9)
    pipeline = make_pipeline(
        tiny_folder,
        "auto",
        num_kv_blocks=12,
        use_cache_eviction=True,
        cache_eviction_config=pagewheel.CacheEvictionConfig(8, 16, 64),
        enable_prefix_caching=True,
    )
    handles = []
    for i in range(200):
        prompt, one = random_request(rng)
        one.max_new_tokens = rng.randrange(1, 120)
        one.num_assistant_tokens = rng.choice([0, 2, 7])
        handles.append((pipeline.add_request(i, prompt, one), one.max_new_tokens))
        for _ in range(rng.randrange(6)):
            pipeline.step()
        if i % 7 == 6:
            handles.pop(rng.randrange(len(handles)))[0].cancel()
    while pipeline.has_non_finished_requests():
        pipeline.step()
    for handle, count in handles:
        assert len(handle.read_all()[0].generated_ids) == count
    now = pipeline.get_statistics()
    assert now.all_steps.num_drafted_tokens > now.all_steps.num_accepted_tokens > 20
    assert now.num_preemptions > 0
    assert now.num_evicted_tokens > 0
    assert now.num_used_blocks == 0


def test_mixed_batches_get_the_same_tokens_with_batch_invariant(shallow_folder: Path) -> None:
    properties = {"batch_invariant": True}
    off = make_pipeline(shallow_folder, "off", properties)
    auto = make_pipeline(shallow_folder, "auto", properties)
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


def test_eviction_and_prefix_caching_go_with_drafts(shallow_folder: Path) -> None:
    prompts = [PROMPTS[0], PROMPTS[0] + CODE[:100]]
    scheduling = {
        "use_cache_eviction": True,
        "cache_eviction_config": pagewheel.CacheEvictionConfig(32, 32, 128, policy="streaming"),
        "enable_prefix_caching": True,
    }
    off = make_pipeline(shallow_folder, "off", **scheduling)
    expected = answers(off, prompts, [config(150)] * 2, together=False)
    auto = make_pipeline(shallow_folder, "auto", **scheduling)
    fixed = [config(150, num_assistant_tokens=exact_drafts(shallow_folder, 5))] * 2
    assert answers(auto, prompts, fixed, together=False) == expected
    assert accepted(auto) > 20


def test_prompt_lookup_is_chosen_as_in_openvino_genai(shallow_folder: Path) -> None:
    same = {"max_new_tokens": 40, "apply_chat_template": False}
    plain = genai.LLMPipeline(shallow_folder)
    expected = plain.generate([PROMPTS[0]], **same).texts
    lookup = genai.LLMPipeline(shallow_folder, "CPU", prompt_lookup=True)
    drafts = exact_drafts(shallow_folder, 5)
    found = lookup.generate([PROMPTS[0]], num_assistant_tokens=drafts, max_ngram_size=3, **same)
    assert found.texts == expected
    metrics = found.perf_metrics
    assert metrics.get_num_accepted_tokens() > 5
    assert metrics.get_num_drafted_tokens() >= metrics.get_num_accepted_tokens()
    assert lookup.generate(PROMPTS[1], **same) == plain.generate(PROMPTS[1], **same)
    with pytest.raises(RuntimeError, match="num_beams"):
        lookup.generate(PROMPTS[0], num_beams=2, num_assistant_tokens=3, **same)


def test_a_draft_model_changes_no_answer(shallow_folder: Path) -> None:
    properties = {"batch_invariant": True}
    off = make_pipeline(shallow_folder, "off", properties)
    drafting = make_pipeline(
        shallow_folder, "off", {**properties, "draft_model": pagewheel.draft_model(shallow_folder)}
    )
    configs = [
        config(logprobs=1),
        config(40),
        config(30, do_sample=True, rng_seed=5, num_return_sequences=3),
        config(30, repetition_penalty=1.1),
    ]
    expected = answers(off, PROMPTS, configs, together=True)
    for each in configs:
        each.num_assistant_tokens = 4
    assert answers(drafting, PROMPTS, configs, together=True) == expected
    # The same model is right wherever the likeliest token is chosen from its own logits.
    assert accepted(drafting) > 100
    assert drafting.get_statistics().num_used_blocks == 0


def test_a_draft_model_is_chosen_as_in_openvino_genai(
    smollm2_folder: Path, smollm2_gguf: Path
) -> None:
    same = {"max_new_tokens": 24, "apply_chat_template": False}
    expected = genai.LLMPipeline(smollm2_folder).generate([PROMPTS[0]], **same).texts
    draft = genai.draft_model(smollm2_gguf, "CPU", KV_CACHE_PRECISION="f16")
    for value in (draft, str(smollm2_folder)):
        pipe = genai.LLMPipeline(smollm2_folder, "CPU", draft_model=value)
        found = pipe.generate([PROMPTS[0]], num_assistant_tokens=5, **same)
        assert found.texts == expected
        both = found.extended_perf_metrics
        main, drafting = both.main_model_metrics, both.draft_model_metrics
        assert both.get_num_accepted_tokens() == found.perf_metrics.get_num_accepted_tokens() > 10
        assert both.get_num_draft_tokens() == found.perf_metrics.get_num_drafted_tokens()
        assert both.get_num_draft_processed_tokens() == drafting.get_num_generated_tokens() > 10
        assert len(drafting.raw_metrics.m_durations) == len(drafting.raw_metrics.m_batch_sizes)
        assert sum(main.raw_metrics.m_batch_sizes) == main.get_num_generated_tokens() == 24
        assert 0 < main.get_ttst().mean < main.get_generate_duration().mean
        assert main.get_latency().mean > main.get_tpot().mean > 0
        assert drafting.get_latency().mean > 0


def test_a_draft_model_that_cannot_draft_is_refused_by_name(smollm2_folder: Path) -> None:
    scheduler = pagewheel.SchedulerConfig()
    for draft, message in (
        (3, "draft_model has type"),
        (pagewheel.draft_model(smollm2_folder, "XPU"), "'XPU' is not available"),
    ):
        with pytest.raises(pagewheel.InvalidArgumentError, match=message):
            pagewheel.ContinuousBatchingPipeline(
                smollm2_folder, scheduler, "CPU", {"draft_model": draft}
            )
    with pytest.raises(pagewheel.InvalidArgumentError, match="prompt_lookup is true and draft"):
        draft = pagewheel.draft_model(smollm2_folder)
        pagewheel.LLMPipeline(smollm2_folder, draft_model=draft, prompt_lookup=True)
    with pytest.raises(pagewheel.InvalidArgumentError, match="scheduler_config is a prop"):
        pagewheel.draft_model(smollm2_folder, scheduler_config=scheduler)


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
