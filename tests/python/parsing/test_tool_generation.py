"""Real models under grammars of tool calls: every answer that is finished has valid calls."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from conftest import batching_pipeline, drain
from messages import named_calls, parsed
from valid_calls import CLOSERS, FAMILIES, TOOLS, check_calls, opening

import pagewheel
from pagewheel import GenerationFinishReason as Reason

PROMPT = "What will the weather be in Zurich?"
PATIENCE = 15
FAMILIES_OF = {"smollm2": FAMILIES, "gemma3": [name for name in FAMILIES if "gemma" in name]}
NAME = "get_weather"
CHOICES = ["required", "auto", NAME]


class Guide:
    """The logits of a sampled answer as the model has them, but for its begin, which is demanded,
    and its end: after some tokens it mostly takes what closes a value, where the grammar allows it.
    A hot model of this size would neither call in free text nor come to an end."""

    def __init__(self, tokenizer: pagewheel.Tokenizer, begin: str, seed: int) -> None:
        self.begin = tokens_of(tokenizer, begin)
        self.closers = [tokens_of(tokenizer, text) for text in (*CLOSERS, "\n```")]
        self.end = tokenizer.get_eos_token_id()
        self.random = random.Random(seed)
        self.pending: list[int] = []
        self.prompt_length: int | None = None

    def __call__(self, token_ids: npt.NDArray[np.int64], logits: npt.NDArray[np.float32]) -> None:
        if self.prompt_length is None:
            self.prompt_length = len(token_ids)
        place = len(token_ids) - self.prompt_length
        if place < len(self.begin):
            demand(logits, self.begin[place])
            return
        is_late = place > len(self.begin) + PATIENCE
        if is_late and np.isfinite(logits[self.end]):
            self.pending = [self.end]
        if is_late and not self.pending and self.random.random() < 0.8:
            self.pending = list(self.random.choice(self.closers))
        if self.pending:
            token = self.pending.pop(0)
            if np.isfinite(logits[token]):
                demand(logits, token)
            else:
                self.pending = []


def demand(logits: npt.NDArray[np.float32], token: int) -> None:
    """A token that the grammar forbids stays forbidden."""
    kept = logits[token]
    logits[:] = -np.inf
    logits[token] = kept


def tokens_of(tokenizer: pagewheel.Tokenizer, text: str) -> list[int]:
    ids = tokenizer.encode(text, add_special_tokens=False).input_ids.data
    return [int(token) for token in ids.reshape(-1)]


@dataclass(frozen=True)
class Asked:
    family: str
    choice: str

    def begin(self) -> str:
        """Of an answer that may be free text, a call is demanded."""
        return opening(self.family) if self.choice == "auto" else ""

    def check(self, text: str) -> None:
        num_calls = check_calls(self.family, text)
        assert num_calls > 0, text
        if self.choice == NAME:
            assert num_calls == 1, text
            assert named_calls(parsed(self.family, text, tools=TOOLS))[0][0] == NAME


def answers(
    pipeline: pagewheel.ContinuousBatchingPipeline, all_asked: Iterable[Asked]
) -> list[tuple[Asked, Reason, str]]:
    tokenizer = pipeline.get_tokenizer()
    handles = []
    for number, asked in enumerate(all_asked):
        config = pagewheel.GenerationConfig(
            max_new_tokens=120,
            do_sample=True,
            temperature=1.5,
            rng_seed=number,
            logits_processors=[Guide(tokenizer, asked.begin(), number)],
            structured_output_config=pagewheel.tool_call_grammar(
                TOOLS, asked.family, tool_choice=asked.choice
            ),
        )
        handles.append((asked, pipeline.add_request(number, PROMPT, config)))
    drain(pipeline)
    found = []
    for asked, handle in handles:
        output = handle.read_all()[0]
        ids = [each for each in output.generated_ids if each != tokenizer.get_eos_token_id()]
        text = tokenizer.decode(ids, skip_special_tokens=False)
        found.append((asked, output.finish_reason, text))
    return found


@pytest.mark.parametrize("model", FAMILIES_OF)
def test_every_finished_answer_has_valid_calls(model: str, request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(f"{model}_folder")
    pipeline = batching_pipeline(folder, {}, num_kv_blocks=800)
    all_asked = [Asked(family, choice) for family in FAMILIES_OF[model] for choice in CHOICES]
    found = answers(pipeline, all_asked)
    assert all(reason in (Reason.STOP, Reason.LENGTH) for _, reason, _ in found)
    finished = [(asked, text) for asked, reason, text in found if reason == Reason.STOP]
    for asked, text in finished:
        asked.check(text)
    # How long an answer gets changes with each processor's rounding.
    assert len(finished) >= 0.6 * len(all_asked)
    assert {asked.choice for asked, _ in finished} == set(CHOICES)
