"""The vocabulary in a GGUF file's keys."""

from __future__ import annotations

from ...errors import ConversionError
from ..architectures.gguf_config import Metadata
from ..tokenizers.pre_tokenizers import ADDING_BOS
from ..tokenizers.vocabulary import TokenType, Vocabulary
from .file import GGUFFile

# Tokens that end a turn or a text, whatever `eos_token_id` says: some chat models end their
# turns with another token than their eos.
_END_OF_GENERATION_TEXTS = frozenset(
    {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<turn|>"}
    | {"<|endoftext|>", "<|end_of_text|>", "<|return|>", "<|call|>", "<end_of_utterance>"}
    | {"<EOT>", "[EOT]", "<\uff5cend\u2581of\u2581sentence\uff5c>"}
)
# gpt-oss ends single messages with <|end|>; its turns end with one of these.
_ENDS_OF_HARMONY = frozenset({"<|return|>", "<|call|>"})


def read_vocabulary(file: GGUFFile, context_length: int) -> Vocabulary:
    """Reads the keys `tokenizer.*` of a model with a context of `context_length` tokens.

    Raises ConversionError for what is missing or does not fit.
    """
    metadata = Metadata(file.metadata, file.path)

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
    named_ends = [each for each in (eos_id, token_id("eot"), token_id("eom")) if each is not None]
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
        end_ids=tuple(dict.fromkeys(named_ends + _known_ends(tokens, types))),
        chat_template=metadata.get("tokenizer.chat_template", str),
        context_length=context_length,
        scores=_scores(metadata, key("scores"), len(tokens)) if scored else (),
        add_space_prefix=scored and metadata.get(key("add_space_prefix"), bool, True),
        charsmap=_bytes(metadata, key("precompiled_charsmap")),
        remove_extra_spaces=metadata.get(key("remove_extra_whitespaces"), bool, False),
    )


def _known_ends(tokens: list[str], types: list[int]) -> list[int]:
    """Control tokens whose text says that they end a turn or a text."""
    control = {
        text: index
        for index, (text, kind) in enumerate(zip(tokens, types, strict=True))
        if kind == TokenType.CONTROL
    }
    messages_end = control.keys() >= _ENDS_OF_HARMONY
    return [
        index
        for text, index in control.items()
        if text in _END_OF_GENERATION_TEXTS and not (messages_end and text == "<|end|>")
    ]


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
