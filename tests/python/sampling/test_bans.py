"""Biases, penalties and bans, by tokens and texts: as transformers has them, where it does."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from beams import random_prompt
from conftest import F32, batching_pipeline, greedy
from transformers import (
    LogitsProcessorList,
    NoBadWordsLogitsProcessor,
    SequenceBiasLogitsProcessor,
    SuppressTokensLogitsProcessor,
)
from transformers.generation import PrefixConstrainedLogitsProcessor

import pagewheel

VOCABULARY = 267


@pytest.fixture(scope="module")
def tiny(tiny_folder: Path) -> pagewheel.ContinuousBatchingPipeline:
    return batching_pipeline(tiny_folder)


@pytest.fixture(scope="module")
def smollm2(smollm2_folder: Path) -> pagewheel.LLMPipeline:
    return pagewheel.LLMPipeline(smollm2_folder, "CPU", F32)


def generated(
    pipeline: pagewheel.ContinuousBatchingPipeline, prompt: list[int], count: int, **options: Any
) -> list[int]:
    return pipeline.generate([prompt], greedy(count, **options))[0].m_generation_ids[0]


def references(options: dict[str, Any]) -> LogitsProcessorList:
    """In transformers' order."""
    found = LogitsProcessorList()
    if "logit_bias" in options:
        biases = {(token,): bias for token, bias in options["logit_bias"].items()}
        found.append(SequenceBiasLogitsProcessor(biases))
    if "bad_words_ids" in options:
        found.append(NoBadWordsLogitsProcessor(options["bad_words_ids"]))
    if "allowed_token_ids" in options:
        allowed = sorted(options["allowed_token_ids"])
        found.append(PrefixConstrainedLogitsProcessor(lambda batch, ids: allowed, 1))
    if "suppress_tokens" in options:
        found.append(SuppressTokensLogitsProcessor(options["suppress_tokens"]))
    return found


@pytest.mark.parametrize("num_beams", [1, 3])
def test_generation_under_random_bans_is_transformers(
    tiny: pagewheel.ContinuousBatchingPipeline, tiny_reference: Any, num_beams: int
) -> None:
    rng = random.Random(num_beams)
    for _ in range(6):
        prompt = random_prompt(rng)
        free = generated(tiny, prompt, 8)
        among = [*free, *rng.sample(range(4, VOCABULARY), 20)]
        options: dict[str, Any] = {
            "logit_bias": {token: rng.uniform(-3, 3) for token in rng.sample(among, 4)},
            "bad_words_ids": [free[:1], free[1:3], free[2:5]],
            "suppress_tokens": rng.sample(among, 3),
        }
        if rng.random() < 0.5:
            options["allowed_token_ids"] = {*rng.sample(range(4, VOCABULARY), 60), *free}
        beams = {"num_beams": num_beams} if num_beams > 1 else {}
        expected = tiny_reference.generate(
            torch.tensor([prompt]),
            max_new_tokens=8,
            do_sample=False,
            eos_token_id=None,
            logits_processor=references(options),
            **beams,
        )
        assert generated(tiny, prompt, 8, **options, **beams) == expected[0, len(prompt) :].tolist()


def test_a_bad_word_is_not_generated_with_and_without_a_space_before_it(
    smollm2: pagewheel.LLMPipeline,
) -> None:
    prompt = "Count: one, two, three, four,"
    options = {"max_new_tokens": 12, "apply_chat_template": False}
    assert " five" in smollm2.generate(prompt, **options)
    assert "five" not in smollm2.generate(prompt, bad_words=["five"], **options)
    assert "five" in smollm2.generate("Count: one,two,three,four,", **options)
    text = smollm2.generate("Count: one,two,three,four,", bad_words=["five", "six"], **options)
    assert "five" not in text and "six" not in text


def test_a_bad_word_of_several_tokens_is_not_generated(smollm2: pagewheel.LLMPipeline) -> None:
    options = {"max_new_tokens": 20, "apply_chat_template": False}
    prompt = "Johann Wolfgang von Goethe, born in Frankfurt, was Johann Wolfgang von"
    text = smollm2.generate(prompt, **options)
    assert "Goethe" in text
    assert len(smollm2.get_tokenizer().encode("Goethe").input_ids.data[0]) > 1
    assert "Goethe" not in smollm2.generate(prompt, bad_words=["Goethe"], **options)


def test_dry_ends_a_repetition_but_not_across_a_breaker(smollm2: pagewheel.LLMPipeline) -> None:
    line = "the quick brown fox jumps over a lazy dog and "
    options = {"max_new_tokens": 10, "apply_chat_template": False}
    prompt = line * 4 + "the quick brown"
    assert smollm2.generate(prompt, **options).startswith(" fox jumps over")
    dry = {"dry_multiplier": 5.0, "dry_allowed_length": 2}
    assert not smollm2.generate(prompt, **dry, **options).startswith(" fox")
    assert smollm2.generate(prompt, **dry, dry_sequence_breakers=["brown"], **options).startswith(
        " fox"
    )
    assert smollm2.generate(prompt, **dry, dry_penalty_last_n=9, **options).startswith(" fox")


