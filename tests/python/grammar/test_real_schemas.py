"""Real schemas of schemastore.org: what is drawn at random from their masks is valid."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest
from fuzzing import TIMES
from schemas import real_schemas
from validity import validity
from walks import Vocabulary, closers, walk

import pagewheel
from pagewheel import StructuredOutputConfig as Config

SEED = 19


@pytest.mark.fuzz
def test_every_finished_walk_validates(smollm2_tokenizer: pagewheel.Tokenizer) -> None:
    vocabulary = Vocabulary.of(smollm2_tokenizer)
    rng = random.Random(SEED)
    ends = closers(vocabulary)
    counts: Counter[str] = Counter()
    invalid = []
    for number, (name, text) in enumerate(real_schemas().items()):
        if number % 5 >= TIMES:
            continue
        try:
            schema = json.loads(text)
            grammar = pagewheel.Grammar(Config.JSONSchema(text), smollm2_tokenizer)
        except ValueError:
            counts["refused"] += 1
            continue
        for _ in range(1 + TIMES // 5):
            tokens = walk(grammar.matcher(), vocabulary.end, rng, most=1500, closers=ends)
            if tokens is None:
                counts["unfinished"] += 1
                continue
            written = b"".join(vocabulary.tokens[token] for token in tokens).decode()
            result = validity(written, schema)
            counts[result.split(":")[0]] += 1
            if result.startswith("invalid"):
                invalid.append((name, result, written))
    assert invalid == []
    assert counts["valid"] >= 30, counts
