"""A vocabulary as a model of the sentencepiece package, the reference for its kind."""

from __future__ import annotations

import io
import random
import struct
from typing import Any

import sentencepiece
from convert.tokenizer_reference import PIECES

from pagewheel.convert.tokenizers.vocabulary import TokenType, Vocabulary

_BPE = 2


def reference(vocabulary: Vocabulary) -> sentencepiece.SentencePieceProcessor:
    """Built from the pieces, scores and types; the file's own model is not at hand."""
    model = b"".join(
        _field(1, _piece(vocabulary, index)) for index in range(len(vocabulary.tokens))
    )
    trainer = _number(3, _BPE) + _number(4, len(vocabulary.tokens)) + _number(35, 1)
    trainer += _number(40, vocabulary.unk_id or 0)
    trainer += _number(41, vocabulary.bos_id or 0) + _number(42, vocabulary.eos_id or 0)
    normalizer = _field(1, b"identity") + _number(3, int(vocabulary.add_space_prefix))
    normalizer += _number(4, 0) + _number(5, 1)
    model += _field(2, trainer) + _field(3, normalizer)
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def _piece(vocabulary: Vocabulary, index: int) -> bytes:
    text, kind = vocabulary.tokens[index], vocabulary.types[index]
    if index == vocabulary.unk_id:
        kind = TokenType.UNKNOWN  # some files call it a control token
    if kind == TokenType.USER_DEFINED:
        text = text.replace(" ", "\u2581")
    score = struct.pack("<f", vocabulary.scores[index])
    return _field(1, text.encode()) + b"\x15" + score + _number(3, int(kind))


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _field(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


WORDS = (
    "the of and to in was that his he it with is for as had you not be her on at by which have or "
    "from this him but all she they were my are me one their so an said them we who would been "
    "will no when there if more out up into do any your what has man could other than our some "
    "very time upon about may its only now like little then can should made did us such great"
)


def sentences(count: int) -> list[str]:
    """What small vocabularies are trained on."""
    generator = random.Random(21)
    words = [*PIECES, *(" " + word for word in WORDS.split())]
    return ["".join(generator.choices(words, k=30)) for _ in range(count)]


def trained_model(**options: Any) -> sentencepiece.SentencePieceProcessor:
    """A small model of the sentencepiece package, of `sentences`."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences(2000)), model_writer=model, minloglevel=2, **options
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
