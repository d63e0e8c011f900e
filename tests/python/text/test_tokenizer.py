"""pagewheel.Tokenizer, which runs the converted graphs from C++."""

from __future__ import annotations

import json
import os
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openvino_genai
import pytest
from convert.tokenizer_reference import corpus, reference_tokenizer, representable
from fuzzing import TIMES

import pagewheel
from pagewheel.convert.gguf.file import GGUFFile
from pagewheel.convert.gguf.vocabulary import read_vocabulary
from pagewheel.convert.tokenizers.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def tokenizer(smollm2_folder: Path) -> pagewheel.Tokenizer:
    return pagewheel.Tokenizer(smollm2_folder)


@pytest.fixture(scope="module")
def vocabulary(smollm2_gguf: Path) -> Vocabulary:
    with GGUFFile(smollm2_gguf) as file:
        return read_vocabulary(file, 8192)


def test_texts_of_several_threads_are_encoded_as_one_by_one(
    tokenizer: pagewheel.Tokenizer,
) -> None:
    texts = [f"{number} times, 時 " * 2000 for number in range(32)]

    def encoded(text: str) -> list[int]:
        return list(map(int, tokenizer.encode(text).input_ids.data[0]))

    expected = list(map(encoded, texts))
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(encoded, texts)) == expected


@pytest.mark.fuzz
def test_varied_text_encodes_as_the_reference_and_returns(
    tokenizer: pagewheel.Tokenizer, vocabulary: Vocabulary
) -> None:
    reference = reference_tokenizer(vocabulary)
    known, returned = set(vocabulary.tokens), 0
    for line in corpus(5, 3000 * TIMES):
        ids = tokenizer.encode(line).input_ids.data[0].tolist()
        assert ids == reference.encode(line).ids, repr(line)
        if representable(line, known):
            assert tokenizer.decode(ids, skip_special_tokens=False) == line
            returned += 1
    assert returned > 1000


@pytest.mark.fuzz
def test_any_tokens_decode_to_text(tokenizer: pagewheel.Tokenizer) -> None:
    """Bytes that are no UTF-8, surrogates among them, are replaced as Python replaces them."""
    vocabulary = tokenizer.get_vocab()
    tokens = {index: token for token, index in vocabulary.items()}
    rng = random.Random(6)
    single = [vocabulary[bytes([b])] for b in range(256) if bytes([b]) in vocabulary]
    for _ in range(2000 * TIMES):
        ids = [rng.choice(single) if rng.random() < 0.7 else rng.randrange(49152) for _ in range(9)]
        expected = b"".join(tokens[i] for i in ids).decode(errors="replace")
        assert tokenizer.decode(ids, skip_special_tokens=False) == expected


def test_special_tokens_are_skipped_or_shown(tokenizer: pagewheel.Tokenizer) -> None:
    ids = tokenizer.encode("<|im_start|>user\nhi<|im_end|>").input_ids.data[0].tolist()
    assert ids[0] == 1
    assert tokenizer.decode(ids) == "user\nhi"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "<|im_start|>user\nhi<|im_end|>"


def test_batches_are_padded_and_truncated_as_asked(tokenizer: pagewheel.Tokenizer) -> None:
    texts = ["one", "one two three four"]
    right = tokenizer.encode(texts, padding_side="right")
    assert right.input_ids.shape == right.attention_mask.shape
    assert right.attention_mask.data.sum(axis=1).tolist() == [1, 4]
    assert right.attention_mask.data[0, 0] == 1
    left = tokenizer.encode(texts)  # as the folder says
    assert left.attention_mask.data[0, -1] == 1
    assert tokenizer.encode(texts, truncation=True, max_length=2).input_ids.shape[1] == 2
    assert tokenizer.encode(texts, truncation=True, max_length=0).input_ids.shape[1] == 0
    assert tokenizer.encode(texts, max_length=0).input_ids.shape[1] == 4
    padded = tokenizer.encode("one", pad_to_max_length=True, max_length=9)
    assert list(padded.input_ids.shape) == [1, 9]
    assert list(tokenizer.encode("one", pad_to_max_length=True).input_ids.shape) == [1, 8192]
    assert tokenizer.decode(right.input_ids) == texts