def test_breakers_are_found_inside_of_tokens_and_across_them(
    smollm2: pagewheel.LLMPipeline,
) -> None:
    """ "wn f" ends within a token, begins within another, and no token has it."""
    line = "the quick brown fox jumps over a lazy dog and "
    options: dict[str, Any] = {"max_new_tokens": 4, "apply_chat_template": False}
    prompt = line * 4 + "the quick brown fox jumps"
    dry = {"dry_multiplier": 5.0, "dry_allowed_length": 2}
    assert not smollm2.generate(prompt, **dry, **options).startswith(" over")
    assert smollm2.generate(prompt, **dry, dry_sequence_breakers=["umps"], **options).startswith(
        " over"
    )


def test_a_list_of_bad_words_is_tokenized_as_each_word_is(smollm2: pagewheel.LLMPipeline) -> None:
    """As long a list as is allowed, with a word that would come among others of all lengths."""
    words = [f"w{i}é" + "x" * (i % 7) for i in range(4000)]
    options: dict[str, Any] = {"max_new_tokens": 12, "apply_chat_template": False}
    prompt = "Count: one, two, three, four,"
    expected = smollm2.generate(prompt, bad_words=["five"], **options)
    assert smollm2.generate(prompt, bad_words=[*words, "five"], **options) == expected


@pytest.mark.parametrize("name", ["logit_bias", "allowed_token_ids", "suppress_tokens"])
def test_ids_outside_of_the_vocabulary_are_refused_when_they_are_added(
    tiny: pagewheel.ContinuousBatchingPipeline, name: str
) -> None:
    value = {VOCABULARY + 5000: 1.0} if name == "logit_bias" else {VOCABULARY + 5000}
    with pytest.raises(ValueError, match=rf"{name} has token id 5267, outside of \[0, \d+\)"):
        tiny.add_request(0, [5], greedy(1, **{name: value}))
    with pytest.raises(ValueError, match="bad_words_ids has token id 5267"):
        tiny.add_request(0, [5], greedy(1, bad_words_ids=[[1, 5267]]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"logit_bias": {1: -100.5}}, "logit_bias of token 1 is -100.5; allowed: -100 to 100"),
        ({"bad_words_ids": [[]]}, "bad_words_ids holds a list of 0 token ids; allowed: 1 to 1000"),
        ({"bad_words": [""]}, "bad_words holds an empty string"),
        ({"bad_words": ["a" * 1001]}, "bad_words holds one of 1001 bytes; allowed: up to 1000"),
        ({"dry_sequence_breakers": ["a" * 41]}, "breakers holds one of 41 bytes"),
        ({"bad_words_ids": [[1]] * 10001}, "number of bad_words_ids is 10001"),
        (
            {"bad_words": [f"{i:1000}" for i in range(66)]},
            "bad_words has 66000 bytes in all; allowed: up to 65536",
        ),
        (
            {"bad_words_ids": [[1] * 1000] * 66},
            "bad_words_ids has 66000 token ids in all; allowed: up to 65536",
        ),
        (
            {"stop_strings": [f"{i:10000}" for i in range(7)]},
            "stop_strings has 70000 bytes in all; allowed: up to 65536",
        ),
        ({"dry_base": 0.5}, "dry_base is 0.5; allowed: 1 or more"),
        ({"min_tokens": 6}, "min_tokens is 6, more than max_new_tokens, 5"),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pagewheel.GenerationConfig(max_new_tokens=5, **options).validate()


def test_min_tokens_holds_back_stop_strings_and_min_new_tokens_does_not(
    smollm2: pagewheel.LLMPipeline,
) -> None:
    def text(count: int = 40, **options: Any) -> str:
        pieces: list[str] = []
        config = greedy(count, apply_chat_template=False, **options)
        whole = str(smollm2.generate("One, two, three", config, streamer=pieces.append))
        assert "".join(pieces) == whole
        return whole

    whole, early, stop = text(), text(20), " "
    assert whole.index(stop) < len(early) < whole.rindex(stop)
    until_first = whole[: whole.index(stop)]
    assert text(stop_strings={stop}) == until_first
    assert text(stop_strings={stop}, min_new_tokens=20) == until_first
    assert text(stop_strings={stop}, min_tokens=20) == whole[: whole.index(stop, len(early))]


def test_min_tokens_holds_back_stop_tokens(tiny: pagewheel.ContinuousBatchingPipeline) -> None:
    def ended(**options: Any) -> list[int]:
        config = pagewheel.GenerationConfig(
            max_new_tokens=12, eos_token_id=stop, stop_token_ids={stop}, **options
        )
        return tiny.generate([[5, 6]], config)[0].m_generation_ids[0]

    tokens = generated(tiny, [5, 6], 12)
    stop = tokens[1]
    assert len(ended()) <= 2
    for name in ("min_tokens", "min_new_tokens"):
        held = ended(**{name: 6})
        assert len(held) >= 6
        assert stop not in held[:6]


def test_numpys_ids_are_ids() -> None:
    config = pagewheel.GenerationConfig(logit_bias={np.int64(3): np.float32(0.5)})
    assert config.logit_bias == {3: 0.5}


def test_bans_that_leave_no_token_end_their_request_alone(
    tiny: pagewheel.ContinuousBatchingPipeline,
) -> None:
    banned = greedy(3, allowed_token_ids=[7], suppress_tokens=[7])
    expected = generated(tiny, [5, 6], 3)
    for config in (banned, greedy(3, num_beams=2, allowed_token_ids=[7], suppress_tokens=[7])):
        handle = tiny.add_request(0, [5, 6], config)
        assert generated(tiny, [5, 6], 3) == expected
        with pytest.raises(RuntimeError, match="no token can be chosen"):
            handle.read_all()
