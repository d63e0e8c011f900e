"""Generation under grammars: what is finished is valid, whatever else the request asks for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from conftest import batching_pipeline, drain

import pagewheel
from pagewheel import GenerationConfig, GenerationFinishReason, StructuredOutputConfig

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "full_name": {"type": "string", "maxLength": 20},
        "age_in_years": {"type": "integer", "minimum": 0, "maximum": 150},
        "colours": {
            "type": "array",
            "items": {"enum": ["red", "green", "blue"]},
            "minItems": 1,
            "maxItems": 3,
        },
    },
    "required": ["full_name", "age_in_years", "colours"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}
JSON = StructuredOutputConfig(json_schema=SCHEMA)
PROMPT = "Describe a person in JSON."
SAMPLED = {"do_sample": True, "temperature": 1.5}

WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {**SAMPLED, "rng_seed": 1},
    "samples": {**SAMPLED, "rng_seed": 2, "num_return_sequences": 3},
    "beams": {"num_beams": 3, "num_return_sequences": 2},
    "diverse beams": {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5},
    "logprobs": {**SAMPLED, "rng_seed": 3, "logprobs": 2},
    "filters": {**SAMPLED, "rng_seed": 4, "top_k": 20, "top_p": 0.9, "min_p": 0.01},
    "mirostat": {**SAMPLED, "rng_seed": 5, "mirostat": 2},
    "penalties": {"repetition_penalty": 1.3, "presence_penalty": 0.5, "dry_multiplier": 0.8},
}


@pytest.fixture(scope="module")
def folder(shallow_folder: Path) -> Path:
    return shallow_folder


@pytest.fixture(scope="module")
def llm(smollm2_folder: Path) -> pagewheel.LLMPipeline:
    return pagewheel.LLMPipeline(smollm2_folder, "CPU")


@pytest.fixture(scope="module")
def real_llm(real_folder: Path) -> pagewheel.LLMPipeline:
    """Models of both kinds of tokenizers: grammars know tokens, the engine's ways do not."""
    return pagewheel.LLMPipeline(real_folder, "CPU")


def config_of(grammar: StructuredOutputConfig = JSON, **parameters: Any) -> GenerationConfig:
    parameters = {"max_new_tokens": 150, **parameters}
    return GenerationConfig(structured_output_config=grammar, **parameters)


def check(text: str) -> None:
    jsonschema.validate(json.loads(text), SCHEMA)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_finished_is_valid(way: str, llm: pagewheel.LLMPipeline) -> None:
    result = llm.generate([PROMPT], config_of(**WAYS[way]))
    assert result.texts
    for text, reason in zip(result.texts, result.finish_reasons, strict=True):
        assert reason == GenerationFinishReason.STOP
        check(text)


def test_many_random_texts_are_valid(real_llm: pagewheel.LLMPipeline) -> None:
    seeds = range(12)
    configs = [config_of(**SAMPLED, rng_seed=seed) for seed in seeds]
    results = [real_llm.generate(PROMPT, config) for config in configs]
    for text in results:
        check(text)
    assert len(set(results)) > 6


def test_requests_with_grammars_and_without_share_a_batch(folder: Path) -> None:
    pipeline = batching_pipeline(folder, num_kv_blocks=200)
    plain = GenerationConfig(max_new_tokens=12)
    digits = StructuredOutputConfig(regex="[0-9]{3}-[0-9]{4}")
    alone = pipeline.generate([PROMPT], [plain])[0].m_generation_ids
    together = pipeline.generate(
        [PROMPT, PROMPT, "Call me:"], [plain, config_of(**SAMPLED), config_of(digits)]
    )
    assert together[0].m_generation_ids == alone
    check(together[1].m_generation_ids[0])
    assert re.fullmatch("[0-9]{3}-[0-9]{4}", together[2].m_generation_ids[0])


@pytest.mark.parametrize(
    "limits",
    [
        {"num_kv_blocks": 4, "max_num_batched_tokens": 32},
        {"num_kv_blocks": 100, "enable_prefix_caching": True},
        {"num_kv_blocks": 100, "max_num_seqs": 2},
    ],
    ids=["preemption", "prefix caching", "queue"],
)
def test_the_schedule_changes_no_text(folder: Path, limits: dict[str, Any]) -> None:
    pipeline = batching_pipeline(folder, **limits)
    configs = [config_of(**SAMPLED, rng_seed=seed) for seed in range(4)]
    for _ in range(2):
        for result in pipeline.generate([PROMPT + " Be brief." * 5] * 4, configs):
            check(result.m_generation_ids[0])
    if limits["num_kv_blocks"] == 4:
        assert pipeline.get_statistics().num_preemptions > 0


