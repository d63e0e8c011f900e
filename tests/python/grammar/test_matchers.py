"""Matchers: rollback, jump-forward tokens, forks, and stop tokens."""

from __future__ import annotations

import random

import numpy as np
import pytest
from fuzzing import TIMES
from walks import Vocabulary, allowed

import pagewheel
from pagewheel import StructuredOutputConfig as Config

GRAMMARS = {
    "json": Config.JSONSchema(
        {
            "type": "object",
            "properties": {
                "full_name": {"type": "string"},
                "age_in_years": {"type": "integer", "minimum": 0},
                "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}},
            },
            "required": ["full_name", "age_in_years"],
            "additionalProperties": False,
            "x-guidance": {"whitespace_flexible": False},
        }
    ),
    "ebnf": Config.EBNF('root ::= "(" root ")" | [a-z]+ | "" '),
    "tags": Config.TriggeredTags(
        ["<call"], [Config.Tag("<call>", Config.JSONSchema({"type": "array"}), "</call>")]
    ),
    "qwen": Config.QwenXMLParametersFormat(
        {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    ),
}


@pytest.fixture(params=GRAMMARS)
def grammar(
    request: pytest.FixtureRequest, smollm2_tokenizer: pagewheel.Tokenizer
) -> pagewheel.Grammar:
    return pagewheel.Grammar(GRAMMARS[request.param], smollm2_tokenizer)


@pytest.mark.fuzz
def test_what_is_taken_back_leaves_no_trace(
    grammar: pagewheel.Grammar, smollm2_tokenizer: pagewheel.Tokenizer
) -> None:
    end = smollm2_tokenizer.get_eos_token_id()
    rng = random.Random(3)
    for _ in range(10 * TIMES):
        matcher = grammar.matcher()
        masks = [matcher.compute_mask()]
        tokens: list[int] = []
        for _ in range(40):
            if rng.random() < 0.3 and tokens:
                count = rng.randint(1, len(tokens))
                matcher.roll_back(count)
                del tokens[-count:], masks[-count:]
            choices = np.flatnonzero(
                np.unpackbits(masks[-1].view(np.uint8), bitorder="little")
            ).tolist()
            if choices:
                token = end if end in choices and rng.random() < 0.3 else rng.choice(choices)
                assert matcher.accept(token)
                tokens.append(token)
                masks.append(matcher.compute_mask())
            assert len(matcher) == len(tokens)
            assert (matcher.compute_mask() == masks[-1]).all()
        fresh = grammar.matcher()
        assert all(fresh.accept(token) for token in tokens)
        assert (fresh.compute_mask() == masks[-1]).all()
        assert fresh.is_accepting == matcher.is_accepting
        assert fresh.is_finished == matcher.is_finished


@pytest.mark.fuzz
def test_forced_tokens_are_what_the_masks_alone_allow(
    grammar: pagewheel.Grammar, smollm2_tokenizer: pagewheel.Tokenizer
) -> None:
    vocabulary = Vocabulary.of(smollm2_tokenizer)
    rng = random.Random(4)
    for _ in range(20 * TIMES):
        matcher = grammar.matcher()
        for _ in range(40):
            forced = matcher.jump_forward_tokens()
            step = matcher.clone()
            for token in forced:
                assert allowed(step).tolist() == [token]
                assert step.accept(token)
            assert len(step) == len(matcher) + len(forced)
            matcher = step
            if matcher.is_finished:
                break
            choices = allowed(matcher).tolist()
            assert matcher.accept(
                vocabulary.end if vocabulary.end in choices else rng.choice(choices)
            )


def test_forced_text_is_tokenized_as_the_tokenizer_does(
    real_tokenizer: pagewheel.Tokenizer,
) -> None:
    grammar = pagewheel.Grammar(GRAMMARS["json"], real_tokenizer)
    forced = grammar.matcher().jump_forward_tokens()
    text = real_tokenizer.decode(forced)
    assert '{"full_name":"'.startswith(text) and len(text) >= len('{"full_name')
    ids = real_tokenizer.encode('{"full_name":"', add_special_tokens=False).input_ids.data
    assert forced == [int(token) for token in ids.reshape(-1)][: len(forced)]


def test_clones_go_their_own_ways(smollm2_tokenizer: pagewheel.Tokenizer) -> None:
    matcher = pagewheel.Grammar(Config.Regex("ab*|ac*"), smollm2_tokenizer).matcher()
    a, b, c = (smollm2_tokenizer.get_vocab()[text] for text in (b"a", b"b", b"c"))
    assert matcher.accept(a)
    other = matcher.clone()
    assert matcher.accept(b) and other.accept(c)
    assert not matcher.accept(c) and not other.accept(b)


def test_stop_tokens_are_those_of_the_request(smollm2_tokenizer: pagewheel.Tokenizer) -> None:
    grammar = pagewheel.Grammar(Config.Regex("a"), smollm2_tokenizer)
    newline, a = (smollm2_tokenizer.get_vocab()[text] for text in (b"\n", b"a"))
    matcher = grammar.matcher([0, newline])
    assert matcher.accept(a)
    assert matcher.allowed_tokens() == [0]  # a text of its own would become part of what is whole
    assert matcher.is_finished
    assert not matcher.accept(smollm2_tokenizer.get_eos_token_id())
    assert not matcher.accept(newline)
    assert matcher.accept(0)
    assert matcher.allowed_tokens() == []
    with pytest.raises(ValueError, match="stop token 99999999 is not in the vocabulary"):
        grammar.matcher([99999999])


def test_a_token_outside_the_vocabulary_is_refused(smollm2_tokenizer: pagewheel.Tokenizer) -> None:
    matcher = pagewheel.Grammar(Config.AnyText(), smollm2_tokenizer).matcher()
    with pytest.raises(ValueError, match="token -1 is not in the vocabulary of 49152"):
        matcher.accept(-1)
    assert matcher.accept(100)
