"""Log-probabilities of the likeliest tokens, with their text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import batching_pipeline, drain, greedy

import pagewheel

PROMPTS = ["The capital of France is", "Grüße 🎉 an alle"]


@pytest.fixture(scope="module")
def batching(shallow_folder: Path) -> pagewheel.ContinuousBatchingPipeline:
    return batching_pipeline(shallow_folder)


def output_of(
    pipeline: pagewheel.ContinuousBatchingPipeline, prompt: list[int], **options: Any
) -> pagewheel.GenerationOutput:
    handle = pipeline.add_request(0, prompt, pagewheel.GenerationConfig(ignore_eos=True, **options))
    drain(pipeline)
    return handle.read_all()[0]


def check(found: list[pagewheel.TokenLogProb], log_probs: torch.Tensor, chosen: int) -> None:
    """The best 5, and the chosen one behind them."""
    expected = torch.topk(log_probs, 5).indices.tolist()
    expected += [] if chosen in expected else [chosen]
    assert [each.id for each in found] == expected
    np.testing.assert_allclose(
        [each.log_prob for each in found], log_probs[expected].numpy(), atol=1e-3
    )


@pytest.mark.parametrize("text", PROMPTS)
def test_they_are_transformers_of_prompt_and_generated_tokens(
    batching: pagewheel.ContinuousBatchingPipeline, shallow_reference: Any, text: str
) -> None:
    prompt = batching.get_tokenizer().encode(text).input_ids.data[0].tolist()
    for how in ({}, {"num_beams": 2}):
        output = output_of(batching, prompt, max_new_tokens=6, logprobs=5, echo=True, **how)
        tokens = prompt + output.generated_ids
        with torch.no_grad():
            logits = shallow_reference(torch.tensor([tokens])).logits[0].double()
        log_probs = torch.log_softmax(logits, 1)
        if not how:
            assert len(output.prompt_top_log_probs) == len(prompt) - 1
            for i, found in enumerate(output.prompt_top_log_probs):
                check(found, log_probs[i], tokens[i + 1])
        assert len(output.top_log_probs) == 6
        for i, found in enumerate(output.top_log_probs, start=len(prompt)):
            check(found, log_probs[i - 1], tokens[i])


def test_of_sampling_they_are_before_temperature_and_filters_and_have_the_token(
    batching: pagewheel.ContinuousBatchingPipeline,
) -> None:
    prompt = [504, 3575]
    sampled = {"do_sample": True, "temperature": 3.0, "top_k": 400, "rng_seed": 1}
    plain = output_of(batching, prompt, max_new_tokens=1, logprobs=3).top_log_probs[0]
    output = output_of(batching, prompt, max_new_tokens=5, logprobs=3, **sampled)
    for found, token in zip(output.top_log_probs, output.generated_ids, strict=True):
        assert token in [each.id for each in found]
    for a, b in zip(plain[:3], output.top_log_probs[0][:3], strict=True):
        assert a.id == b.id and abs(a.log_prob - b.log_prob) < 1e-4


def test_tokens_have_their_bytes_and_text_that_shows_what_is_no_utf8(
    batching: pagewheel.ContinuousBatchingPipeline,
) -> None:
    tokenizer = batching.get_tokenizer()
    prompt = tokenizer.encode("🎉 <|im_end|>\n").input_ids.data[0].tolist()
    output = output_of(batching, prompt, max_new_tokens=1, logprobs=1, echo=True)
    told = [
        next(e for e in found if e.id == token)
        for found, token in zip(output.prompt_top_log_probs, prompt[1:], strict=True)
    ]
    first = tokenizer.get_vocab_vector()[prompt[0]]
    assert b"".join(each.bytes for each in told).endswith(b" <|im_end|>\n")
    assert any("\ufffd" in each.text for each in told)  # a part of the emoji
    assert first  # no token is without text here


def test_none_are_there_unasked_and_each_read_has_those_of_its_tokens(
    batching: pagewheel.ContinuousBatchingPipeline,
) -> None:
    assert output_of(batching, [504], max_new_tokens=3).top_log_probs == []
    config = greedy(6, logprobs=2)
    whole = output_of(batching, [504], max_new_tokens=6, logprobs=2).top_log_probs
    handle = batching.add_request(0, [504], config)
    parts: list[list[pagewheel.TokenLogProb]] = []
    while news := handle.read():
        assert len(news[0].top_log_probs) == len(news[0].generated_ids)
        parts += news[0].top_log_probs
    assert [[e.id for e in each] for each in parts] == [[e.id for e in each] for each in whole]


def test_they_are_the_same_after_preemption(tiny_folder: Path) -> None:
    """A prompt's rows that are computed again are not told again."""
    prompts = [[10 + i, 20, 30, *range(40, 90)] for i in range(6)]
    config = greedy(60, logprobs=2, echo=True)

    def outputs(**limits: int) -> list[pagewheel.GenerationOutput]:
        pipeline = batching_pipeline(tiny_folder, **limits)
        handles = [pipeline.add_request(i, each, config) for i, each in enumerate(prompts)]
        drain(pipeline)
        assert (pipeline.get_metrics().preemptions > 0) == ("num_kv_blocks" in limits)
        return [handle.read_all()[0] for handle in handles]

    for one, other in zip(outputs(), outputs(num_kv_blocks=16), strict=True):
        assert len(other.prompt_top_log_probs) == len(prompts[0]) - 1
        for a, b in zip(
            one.prompt_top_log_probs + one.top_log_probs,
            other.prompt_top_log_probs + other.top_log_probs,
            strict=True,
        ):
            assert [each.id for each in a] == [each.id for each in b]
