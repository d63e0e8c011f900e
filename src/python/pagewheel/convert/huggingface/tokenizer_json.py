"""A Hugging Face tokenizer.json as a Vocabulary, without transformers.

Byte-level BPE (GPT-2, Llama 3, Qwen...) and BPE on characters that falls back to bytes, which
is what SentencePiece vocabularies become (Llama 2, Mistral, Gemma, Phi-3).
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import openvino as ov

from ...errors import ConversionError
from ..files.source_folder import TOKENIZER_SUFFIXES, SourceFolder
from ..tokenizers.pre_tokenizers import GPT2, NOT_S, SMOLLM, SPACE, S
from ..tokenizers.vocabulary import TokenType, Vocabulary

_BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")


class UnsupportedTokenizerError(ConversionError):
    """The tokenizer is of a kind that is not read here."""


def read_tokenizer_json(
    folder: SourceFolder, config: Mapping[str, Any], context_length: int
) -> Vocabulary:
    """`config` is config.json's: it names the ids of bos, eos and pad.

    Raises UnsupportedTokenizerError for other kinds, ConversionError for a damaged file.
    """
    where = folder.path / "tokenizer.json"
    tokenizer = folder.read_json("tokenizer.json")
    if tokenizer is None:
        raise UnsupportedTokenizerError(f"{folder.path} holds no tokenizer.json")
    settings = folder.read_json("tokenizer_config.json") or {}
    try:
        return _Reader(tokenizer, settings, config, str(where)).vocabulary(
            chat_template(folder, settings), context_length
        )
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ConversionError(f"{where} is damaged: {type(error).__name__}: {error}") from None


def chat_template(folder: SourceFolder, settings: Mapping[str, Any]) -> str | None:
    """chat_template.jinja, else the one in tokenizer_config.json, of several the default one."""
    own = folder.read_text("chat_template.jinja")
    if own is not None:
        return own
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {each.get("name"): each.get("template") for each in template}
        template = named.get("default")
    return template if isinstance(template, str) else None


def token_text(value: Any) -> str | None:
    """A token of tokenizer_config.json: a string or {"content": ...}."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