def test_eviction_leaves_the_grammar_alone(folder: Path) -> None:
    eviction = pagewheel.CacheEvictionConfig(
        start_size=8,
        recent_size=16,
        max_cache_size=56,
        aggregation_mode=pagewheel.AggregationMode.SUM,
    )
    pipeline = batching_pipeline(
        folder, num_kv_blocks=100, use_cache_eviction=True, cache_eviction_config=eviction
    )
    for result in pipeline.generate(
        [PROMPT] * 2, [config_of(**SAMPLED, rng_seed=s) for s in (1, 2)]
    ):
        check(result.m_generation_ids[0])


def test_a_stream_is_the_text(llm: pagewheel.LLMPipeline) -> None:
    pieces: list[str] = []
    text = llm.generate(PROMPT, config_of(), streamer=pieces.append)
    check(text)
    assert "".join(pieces) == text


def test_a_stop_string_cuts_it_short(llm: pagewheel.LLMPipeline) -> None:
    result = llm.generate([PROMPT], config_of(stop_strings={'", "age', '","age'}))
    assert result.finish_reasons == [GenerationFinishReason.STOP]
    assert re.fullmatch(r'\{"full_name": ?"[^"]*', result.texts[0])


def test_echo_puts_the_prompt_before_it(llm: pagewheel.LLMPipeline) -> None:
    text = llm.generate(PROMPT, config_of(echo=True, apply_chat_template=False))
    assert text.startswith(PROMPT)
    check(text.removeprefix(PROMPT))


def test_its_length_ends_it_within(llm: pagewheel.LLMPipeline) -> None:
    result = llm.generate([PROMPT], config_of(max_new_tokens=5))
    assert result.finish_reasons == [GenerationFinishReason.LENGTH]
    assert result.perf_metrics.get_num_generated_tokens() == 5


def test_several_stop_tokens_end_it_where_it_may_end(llm: pagewheel.LLMPipeline) -> None:
    tokenizer = llm.get_tokenizer()
    exclamation = int(tokenizer.encode("!", add_special_tokens=False).input_ids.data[0, -1])
    config = config_of(StructuredOutputConfig(regex="yes|no"))
    config.stop_token_ids = {exclamation}
    config.set_eos_token_id(tokenizer.get_eos_token_id())
    assert re.fullmatch("(yes|no)!?", llm.generate(PROMPT, config))


def test_every_kind_of_grammar_is_followed(real_llm: pagewheel.LLMPipeline) -> None:
    config = StructuredOutputConfig
    kinds: dict[str, StructuredOutputConfig] = {
        "yes|no": config(regex="yes|no"),
        "[ab]+c": config(grammar='root ::= [ab]+ "c"'),
        "red|blue": config(compound_grammar=config.Choice(["red", "blue"])),
        "<a>[0-9]{1,3}</a>": config(
            compound_grammar=config.Tag("<a>", config.Regex("[0-9]{1,3}"), "</a>")
        ),
    }
    for pattern, grammar in kinds.items():
        text = real_llm.generate(PROMPT, config_of(grammar, **SAMPLED, rng_seed=7))
        assert re.fullmatch(pattern, text), text


def test_a_refused_schema_is_refused_when_the_request_is_added(
    llm: pagewheel.LLMPipeline, folder: Path
) -> None:
    wrong = StructuredOutputConfig(json_schema={"properties": {"a": {"not": {}}}})
    with pytest.raises(ValueError, match="/properties/a/not"):
        llm.generate(PROMPT, config_of(wrong))
    pipeline = batching_pipeline(folder, num_kv_blocks=20)
    with pytest.raises(ValueError, match="/properties/a/not"):
        pipeline.add_request(0, PROMPT, config_of(wrong))
    assert not pipeline.has_non_finished_requests()


def test_a_handle_reads_it(folder: Path) -> None:
    pipeline = batching_pipeline(folder, num_kv_blocks=50)
    handle = pipeline.add_request(0, PROMPT, config_of())
    drain(pipeline)
    (output,) = handle.read_all(with_text=True)
    check(output.text)
    metrics = handle.get_perf_metrics()
    assert metrics.get_num_generated_tokens() == len(output.generated_ids)
    assert len(metrics.raw_metrics.grammar_compile_times) == 1


def test_bans_that_leave_nothing_end_it_with_a_reason_of_its_own(
    llm: pagewheel.LLMPipeline,
) -> None:
    vocabulary = llm.get_tokenizer().get_vocab()
    with_y = {token for text, token in vocabulary.items() if text.startswith(b"y")}
    config = config_of(StructuredOutputConfig(regex="yes"), suppress_tokens=with_y)
    result = llm.generate([PROMPT], config)
    assert result.finish_reasons == [GenerationFinishReason.ERROR]
    assert result.texts == [""]


