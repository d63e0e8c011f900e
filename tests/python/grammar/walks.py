"""Texts that a grammar allows, drawn at random."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

import pagewheel


@dataclass
class Vocabulary:
    """A tokenizer's tokens, and those that stand for no text."""

    tokens: list[bytes]
    special: set[int]
    end: int

    @classmethod
    def of(cls, tokenizer: pagewheel.Tokenizer) -> Vocabulary:
        # Of tokens with the same bytes get_vocab() has one. They are characters, and so UTF-8.
        tokens = [text.encode() for text in tokenizer.get_vocab_vector()]
        for text, token in tokenizer.get_vocab().items():
            tokens[token] = text
        special = {
            token
            for token in range(len(tokens))
            if not tokenizer.decode([token], skip_special_tokens=True)
            and tokenizer.decode([token], skip_special_tokens=False)
        }
        return cls(tokens, special, tokenizer.get_eos_token_id())


def allowed(matcher: pagewheel.GrammarMatcher) -> np.ndarray:
    """Ids of the tokens that may come."""
    bits = np.unpackbits(matcher.compute_mask().view(np.uint8), bitorder="little")
    return np.flatnonzero(bits)


def walk(
    matcher: pagewheel.GrammarMatcher,
    end: int,
    rng: random.Random,
    *,
    patience: int = 30,
    most: int = 400,
    closers: np.ndarray | None = None,
) -> list[int] | None:
    """Tokens drawn from the masks, each as likely, until the end. After `patience` tokens the end
    is taken where it may come, and mostly what ends a part of JSON. None if it did not come."""
    tokens: list[int] = []
    while len(tokens) < most:
        if matcher.is_finished:
            return tokens
        choices = allowed(matcher)
        assert len(choices) > 0
        token = int(choices[rng.randrange(len(choices))])
        if len(tokens) >= patience and closers is not None:
            closing = np.intersect1d(closers, choices)
            if len(closing) > 0 and rng.random() < 0.9:
                token = int(closing[rng.randrange(len(closing))])
        if len(tokens) >= patience and end in choices:
            token = end
        assert matcher.accept(token), token
        if token == end:
            return tokens
        tokens.append(token)
    return None


def closers(vocabulary: Vocabulary) -> np.ndarray:
    """Ids of the tokens that end strings, arrays and objects."""
    return np.array([token for token, text in enumerate(vocabulary.tokens) if text in _CLOSERS])


_CLOSERS = {b'"', b"]", b"}", b'"}', b'"]', b"]}", b"}}"}