def test_bad_arguments_are_refused(tokenizer: pagewheel.Tokenizer) -> None:
    with pytest.raises(ValueError, match="padding_side is 'middle'"):
        tokenizer.encode("a", padding_side="middle")
    with pytest.raises(ValueError, match="max_length is 1000000000000 and pad_to_max_length"):
        tokenizer.encode("a", pad_to_max_length=True, max_length=10**12)
    with pytest.raises(UnicodeEncodeError):
        tokenizer.encode("\udfff")


@pytest.mark.parametrize("skip", [False, True])
def test_ids_outside_of_the_vocabulary_decode_as_in_openvino_genai(
    smollm2_folder: Path, tokenizer: pagewheel.Tokenizer, skip: bool
) -> None:
    reference = openvino_genai.Tokenizer(smollm2_folder)
    hello, world = tokenizer.encode("Hello world").input_ids.data[0].tolist()
    for ids in ([49152], [-1], [hello, 49152, world], [10**9], [2**31 - 1], [-5, hello, 2**31]):
        text = tokenizer.decode(ids, skip_special_tokens=skip)
        assert text == reference.decode(ids, skip_special_tokens=skip), ids
        batch = tokenizer.decode([ids, [hello, world]], skip_special_tokens=skip)
        assert batch == [text, "Hello world"]
    assert tokenizer.decode([2**32 + hello, -(2**32)], skip_special_tokens=skip) == ""


def test_the_vocabulary_has_every_token(tokenizer: pagewheel.Tokenizer) -> None:
    vocabulary = tokenizer.get_vocab()
    assert vocabulary[b"<|im_end|>"] == tokenizer.get_eos_token_id() == 2
    assert tokenizer.get_eos_token() == "<|im_end|>"
    tokens = tokenizer.get_vocab_vector()
    assert len(tokens) == 49152
    assert tokens[vocabulary[b" the"]] == " the"


def test_chat_templates_render_as_given(tokenizer: pagewheel.Tokenizer) -> None:
    messages = [{"role": "user", "content": "hi"}]
    assert tokenizer.apply_chat_template(messages, True).endswith("<|im_start|>assistant\n")
    other = "{{ messages[0]['content'] }}{{ tools | length }}{{ extra }}"
    rendered = tokenizer.apply_chat_template(
        pagewheel.ChatHistory(messages),
        False,
        other,
        tools=[{"a": 1}],
        extra_context={"extra": "!"},
    )
    assert rendered == "hi1!"
    with pytest.raises(ValueError, match="own words"):
        tokenizer.apply_chat_template(messages, False, "{{ raise_exception('own words') }}")


def test_templates_see_keys_in_the_order_they_were_given(tokenizer: pagewheel.Tokenizer) -> None:
    tool = {"type": "function", "function": {"name": "look", "description": "b", "arguments": {}}}
    message = {"role": "user", "content": "Hello", "about": {"z": 1, "a": 2}}
    text = tokenizer.apply_chat_template(
        [message],
        add_generation_prompt=False,
        chat_template="{{ tools[0] | tojson }}{{ messages[0] | tojson }}{{ more | tojson }}",
        tools=[tool],
        extra_context={"more": {"y": 1, "b": 2}},
    )
    assert text == json.dumps(tool) + json.dumps(message) + '{"y": 1, "b": 2}'


def test_a_message_of_too_many_levels_is_refused() -> None:
    """By Python's json, and by the core where that has more patience."""
    for levels in (100_000, 300):
        content: list[object] = []
        for _ in range(levels):
            content = [content]
        with pytest.raises(ValueError, match=r"too deep|more than 100"):
            pagewheel.ChatHistory([{"role": "user", "content": content}])


def test_a_pipe_in_place_of_the_chat_template_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "with-pipe"
    shutil.copytree(tiny_folder, folder)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    os.mkfifo(folder / "chat_template.jinja")
    with pytest.raises(ValueError, match=r"chat_template.jinja\" is no file"):
        pagewheel.Tokenizer(folder)
