"""SmolLM2 through pagewheel in f32 equals transformers on the same dequantised weights."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import F32, greedy
from transformers import AutoTokenizer, LlamaForCausalLM

import pagewheel
from pagewheel.convert import convert

LONG_TEXT = "\n".join(
    f"Item {i}: the {word} lies {i * 7 % 31} steps from the door."
    for i, word in enumerate(["lamp", "book", "key", "map", "coin", "rope", "bell"] * 14)
)
PROMPTS = {
    "question": "What is the capital of France?",
    "code": "def quicksort(items):\n    if len(items) < 2:\n        return items\n",
    "french": "Il était une fois, dans un petit village, une boulangère qui",
    "emoji": "I love pizza 🍕🍕 and my dog 🐕‍🦺 because",
    "digits": "3.14159265358979 * 2718281828 = ",
    "long": LONG_TEXT,
    "one token": "The",
    "json": '{"name": "Ada", "born": 1815, "languages": ["',
    "whitespace": "   a\t\tb\n\n\n    c",
    "chat": "<|im_start|>user\nName three rivers.<|im_end|>\n<|im_start|>assistant\n",
}
NEW_TOKENS = 33  # more than a block, so that each answer goes on in another


@pytest.fixture(scope="module")
def prompts(smollm2_folder: Path) -> dict[str, list[int]]:
    tokenizer = pagewheel.Tokenizer(smollm2_folder)
    return {
        name: tokenizer.encode(text).input_ids.data[0].tolist() for name, text in PROMPTS.items()
    }


@pytest.fixture(scope="module")
def choices(
    smollm2_reference: torch.nn.Module, prompts: dict[str, list[int]]
) -> Callable[[str, tuple[int, ...]], list[int]]:
    """What transformers takes in each greedy step after a prompt if the steps before took `tokens`.

    So it is `tokens` exactly if transformers generates these itself, in one pass instead of 33.
    """

    @functools.cache
    def choose(name: str, tokens: tuple[int, ...]) -> list[int]:
        with torch.no_grad():
            ids = torch.tensor([[*prompts[name], *tokens]])
            logits = smollm2_reference(ids, logits_to_keep=len(tokens) + 1).logits[0]
        chosen: list[int] = logits[:-1].argmax(1).tolist()
        return chosen

    return choose


@pytest.fixture(scope="module")
def batching(smollm2_folder: Path) -> pagewheel.ContinuousBatchingPipeline:
    scheduler = pagewheel.SchedulerConfig()
    scheduler.max_num_batched_tokens = 64
    return pagewheel.ContinuousBatchingPipeline(smollm2_folder, scheduler, "CPU", F32)


def test_the_prompts_are_of_different_kinds(prompts: dict[str, list[int]]) -> None:
    assert len(prompts) == 10
    assert len(prompts["one token"]) == 1
    assert len(prompts["long"]) > 1400


def test_each_prompt_alone_gives_the_tokens_of_transformers(
    batching: pagewheel.ContinuousBatchingPipeline,
    prompts: dict[str, list[int]],
    choices: Callable[[str, tuple[int, ...]], list[int]],
) -> None:
    for name, ids in prompts.items():
        (tokens,) = batching.generate([ids], greedy(NEW_TOKENS))[0].m_generation_ids
        assert len(tokens) == NEW_TOKENS
        assert tokens == choices(name, tuple(tokens)), name


def test_all_prompts_in_one_batch_give_the_tokens_of_transformers(
    batching: pagewheel.ContinuousBatchingPipeline,
    prompts: dict[str, list[int]],
    choices: Callable[[str, tuple[int, ...]], list[int]],
) -> None:
    results = batching.generate(list(prompts.values()), greedy(NEW_TOKENS))
    for name, result in zip(prompts, results, strict=True):
        (tokens,) = result.m_generation_ids
        assert tokens == choices(name, tuple(tokens)), name


def test_log_probabilities_equal_those_of_transformers(
    batching: pagewheel.ContinuousBatchingPipeline,
    prompts: dict[str, list[int]],
    smollm2_reference: torch.nn.Module,
) -> None:
    """Of every token of a prompt and of the one generated: log-softmax, so all logits take part."""
    for name in ("question", "long", "emoji"):
        ids = prompts[name][:400]
        handle = batching.add_request(0, ids, greedy(1, logprobs=1, echo=True))
        while batching.has_non_finished_requests():
            batching.step()
        output = handle.read_all()[0]
        with torch.no_grad():
            logits = smollm2_reference(torch.tensor([ids])).logits[0].double()
        log_probs = torch.log_softmax(logits, 1).numpy()
        expected = log_probs[np.arange(len(ids) - 1), ids[1:]]
        np.testing.assert_allclose(output.prompt_log_probs, expected, atol=1e-3)
        np.testing.assert_allclose(
            output.generated_log_probs[0], log_probs[-1, output.generated_ids[0]], atol=1e-3
        )


def test_a_hugging_face_folder_of_the_weights_gives_the_files_text(
    shallow_reference: LlamaForCausalLM, smollm2_gguf: Path, shallow_folder: Path, tmp_path: Path
) -> None:
    """Trained weights through safetensors and tokenizer.json, both written by transformers."""
    shallow_reference.save_pretrained(tmp_path / "checkpoint")
    AutoTokenizer.from_pretrained(
        str(smollm2_gguf.parent), gguf_file=smollm2_gguf.name
    ).save_pretrained(tmp_path / "checkpoint")
    converted = convert(tmp_path / "checkpoint", tmp_path / "converted", progress=False)
    texts = [PROMPTS[name] for name in ("question", "code", "french", "emoji", "digits")]
    config = greedy(24, apply_chat_template=False)
    of_file, of_checkpoint = (
        pagewheel.LLMPipeline(folder, "CPU", F32).generate(texts, config).texts
        for folder in (shallow_folder, converted)
    )
    assert of_checkpoint == of_file
