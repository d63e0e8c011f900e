"""Beam search finds what transformers' finds, with the same scores."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
import torch
from beam_reference import of_model, search
from beams import Batching, make_pipeline, random_prompt, run
from conftest import greedy
from fuzzing import TIMES
from transformers import LlamaForCausalLM

import pagewheel
from pagewheel import GenerationFinishReason, StopCriteria

EARLY_STOPPING = {
    StopCriteria.EARLY: True,
    StopCriteria.HEURISTIC: False,
    StopCriteria.NEVER: "never",
}


@pytest.fixture(scope="module")
def batching(tiny_folder: Path) -> Batching:
    return make_pipeline(tiny_folder, num_kv_blocks=400)


def random_options(rng: random.Random) -> dict[str, Any]:
    """The fewer tokens a vocabulary of 260 tokens ends with, the later a beam ends."""
    num_beams = rng.randint(2, 6)
    options: dict[str, Any] = {
        "num_beams": num_beams,
        "num_return_sequences": rng.randint(1, num_beams),
        "max_new_tokens": rng.randint(1, 14),
        "length_penalty": rng.choice([1.0, 0.0, 2.0, -1.0, 0.6]),
        "stop_criteria": rng.choice(list(EARLY_STOPPING)),
        "stop_token_ids": set(rng.sample(range(4, 267), rng.choice([1, 4, 40]))),
    }
    options["eos_token_id"] = min(options["stop_token_ids"])
    if rng.random() < 0.3:
        options["repetition_penalty"] = rng.choice([1.3, 0.8])
    if rng.random() < 0.3:
        options["no_repeat_ngram_size"] = rng.randint(1, 3)
    if rng.random() < 0.3:
        options["min_new_tokens"] = rng.randint(1, options["max_new_tokens"])
    return options


def transformers_search(
    model: LlamaForCausalLM, prompt: list[int], options: dict[str, Any]
) -> tuple[list[list[int]], list[float]]:
    same = ("num_beams", "num_return_sequences", "max_new_tokens", "length_penalty")
    others = ("repetition_penalty", "no_repeat_ngram_size", "min_new_tokens")
    ends = sorted(options["stop_token_ids"])
    found = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        early_stopping=EARLY_STOPPING[options["stop_criteria"]],
        eos_token_id=ends,
        pad_token_id=0,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
        **{key: options[key] for key in (*same, *others) if key in options},
    )
    rows = []
    for row in found.sequences[:, len(prompt) :].tolist():
        end = next((i + 1 for i, token in enumerate(row) if token in ends), len(row))
        rows.append(row[:end])
    return rows, found.sequences_scores.tolist()


@pytest.mark.fuzz
def test_random_searches_equal_those_of_transformers(
    batching: Batching, tiny_reference: LlamaForCausalLM
) -> None:
    ended_early = 0
    for seed in range(60 * TIMES):
        rng = random.Random(seed)
        prompt, options = random_prompt(rng), random_options(rng)
        result = run(batching, prompt, **options)
        tokens, scores = transformers_search(tiny_reference, prompt, options)
        assert result.m_generation_ids == tokens, (seed, options)
        np.testing.assert_allclose(result.m_scores, scores, atol=1e-3, err_msg=str(seed))
        for row, reason in zip(tokens, result.m_finish_reasons, strict=True):
            ends = row[-1] in options["stop_token_ids"]
            stop, length = GenerationFinishReason.STOP, GenerationFinishReason.LENGTH
            assert reason == (stop if ends else length)
            ended_early += len(row) < options["max_new_tokens"]
    assert ended_early > 20


def test_searches_of_a_real_model_equal_those_of_transformers(
    shallow_folder: Path, shallow_reference: LlamaForCausalLM
) -> None:
    pipeline = make_pipeline(shallow_folder)
    tokenizer = pipeline.get_tokenizer()
    cases: list[tuple[str, dict[str, Any]]] = [
        ("The capital of France is", {"num_beams": 4, "num_return_sequences": 4}),
        ("Once upon a time", {"num_beams": 3, "no_repeat_ngram_size": 2, "length_penalty": 0.0}),
        ("def add(a, b):", {"num_beams": 5, "stop_criteria": StopCriteria.NEVER}),
    ]
    for text, given in cases:
        prompt = tokenizer.encode(text).input_ids.data[0].tolist()
        # A full stop and a line break end it.
        options = {"max_new_tokens": 20, "eos_token_id": 30, "num_return_sequences": 1}
        options |= {"stop_token_ids": {30, 198}, "length_penalty": 1.0}
        options |= {"stop_criteria": StopCriteria.HEURISTIC, **given}
        result = run(pipeline, prompt, **options)
        tokens, scores = transformers_search(shallow_reference, prompt, options)
        assert result.m_generation_ids == tokens, text
        np.testing.assert_allclose(result.m_scores, scores, atol=1e-3)


@pytest.mark.fuzz
def test_random_searches_in_groups_equal_the_definition(
    batching: Batching, tiny_reference: LlamaForCausalLM
) -> None:
    diverse = 0
    for seed in range(25 * TIMES):
        rng = random.Random(seed)
        prompt = random_prompt(rng)
        groups, size = rng.randint(1, 4), rng.randint(1, 3)
        num_beams = max(2, groups * size)
        groups = groups if groups * size >= 2 else 1
        criterion = rng.choice(list(EARLY_STOPPING))
        ends = set(rng.sample(range(4, 267), rng.choice([1, 4, 40])))
        options: dict[str, Any] = {
            "max_new_tokens": rng.randint(1, 8),
            "length_penalty": rng.choice([1.0, 0.0, 2.0, -1.0]),
        }
        diversity = rng.choice([0.05, 0.5, 2.0]) if groups > 1 else 0.0
        result = run(
            batching,
            prompt,
            num_beams=num_beams,
            num_beam_groups=groups,
            num_return_sequences=num_beams,
            diversity_penalty=diversity,
            stop_criteria=criterion,
            eos_token_id=min(ends),
            stop_token_ids=ends,
            **options,
        )
        expected = search(
            of_model(tiny_reference, prompt),
            num_beams=num_beams,
            groups=groups,
            diversity=diversity,
            stop={True: "early", False: "heuristic", "never": "never"}[EARLY_STOPPING[criterion]],
            ends=ends,
            **options,
        )
        assert result.m_generation_ids == [tokens for _, tokens in expected], seed
        np.testing.assert_allclose(result.m_scores, [s for s, _ in expected], atol=1e-3)
        diverse += groups > 1 and len({tokens[0] for _, tokens in expected}) >= groups
    assert diverse > 5


def test_a_score_is_the_sum_of_log_probabilities_over_the_length(
    batching: Batching, tiny_reference: LlamaForCausalLM
) -> None:
    prompt = random_prompt(random.Random(1))
    config = greedy(9, num_beams=3, num_return_sequences=3, logprobs=1, echo=True)
    handle = batching.add_request(0, prompt, config)
    batching.step()
    assert not handle.can_read()  # nothing is final yet
    while batching.has_non_finished_requests():
        batching.step()
    outputs = handle.outputs_so_far()
    assert [output.score for output in outputs] == sorted((o.score for o in outputs), reverse=True)
    assert handle.read().keys() == {0, 1, 2}
    for output in outputs:
        ids = torch.tensor([prompt + output.generated_ids])
        with torch.no_grad():
            rows = tiny_reference(ids).logits[0].double().log_softmax(-1)
        expected = [float(rows[len(prompt) - 1 + i, t]) for i, t in enumerate(output.generated_ids)]
        np.testing.assert_allclose(output.generated_log_probs, expected, atol=1e-3)
        assert output.score == pytest.approx(sum(output.generated_log_probs) / 9, abs=1e-5)
        assert output.finish_reason == GenerationFinishReason.LENGTH
    assert len(outputs[0].prompt_log_probs) == len(prompt) - 1
    metrics = handle.get_perf_metrics()
    assert metrics.get_num_generated_tokens() == 27
    assert metrics.get_ttft().mean > 0 and metrics.get_tpot().mean > 0


def test_presence_and_frequency_penalties_are_subtracted(batching: Batching) -> None:
    """So large ones that no token comes twice, where one comes often without."""
    prompt = random_prompt(random.Random(2))
    plain = run(batching, prompt, num_beams=3, max_new_tokens=25, ignore_eos=True)
    assert len(set(plain.m_generation_ids[0])) < 25
    for name in ("presence_penalty", "frequency_penalty"):
        options: dict[str, Any] = {name: 2.0}
        result = run(batching, prompt, num_beams=3, max_new_tokens=25, ignore_eos=True, **options)
        assert len(set(result.m_generation_ids[0])) > len(set(plain.m_generation_ids[0]))


def test_ngrams_do_not_repeat_without_beams_either(
    batching: Batching, tiny_reference: LlamaForCausalLM
) -> None:
    prompt = random_prompt(random.Random(3))
    for size in (1, 2, 3):
        (tokens,) = run(
            batching, prompt, max_new_tokens=40, ignore_eos=True, no_repeat_ngram_size=size
        ).m_generation_ids
        expected = tiny_reference.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            max_new_tokens=40,
            no_repeat_ngram_size=size,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        assert tokens == expected[0, len(prompt) :].tolist()


def test_stop_strings_end_beams(f32_pipeline: pagewheel.LLMPipeline) -> None:
    options: dict[str, Any] = {"num_beams": 4, "num_return_sequences": 4, "max_new_tokens": 30}
    options |= {"apply_chat_template": False, "stop_strings": {" of", "."}}
    prompt = ["The largest city in the world is"]
    for included in (False, True):
        config = pagewheel.GenerationConfig(include_stop_str_in_output=included, **options)
        result = f32_pipeline.generate(prompt, config)
        assert len(result.texts) == 4
        assert result.scores == sorted(result.scores, reverse=True)
        for text, reason in zip(result.texts, result.finish_reasons, strict=True):
            if reason == GenerationFinishReason.STOP:
                assert text.endswith((" of", ".")) is included
            assert " of" not in text[:-3] and "." not in text[:-1]
        assert GenerationFinishReason.STOP in result.finish_reasons


def test_generate_gives_the_best_first_for_each_prompt(
    f32_pipeline: pagewheel.LLMPipeline,
) -> None:
    prompts = ["The moon is", "My favourite food is"]
    config = greedy(8, num_beams=3, num_return_sequences=2, apply_chat_template=False)
    together = f32_pipeline.generate(prompts, config)
    for i, prompt in enumerate(prompts):
        alone = f32_pipeline.generate([prompt], config)
        assert together.texts[2 * i : 2 * i + 2] == alone.texts
        np.testing.assert_allclose(together.scores[2 * i : 2 * i + 2], alone.scores, atol=1e-5)
    ids = f32_pipeline.get_tokenizer().encode(prompts[0]).input_ids
    encoded = f32_pipeline.generate(ov.Tensor(ids.data), config)
    assert len(encoded.tokens) == 2
    assert encoded.scores == pytest.approx(together.scores[:2], abs=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": 4, "no_repeat_ngram_size": 0}, "no_repeat_ngram_size is 0 and num_beams"),
        ({"num_beams": 1001}, "num_beams is 1001; allowed: 1 to 1000"),
        ({"num_beams": 4, "num_beam_groups": 3}, "num_beam_groups is 3; allowed: divisors"),
        ({"num_beams": 4, "num_beam_groups": 0}, "num_beam_groups is 0; allowed: divisors"),
        ({"num_beams": 4, "num_beam_groups": 2}, "diversity_penalty is 0 and num_beam_groups is 2"),
        ({"num_beams": 4, "diversity_penalty": 1.0}, "diversity_penalty is 1 but num_beam_groups"),
        ({"num_beams": 4, "num_return_sequences": 5}, "num_return_sequences is 5; allowed: up to"),
        ({"num_beams": 4, "do_sample": True}, "num_beams is 4 and do_sample is true"),
        ({"num_beams": 300}, "num_beams is 300; allowed: up to max_num_seqs, which is 256"),
        (
            {"stop_criteria": "SOON"},
            "'stop_criteria' is \"SOON\"; allowed: EARLY, HEURISTIC and NEVER",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(
    batching: Batching, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        batching.generate([[5]], pagewheel.GenerationConfig(**options))


def test_a_length_penalty_is_a_finite_number() -> None:
    config = pagewheel.GenerationConfig(num_beams=4)
    config.length_penalty = float("inf")
    with pytest.raises(ValueError, match="length_penalty is inf; allowed: a finite number"):
        config.validate()


def test_a_streamer_is_refused(f32_pipeline: pagewheel.LLMPipeline) -> None:
    with pytest.raises(ValueError, match="num_beams is 2, and what beam search finds is known in"):
        f32_pipeline.generate("Hello", greedy(4, num_beams=2), lambda _: None)


def test_parameters_are_read_as_transformers_and_openvino_genai_write_them(tmp_path: Path) -> None:
    path = tmp_path / "generation_config.json"
    for written, read in (("true", "EARLY"), ("false", "HEURISTIC"), ('"never"', "NEVER")):
        path.write_text(f'{{"num_beams": 4, "early_stopping": {written}, "length_penalty": 0.5}}')
        config = pagewheel.GenerationConfig(path)
        assert config.is_beam_search() and not config.is_greedy_decoding()
        assert (config.stop_criteria.name, config.length_penalty) == (read, 0.5)
    path.write_text(
        '{"num_beams": null, "num_beam_groups": 1, "no_repeat_ngram_size": 0, "max_length": 9}'
    )
    pagewheel.GenerationConfig(path).validate()
    config = pagewheel.GenerationConfig(stop_criteria=StopCriteria.NEVER, num_beams=2)
    assert config.stop_criteria == StopCriteria.NEVER
    config.update_generation_config(stop_criteria="EARLY")
    assert config.stop_criteria == StopCriteria.EARLY