def test_the_time_to_compile_is_among_the_metrics(llm: pagewheel.LLMPipeline) -> None:
    result = llm.generate([PROMPT], config_of(max_new_tokens=2))
    assert result.perf_metrics.get_grammar_compile_time().mean > 0
    assert result.perf_metrics.get_grammar_compiler_init_times()["llguidance"] > 0
    plain = llm.generate([PROMPT], max_new_tokens=2)
    assert plain.perf_metrics.get_grammar_compiler_init_times() == {}
    assert plain.perf_metrics.get_grammar_compile_time().mean == -1


def test_parameters_of_a_call_take_one(llm: pagewheel.LLMPipeline) -> None:
    grammar = StructuredOutputConfig(regex="yes|no")
    assert llm.generate(PROMPT, structured_output_config=grammar, max_new_tokens=9) in ("yes", "no")
    config = GenerationConfig(max_new_tokens=2)
    assert config.structured_output_config is None
    config.structured_output_config = grammar
    assert config.structured_output_config.regex == "yes|no"
    assert GenerationConfig(config).structured_output_config is not None
    config.update_generation_config(structured_output_config=None)
    assert config.structured_output_config is None


def test_what_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match="allowed: StructuredOutputConfig"):
        GenerationConfig(structured_output_config={"regex": "a"})
    with pytest.raises(ValueError, match="allowed is one"):
        GenerationConfig(
            max_new_tokens=2, structured_output_config=StructuredOutputConfig()
        ).validate()


def test_forced_tokens_are_those_that_the_model_is_asked_for(real_folder: Path) -> None:
    """With log-probabilities the model is asked for each."""
    properties = {"batch_invariant": True}
    pipeline = batching_pipeline(real_folder, properties, num_kv_blocks=50, speculation="off")
    for way in ({}, *({**SAMPLED, "rng_seed": seed} for seed in range(4))):
        texts, steps = [], []
        for extra in ({}, {"logprobs": 1}):
            before = pipeline.get_statistics().num_steps
            result = pipeline.generate([PROMPT], [config_of(**way, **extra)])[0]
            texts.append(result.m_generation_ids[0])
            steps.append(pipeline.get_statistics().num_steps - before)
        assert texts[0] == texts[1]
        assert steps[0] < 0.8 * steps[1]


def test_a_grammar_may_begin_after_free_text(llm: pagewheel.LLMPipeline) -> None:
    grammar = StructuredOutputConfig(json_schema=SCHEMA, begin_after=".")
    text = llm.generate("Why is the sky blue?", config_of(grammar))
    thought, end, answer = text.partition(".")
    assert thought and end
    check(answer.lstrip())


def test_begin_after_is_part_of_the_grammar(smollm2_tokenizer: pagewheel.Tokenizer) -> None:
    config = StructuredOutputConfig(regex="yes|no", begin_after="</think>")
    grammar = pagewheel.Grammar(config, smollm2_tokenizer)
    assert grammar.accepts("I see. yes? </thin</think>\n\nyes")
    assert grammar.accepts("</think>no")
    assert not grammar.accepts("I see.</think>maybe")
    assert not grammar.accepts("yes")
    assert config.begin_after == "</think>"
    assert StructuredOutputConfig(regex="a").begin_after == ""
    json_grammar = pagewheel.Grammar(
        StructuredOutputConfig(json_schema=SCHEMA, begin_after="</think>"), smollm2_tokenizer
    )
    person = '{"full_name":"A","age_in_years":3,"colours":["red"]}'
    assert json_grammar.accepts(f"{{}}</think>\n{person}")
    assert not json_grammar.accepts(person)


@pytest.mark.parametrize("way", ["greedy", "samples", "beams", "logprobs", "penalties"])
@pytest.mark.parametrize("name", ["min_tokens", "min_new_tokens"])
def test_a_text_that_can_only_end_ends_before_the_least_number_of_tokens(
    name: str, way: str, llm: pagewheel.LLMPipeline
) -> None:
    config = config_of(**WAYS[way], **{name: 149})
    result = llm.generate([PROMPT], config)
    for text, reason in zip(result.texts, result.finish_reasons, strict=True):
        assert reason == GenerationFinishReason.STOP
        check(text)


def test_a_text_that_can_go_on_has_the_least_number_of_tokens(
    llm: pagewheel.LLMPipeline,
) -> None:
    letters = StructuredOutputConfig(regex="(?:[a-z] ){1,100}")
    soon_ends = {llm.get_tokenizer().get_eos_token_id(): 80.0}

    def num_tokens(**options: Any) -> int:
        result = llm.generate([PROMPT], config_of(letters, logit_bias=soon_ends, **options))
        assert result.finish_reasons == [GenerationFinishReason.STOP]
        assert re.fullmatch("(?:[a-z] ){1,100}", result.texts[0])
        return int(result.perf_metrics.get_num_generated_tokens())

    assert num_tokens() < 10
    for name in ("min_tokens", "min_new_tokens"):
        assert 60 <= num_tokens(**{name: 60}) < 70
