"""EBNF: recursive grammars accept exactly their language, whatever the lexer's terminals are."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable

import pytest
from fuzzing import TIMES

import pagewheel
from pagewheel import StructuredOutputConfig as Config

ALPHABET = "ab,"
LONGEST = 5
Language = frozenset[str]
# A part's text, and its language given those of the rules; texts up to LONGEST.
Part = tuple[str, Callable[[dict[str, Language]], Language]]


def short(texts: set[str]) -> Language:
    return frozenset(text for text in texts if len(text) <= LONGEST)


def joined(left: Language, right: Language) -> Language:
    return short({a + b for a, b in itertools.product(left, right)})


def repeated(one: Language, least: int, most: int) -> Language:
    result: set[str] = set()
    power: Language = frozenset({""})
    for count in range(most + 1):
        if count >= least:
            result |= power
        power = joined(power, one)
    return short(result)


def random_part(rng: random.Random, rules: list[str], depth: int) -> Part:
    kind = rng.randrange(3 if depth == 0 else 7)
    if kind == 0:
        text = "".join(rng.choices(ALPHABET, k=rng.randint(1, 2)))
        return f'"{text}"', lambda _: frozenset({text})
    if kind == 1:
        letters = rng.choice(["a", "ab", "b,"])
        return f"[{letters}]", lambda _: frozenset(letters)
    if kind == 2:
        rule = rng.choice(rules)
        return rule, lambda languages: languages[rule]
    if kind == 3:
        text, language = random_part(rng, rules, depth - 1)
        sign, least, most = rng.choice(
            [("*", 0, LONGEST), ("+", 1, LONGEST), ("?", 0, 1), ("{2}", 2, 2), ("{1,2}", 1, 2)]
        )
        return f"({text}){sign}", lambda languages: repeated(language(languages), least, most)
    parts = [random_part(rng, rules, depth - 1) for _ in range(2)]
    (one, one_language), (two, two_language) = parts
    if kind == 4:
        return (
            f"({one} | {two})",
            lambda languages: one_language(languages) | two_language(languages),
        )
    return f"{one} {two}", lambda languages: joined(
        one_language(languages), two_language(languages)
    )


def language_of(rules: dict[str, Part]) -> Language:
    languages: dict[str, Language] = {name: frozenset() for name in rules}
    while True:
        grown = {name: languages[name] | rules[name][1](languages) for name in rules}
        if grown == languages:
            return languages["root"]
        languages = grown


@pytest.mark.fuzz
def test_grammars_accept_exactly_their_language(smollm2_tokenizer: pagewheel.Tokenizer) -> None:
    rng = random.Random(11)
    letters = {letter: smollm2_tokenizer.get_vocab()[letter.encode()] for letter in ALPHABET}
    texts = ["".join(t) for n in range(LONGEST + 1) for t in itertools.product(ALPHABET, repeat=n)]
    not_empty = 0
    for _ in range(60 * TIMES):
        names = ["root", "x", "y"]
        rules = {name: random_part(rng, names, 3) for name in names}
        written = "\n".join(f"{name} ::= {text}" for name, (text, _) in rules.items())
        language = language_of(rules)
        if not language:
            continue  # a grammar without any text may be refused
        grammar = pagewheel.Grammar(Config.EBNF(written), smollm2_tokenizer)
        accepted = set()
        for text in texts:
            matcher = grammar.matcher()
            if all(matcher.accept(letters[letter]) for letter in text) and matcher.is_accepting:
                accepted.add(text)
        assert accepted == language, written
        not_empty += 1
    assert not_empty > 20 * TIMES


ARITHMETIC = r"""
root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*  # also the line break that ends an equation
"""

JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"""


def test_white_space_that_two_rules_may_take(smollm2_tokenizer: pagewheel.Tokenizer) -> None:
    grammar = pagewheel.Grammar(Config.EBNF(ARITHMETIC), smollm2_tokenizer)
    for text in ("a=1\n", "a +b = ( c*2)\n", "x=1\ny1=2\n\n", "a=\n\n1 \n"):
        assert grammar.accepts(text), text
    for text in ("a=1", "a b=1\n", "(a=1\n"):
        assert not grammar.accepts(text), text


def test_a_text_of_two_rules_may_be_followed_by_what_either_has(
    smollm2_tokenizer: pagewheel.Tokenizer,
) -> None:
    written = 'root ::= [ab] "b"* ("b" | root | "b" x)\nx ::= "bab" x | "c"'
    grammar = pagewheel.Grammar(Config.EBNF(written), smollm2_tokenizer)
    for text in ("ab", "abbab", "bbbab", "abbabc", "abbbabbabc"):
        assert grammar.accepts(text), text
    for text in ("a", "abba", "abbbab,", "c"):
        assert not grammar.accepts(text), text


def test_many_repetitions_are_no_nesting(smollm2_tokenizer: pagewheel.Tokenizer) -> None:
    grammar = pagewheel.Grammar(Config.EBNF("root ::= " + '"a"+ "b"? ' * 300), smollm2_tokenizer)
    assert grammar.accepts("ab" * 300)


def test_json_as_rules(smollm2_tokenizer: pagewheel.Tokenizer) -> None:
    grammar = pagewheel.Grammar(Config.EBNF(JSON), smollm2_tokenizer)
    for value in ({"a": 1, "b": [1, 2.5, {"c": 'x"\\y'}], "d": None}, {}, {"a": []}):
        assert grammar.accepts(json.dumps(value))
        assert grammar.accepts(json.dumps(value, indent=2))
    assert not grammar.accepts('{"a":1,}')
    matcher = grammar.matcher()
    tokens = smollm2_tokenizer.encode('{"name": "', add_special_tokens=False).input_ids.data
    assert all(matcher.accept(int(token)) for token in tokens.reshape(-1))
    assert len(matcher.allowed_tokens()) > 40_000  # within a string