class _Reader:
    def __init__(
        self,
        tokenizer: Mapping[str, Any],
        settings: Mapping[str, Any],
        config: Mapping[str, Any],
        where: str,
    ) -> None:
        self.tokenizer = tokenizer
        self.settings = settings
        self.config = config
        self.where = where
        self._on_characters = bool(tokenizer["model"].get("byte_fallback"))

    def vocabulary(self, template: str | None, context_length: int) -> Vocabulary:
        model = self.tokenizer["model"]
        if model.get("type", "BPE") != "BPE":
            raise self._unsupported(f"model {model.get('type')!r}")
        on_characters = bool(model.get("byte_fallback"))
        if on_characters:
            details = self._spaces()
        else:
            details = {
                "split_patterns": self._split_patterns(),
                "nfc": self._is_nfc(),
                "whole_pieces": bool(model.get("ignore_merges")),
            }
        tokens, types = self._tokens(model["vocab"])
        eos_id = self._id("eos", tokens)
        pad_id = self._id("pad", tokens)
        return Vocabulary(
            model="llama" if on_characters else "gpt2",
            pre_tokenizer="tokenizer.json",
            tokens=tokens,
            types=types,
            merges=[each if isinstance(each, str) else " ".join(each) for each in model["merges"]],
            bos_id=self._id("bos", tokens),
            eos_id=eos_id,
            pad_id=eos_id if pad_id is None else pad_id,
            unk_id=self._unknown(model, tokens),
            add_bos=self._adds("bos", tokens),
            add_eos=False,
            end_ids=self._end_ids(len(tokens)),
            chat_template=template,
            context_length=context_length,
            **details,
        )

    def _unsupported(self, what: str) -> UnsupportedTokenizerError:
        return UnsupportedTokenizerError(f"{self.where}: {what} is not supported")

    def _tokens(self, vocab: Mapping[str, int]) -> tuple[list[str], list[int]]:
        """Tokens and their types by id. Ids without a token get an unused one."""
        added = self.tokenizer.get("added_tokens") or []
        ids = [*vocab.values(), *(each["id"] for each in added)]
        size = max(ids, default=-1) + 1
        if not ids or min(ids) < 0 or size > 4 * len(ids) + 1024:
            raise ConversionError(f"{self.where}: {len(ids)} tokens with ids up to {size - 1}")
        tokens = [f"<|unused {index}|>" for index in range(size)]
        types = [int(TokenType.UNUSED)] * size
        for text, index in vocab.items():
            is_byte = self._on_characters and _BYTE_TOKEN.fullmatch(text)
            tokens[index] = text
            types[index] = int(TokenType.BYTE if is_byte else TokenType.NORMAL)
        for each in added:
            if each.get("lstrip") or each.get("rstrip") or each.get("single_word"):
                raise self._unsupported(f"the added token {each['content']!r}, with conditions,")
            kind = TokenType.CONTROL if each.get("special") else TokenType.USER_DEFINED
            tokens[each["id"]], types[each["id"]] = each["content"], int(kind)
        return tokens, types

    def _is_nfc(self) -> bool:
        normalizer = self.tokenizer.get("normalizer")
        if normalizer is None:
            return False
        steps = normalizer.get("normalizers", [normalizer])
        if [step["type"] for step in steps] == ["NFC"]:
            return True
        if steps:
            raise self._unsupported(f"the normalizer {normalizer.get('type')!r}")
        return False

    def _spaces(self) -> dict[str, Any]:
        """Whether a text starts with a space, where a vocabulary writes it as U+2581."""
        normalizer = self.tokenizer.get("normalizer") or {}
        steps = normalizer.get("normalizers", [normalizer] if normalizer else [])
        pre = self.tokenizer.get("pre_tokenizer") or {}
        replaced = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
        prefix = {"type": "Prepend", "prepend": "\u2581"}
        if steps in ([replaced], [prefix, replaced]) and pre.get("type") in (None, "Split"):
            # A split at spaces does nothing: they are replaced before.
            return {"add_space_prefix": len(steps) == 2}
        scheme = pre.get("prepend_scheme")
        if not steps and pre.get("type") == "Metaspace" and scheme in ("always", "never"):
            return {"add_space_prefix": scheme == "always"}
        raise self._unsupported("this way of writing spaces")

    def _unknown(self, model: Mapping[str, Any], tokens: list[str]) -> int | None:
        return tokens.index(model["unk_token"]) if model.get("unk_token") in tokens else None

    def _split_patterns(self) -> tuple[str, ...]:
        """Applied one after another. The pieces are spelled in bytes afterwards."""
        pre = self.tokenizer.get("pre_tokenizer") or {}
        steps = pre.get("pretokenizers", [pre]) if pre else []
        patterns: list[str] = []
        byte_level = False
        for step in steps:
            kind = step["type"]
            if kind == "ByteLevel":
                if step.get("add_prefix_space"):
                    raise self._unsupported("add_prefix_space")
                byte_level = True
                if step.get("use_regex", True):
                    # After a split at digits, SMOLLM is one pattern for both steps.
                    digits = patterns == [r"\p{N}"]
                    patterns = [SMOLLM] if digits else [*patterns, GPT2]
            elif kind == "Digits" and step.get("individual_digits"):
                patterns.append(r"\p{N}")
            elif kind == "Split" and _is_plain_split(step):
                patterns.append(pcre_pattern(step["pattern"]["Regex"]))
            else:
                raise self._unsupported(f"the pre-tokenizer step {kind!r}")
        if not byte_level:
            raise self._unsupported("BPE on characters, without bytes for what it lacks,")
        return tuple(patterns)

    def _adds(self, name: str, tokens: list[str]) -> bool:
        """Whether the template of a single text begins with the token."""
        post = self.tokenizer.get("post_processor") or {}
        for step in post.get("processors", [post]) if post else []:
            if step["type"] == "ByteLevel":
                continue
            if step["type"] != "TemplateProcessing":
                raise self._unsupported(f"the post-processor {step['type']!r}")
            single = [next(iter(each.items())) for each in step["single"]]
            names = [kind if kind == "Sequence" else each["id"] for kind, each in single]
            identity = self._id(name, tokens)
            expected = None if identity is None else tokens[identity]
            if names not in (["Sequence"], [expected, "Sequence"]):
                raise self._unsupported(f"the template {names}")
            return len(names) == 2
        return False

    def _id(self, name: str, tokens: list[str]) -> int | None:
        text = token_text(self.settings.get(f"{name}_token"))
        if text is not None and text in tokens:
            return tokens.index(text)
        value = self.config.get(f"{name}_token_id")
        value = value[0] if isinstance(value, list) and value else value
        if value is None:
            return None
        if type(value) is not int or not 0 <= value < len(tokens):
            raise ConversionError(
                f"{self.where}: {name}_token_id {value!r} is outside the "
                f"vocabulary of {len(tokens)}"
            )
        return value

    def _end_ids(self, size: int) -> tuple[int, ...]:
        ends = self.config.get("eos_token_id")
        ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
        if not all(type(each) is int for each in ends):
            raise ConversionError(f"{self.where}: eos_token_id must be integers, got {ends!r:.80}")
        return tuple(each for each in ends if 0 <= each < size)


