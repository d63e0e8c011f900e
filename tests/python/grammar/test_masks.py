"""A mask allows exactly the tokens whose bytes some text of the grammar goes on with."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
import regex
from fuzzing import TIMES
from walks import Vocabulary, allowed

import pagewheel
from pagewheel import StructuredOutputConfig as Config

STATES = 200
STATES_OF_A_GRAMMAR = 5


@dataclass
class Case:
    """A grammar, and the same as a regular expression of bytes."""

    part: object
    pattern: str


def random_case(rng: random.Random, depth: int = 0) -> Case:
    kind = rng.randrange(4 if depth >= 2 else 8)
    if kind == 0:
        text = "".join(rng.choices('ab {}"\\/\n', k=rng.randint(1, 6)))
        return Case(Config.ConstString(text), regex.escape(text))
    if kind == 1:
        atom = rng.choice(["[a-z]", "[0-9]", "(?:ab|a)", "[ -~]", "\\d", "true", "[^a\\x80-\\xff]"])
        times = rng.choice(["", "+", "*", "?", "{2,4}"])
        pattern = f"(?:{atom}){times}"
        # Rust's classes are of Unicode: here all texts are of ASCII.
        ascii_only = pattern.replace("[^a\\x80-\\xff]", "[\\x00-`b-\\x7f]").replace("\\d", "[0-9]")
        return Case(Config.Regex(ascii_only), ascii_only)
    if kind == 2:
        words = ["".join(rng.choices("abc1", k=rng.randint(1, 8))) for _ in range(3)]
        return Case(Config.Choice(words), "(?:" + "|".join(words) + ")")
    if kind == 3:
        text = rng.choice(["name: ", "the result", '{"id": ', "ab"])
        return Case(Config.ConstString(text), regex.escape(text))
    parts = [random_case(rng, depth + 1) for _ in range(rng.randint(2, 3))]
    patterns = [part.pattern for part in parts]
    if kind == 4:
        return Case(Config.Union([p.part for p in parts]), "(?:" + "|".join(patterns) + ")")
    if kind == 5:
        tag = Config.Tag("<t>", parts[0].part, "</t>")
        return Case(tag, f"<t>(?:{patterns[0]})</t>")
    return Case(Config.Concat([p.part for p in parts]), "".join(f"(?:{p})" for p in patterns))


def tokens_that_continue(
    vocabulary: Vocabulary, pattern: regex.Pattern[bytes], before: bytes
) -> set[int]:
    """By trying each token of the vocabulary."""

    def is_begin(text: bytes) -> bool:
        return pattern.fullmatch(text, partial=True) is not None

    first_bytes = {byte for byte in range(256) if is_begin(before + bytes([byte]))}
    found = {
        token
        for token, text in enumerate(vocabulary.tokens)
        if text
        and text[0] in first_bytes
        and token not in vocabulary.special
        and is_begin(before + text)
    }
    if pattern.fullmatch(before):
        found.add(vocabulary.end)
    return found


@pytest.mark.fuzz
def test_masks_are_those_of_trying_each_token(real_tokenizer: pagewheel.Tokenizer) -> None:
    vocabulary = Vocabulary.of(real_tokenizer)
    rng = random.Random(19)
    states = forced = 0
    while states < STATES * TIMES:
        case = random_case(rng)
        pattern = regex.compile(case.pattern.encode(), regex.DOTALL)
        matcher = pagewheel.Grammar(case.part, real_tokenizer).matcher()
        before = b""
        for _ in range(STATES_OF_A_GRAMMAR):
            mask = set(allowed(matcher).tolist())
            expected = tokens_that_continue(vocabulary, pattern, before)
            if mask != expected:
                # Where one text must come, it comes as the tokenizer writes it.
                assert len(mask) == 1 and mask < expected, (case, before)
                assert next(iter(mask)) == matcher.jump_forward_tokens()[0]
                firsts = {vocabulary.tokens[token][:1] for token in expected}
                assert len(firsts) == 1 and vocabulary.end not in expected, (case, before)
                forced += 1
            states += 1
            text_tokens = sorted(mask - {vocabulary.end})
            if not text_tokens:
                break
            token = rng.choice(text_tokens)
            assert matcher.accept(token)
            before += vocabulary.tokens[token]
    assert forced > 0


OTHER_GRAMMARS = {
    "json": Config.JSONSchema(
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 12},
                "tags": {"type": "array", "items": {"enum": ["a", "b\u00e9", 7]}},
            },
            "required": ["name"],
        }
    ),
    "any json": Config.JSONSchema({}),
    "ebnf": Config.EBNF(
        'root ::= sum\nsum ::= part ("+" part)*\npart ::= [0-9]+ | "(" sum ")"  # nested\n'
    ),
    "triggered": Config.TriggeredTags(
        ["<f"], [Config.Tag("<f>", Config.JSONSchema({"type": "integer"}), "</f>")]
    ),
    "text": Config.AnyText(),
}


@pytest.mark.parametrize("name", OTHER_GRAMMARS)
def test_masks_allow_what_is_accepted(name: str, real_tokenizer: pagewheel.Tokenizer) -> None:
    """Of all that a mask has, and of what it leaves out a part in each state, in turn."""
    vocabulary = Vocabulary.of(real_tokenizer)
    rng = random.Random(name)
    grammar = pagewheel.Grammar(OTHER_GRAMMARS[name], real_tokenizer)
    matcher = grammar.matcher()
    for state in range(6):
        mask = set(allowed(matcher).tolist())
        accepted = set()
        trial = matcher.clone()
        for token in mask | set(range(state, len(vocabulary.tokens), 6)):
            if trial.accept(token):
                accepted.add(token)
                trial.roll_back(1)
        if mask != accepted:
            assert mask == set(matcher.jump_forward_tokens()[:1])
        assert not (mask & vocabulary.special) - {vocabulary.end}
        choices = sorted(mask - {vocabulary.end})
        if not choices:
            break
        assert matcher.accept(rng.choice(choices))
