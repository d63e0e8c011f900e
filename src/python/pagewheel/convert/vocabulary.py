"""A tokenizer's vocabulary as a GGUF file holds it."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from enum import IntEnum

from .errors import ConversionError
from .gguf_metadata import Metadata
from .pre_tokenizers import ADDING_BOS


class TokenType(IntEnum):
    """Numbers of `tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


# Tokens that end a turn or a text, whatever `eos_token_id` says: a chat model's eos may
# be one of these and its turns end with another.
END_OF_GENERATION_TEXTS = frozenset(
    {
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<end_of_turn>",
        "<turn|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|return|>",
        "<|call|>",
        "<end_of_utterance>",
        "<EOT>",
        "[EOT]",
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
    }
)
# gpt-oss ends single messages with <|end|>; its turns end with one of these.
_ENDS_OF_HARMONY = frozenset({"<|return|>", "<|call|>"})


@dataclass(frozen=True)
class Vocabulary:
    """Byte-level BPE (`model` gpt2), or SentencePiece's BPE (llama) or Unigram (t5).

    `tokens[id]` is the token's text as stored: byte-level encoded or with U+2581 for spaces
    for normal tokens, plain for control and user-defined ones. `merges` are "left right",
    best first; a SentencePiece vocabulary has `scores` instead.
    """

    model: str
    pre_tokenizer: str
    tokens: list[str]
    types: list[int]
    merges: list[str]
    bos_id: int | None
    eos_id: int | None
    pad_id: int | None
    unk_id: int | None
    add_bos: bool
    add_eos: bool
    end_ids: tuple[int, ...]
    chat_template: str | None
    context_length: int
    # Beyond what `pre_tokenizer` names, where a tokenizer.json says it in full: how text is
    # split before merging (PCRE2), whether it is normalised to NFC first, whether a piece that
    # is a token is taken as it is.
    split_patterns: tuple[str, ...] = ()
    nfc: bool = False
    whole_pieces: bool = False
    # SentencePiece's: what merges are made of, and whether a text starts with a space.
    scores: tuple[float, ...] = ()
    add_space_prefix: bool = False
    # Unigram's: SentencePiece's compiled normalisation, and whether spaces in a row become one.
    charsmap: bytes = b""
    remove_extra_spaces: bool = False

    def text(self, token_id: int | None) -> str | None:
        return None if token_id is None else self.tokens[token_id]

    def ids_of_type(self, *types: TokenType) -> list[int]:
        return [token_id for token_id, kind in enumerate(self.types) if kind in types]


def read_vocabulary(metadata: Metadata, context_length: int) -> Vocabulary:
    """Reads `tokenizer.*` of a model of `context_length` tokens.

    Raises ConversionError for what is missing or does not fit.
    """

    def key(name: str) -> str:
        return f"tokenizer.ggml.{name}"

    model = metadata.require(key("model"), str)
    listed, scored = model in ("gpt2", "gemma4"), model in ("llama", "t5")
    if model == "gemma4":  # SentencePiece's pieces, whose merges the file lists
        model = "llama"
    tokens = _strings(metadata, key("tokens"))
    if not tokens:
        raise ConversionError(f"{metadata.path}: {key('tokens')} is empty")
    types = metadata.get(key("token_type"), list, [int(TokenType.NORMAL)] * len(tokens))
    if len(types) != len(tokens):
        raise ConversionError(f"{metadata.path}: {len(tokens)} tokens but {len(types)} token types")

    def token_id(name: str) -> int | None:
        value: int | None = metadata.get(key(f"{name}_token_id"), int)
        if value is not None and not 0 <= value < len(tokens):
            raise ConversionError(
                f"{metadata.path}: {key(f'{name}_token_id')} = {value} is outside the "
                f"vocabulary of {len(tokens)}"
            )
        return value

    eos_id = token_id("eos")
    ends = [each for each in (eos_id, token_id("eot"), token_id("eom")) if each is not None]
    control = {
        text: index
        for index, (text, kind) in enumerate(zip(tokens, types, strict=True))
        if kind == TokenType.CONTROL
    }
    messages_end = control.keys() >= _ENDS_OF_HARMONY
    ends += [
        index
        for text, index in control.items()
        if text in END_OF_GENERATION_TEXTS and not (messages_end and text == "<|end|>")
    ]
    pad_id = token_id("padding")
    return Vocabulary(
        model=model,
        pre_tokenizer=metadata.get(key("pre"), str, "default"),
        tokens=tokens,
        types=types,
        merges=_strings(metadata, key("merges")) if listed else [],
        bos_id=token_id("bos"),
        eos_id=eos_id,
        pad_id=eos_id if pad_id is None else pad_id,
        unk_id=token_id("unknown"),
        add_bos=metadata.get(key("add_bos_token"), bool, _adds_bos(metadata, model)),
        add_eos=metadata.get(key("add_eos_token"), bool, model == "t5"),
        end_ids=tuple(dict.fromkeys(ends)),
        chat_template=metadata.get("tokenizer.chat_template", str),
        context_length=context_length,
        scores=_scores(metadata, key("scores"), len(tokens)) if scored else (),
        add_space_prefix=scored and metadata.get(key("add_space_prefix"), bool, True),
        charsmap=_bytes(metadata, key("precompiled_charsmap")),
        remove_extra_spaces=metadata.get(key("remove_extra_whitespaces"), bool, False),
    )


def listed_merges(
    vocabulary: Vocabulary, tokens: Set[bytes], spelled: Callable[[str], bytes]
) -> list[tuple[bytes, bytes]]:
    """`vocabulary.merges` in bytes; `tokens` are the vocabulary's. Raises ConversionError for a
    merge that does not make one token of two: OpenVINO's tokenizer gives nothing at all then.
    """
    merges = []
    for rank, merge in enumerate(vocabulary.merges):
        left, space, right = merge.partition(" ")
        if not (left and space and right) or " " in right:
            raise ConversionError(
                f"tokenizer.ggml.merges[{rank}] must be two tokens and a space, got {merge!r:.80}"
            )
        pair = (spelled(left), spelled(right))
        if pair[0] not in tokens or pair[1] not in tokens or pair[0] + pair[1] not in tokens:
            raise ConversionError(
                f"tokenizer.ggml.merges[{rank}] = {merge!r:.80} does not make a token of two tokens"
            )
        merges.append(pair)
    return merges


def _scores(metadata: Metadata, key: str, count: int) -> tuple[float, ...]:
    scores = metadata.require(key, list)
    if len(scores) != count or not all(isinstance(each, float) for each in scores):
        raise ConversionError(f"{metadata.path}: {key} must be {count} numbers")
    return tuple(scores)


def _bytes(metadata: Metadata, key: str) -> bytes:
    numbers = metadata.get(key, list, [])
    if not all(isinstance(each, int) and -128 <= each < 256 for each in numbers):
        raise ConversionError(f"{metadata.path}: {key} must be bytes")
    return bytes(each & 0xFF for each in numbers)


def _adds_bos(metadata: Metadata, model: str) -> bool:
    # llama.cpp's defaults for files that do not say.
    return model == "llama" or metadata.get("tokenizer.ggml.pre", str) in ADDING_BOS


def _strings(metadata: Metadata, key: str) -> list[str]:
    values = metadata.require(key, list)
    if values and not isinstance(values[0], str):
        raise ConversionError(f"{metadata.path}: {key} must hold strings, got {values[0]!r}")
    return list(values)
