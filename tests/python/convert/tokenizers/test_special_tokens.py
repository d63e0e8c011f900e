"""However special tokens begin with each other, and where there are none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from convert import tiny_llama

import pagewheel
from pagewheel.convert import ConversionError, convert
from pagewheel.convert.tokenizers.steps import trie_pattern

TEXT = "Hello <|im_start|>the  wörld"


def with_special_tokens(path: Path, texts: list[str]) -> Path:
    """A model of which these are control tokens, behind all others."""
    tokens, types, _ = tiny_llama.vocabulary()
    count = len(tokens) + len(texts)

    def more_rows(tensors: dict[str, np.ndarray[Any, Any]]) -> None:
        tensors["token_embd.weight"] = np.zeros((count, tiny_llama.HIDDEN), np.float32)

    metadata = {
        "tokenizer.ggml.tokens": tokens + texts,
        "tokenizer.ggml.token_type": types + [tiny_llama.CONTROL] * len(texts),
    }
    return tiny_llama.write(path, metadata=metadata, edit=more_rows)


def ids(tokenizer: pagewheel.Tokenizer, text: str) -> list[int]:
    return list(tokenizer.encode(text).input_ids.data[0].tolist())


@pytest.mark.parametrize("count", [201, 20_000])
def test_more_tokens_that_begin_with_each_other_than_a_pattern_holds_are_refused(
    count: int,
) -> None:
    # PCRE2 takes no pattern of 250 groups in each other: then no special token is found at all.
    texts = ["<" + "x" * length for length in range(count + 1)]
    with pytest.raises(ConversionError, match="more than 200 special tokens"):
        trie_pattern(texts)


def test_the_longest_of_many_that_begin_with_each_other_is_found(tmp_path: Path) -> None:
    texts = ["<" + "x" * length for length in range(1, 201)]
    folder = convert(with_special_tokens(tmp_path / "a.gguf", texts), progress=False)
    tokenizer = pagewheel.Tokenizer(folder)
    first = len(tiny_llama.vocabulary()[0])
    for length in (1, 77, 200):
        assert first + length - 1 in ids(tokenizer, "a<" + "x" * length + "b")


@pytest.mark.parametrize(
    "texts",
    [
        ["a"],
        ["a", "ab", "abc", "ac", "b"],
        ["<tok1>", "<tok2>", "<tok12>", "(.*", "[a]"],
        ["x", "x"],
    ],
)
def test_the_pattern_finds_the_longest_text(texts: list[str]) -> None:
    pattern = re.compile(trie_pattern(texts))
    for text in texts:
        for longer in texts:
            if longer.startswith(text):
                found = pattern.match(longer)
                assert found is not None and found[0] == longer


def test_a_token_too_long_for_the_tokenizer_is_refused(tmp_path: Path) -> None:
    # Its tree of 300,000 levels overran the stack when it went.
    path = with_special_tokens(tmp_path / "a.gguf", ["<" + "x" * 300_000])
    with pytest.raises(ConversionError, match="is 300001 bytes long"):
        convert(path, progress=False)


@pytest.mark.parametrize(
    "missing",
    [
        ["tokenizer.ggml.token_type"],
        ["tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id"],
        [
            "tokenizer.ggml.token_type",
            "tokenizer.ggml.bos_token_id",
            "tokenizer.ggml.eos_token_id",
            "tokenizer.chat_template",
        ],
    ],
)
def test_a_vocabulary_that_names_no_special_tokens_works(
    tmp_path: Path, missing: list[str]
) -> None:
    path = tiny_llama.write(tmp_path / "a.gguf", metadata=dict.fromkeys(missing))
    pipeline = pagewheel.LLMPipeline(convert(path, progress=False), "CPU")
    tokenizer = pipeline.get_tokenizer()
    assert tokenizer.decode(ids(tokenizer, TEXT), skip_special_tokens=False) == TEXT
    pipeline.generate("Hello", max_new_tokens=2)