def _is_plain_split(step: Mapping[str, Any]) -> bool:
    isolated = step.get("behavior") == "Isolated" and not step.get("invert")
    return isolated and "Regex" in step["pattern"]


def pcre_pattern(pattern: str) -> str:
    r"""Oniguruma's pattern for PCRE2: `\s` and `\S` are spelled out, as they differ by U+180E."""
    inside = False

    def spelled(match: re.Match[str]) -> str:
        nonlocal inside
        text = match[0]
        if text in "[]":
            inside = text == "["
        if text == r"\s":
            return SPACE if inside else S
        return NOT_S if text == r"\S" and not inside else text

    return re.sub(r"\\.|[\[\]]", spelled, pattern, flags=re.DOTALL)


# Settings that are text. Any other may be taken for the path of a file, wherever that is.
_TEXTS = frozenset(
    {"tokenizer_class", "processor_class", "chat_template", "padding_side", "truncation_side"}
    | {"errors", "lang", "language", "src_lang", "tgt_lang", "task"}
)
_SETTINGS = frozenset({"tokenizer_config.json", "special_tokens_map.json"})


def convert_foreign_tokenizer(folder: SourceFolder) -> tuple[ov.Model, ov.Model]:
    """The graphs of tokenizer and detokenizer. Raises ConversionError."""
    from openvino_tokenizers import convert_tokenizer
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory(prefix="pagewheel-") as name:
        _copy_tokenizer(folder, Path(name))
        try:
            tokenizer = AutoTokenizer.from_pretrained(
                name, local_files_only=True, trust_remote_code=False
            )
            converted = convert_tokenizer(tokenizer, with_detokenizer=True)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # transformers raises what it pleases, tokenizers panics
            reason = str(error).replace(name, str(folder.path))
            raise ConversionError(
                f"{folder.path}: the tokenizer cannot be converted: {reason:.300}"
            ) from error
    if not isinstance(converted, tuple):
        raise ConversionError(f"{folder.path}: the tokenizer has no detokenizer")
    return converted


def _copy_tokenizer(folder: SourceFolder, place: Path) -> None:
    for each in sorted(folder.path.iterdir()):
        if each.suffix in TOKENIZER_SUFFIXES:
            file = folder.file(each.name)
            if file is None:
                continue
            if each.name in _SETTINGS:
                settings = _without_paths(folder.read_json(each.name) or {})
                (place / each.name).write_text(json.dumps(settings), encoding="utf-8")
            else:
                shutil.copyfile(file, place / each.name)


def _without_paths(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that cannot name a file."""
    kept = {}
    for key, value in settings.items():
        if key == "sp_model_kwargs" and isinstance(value, dict):
            kept[key] = {k: v for k, v in value.items() if not isinstance(v, str)}
        elif not isinstance(value, str) or key in _TEXTS or key.endswith("_token"):
            kept[key] = value
    return kept
