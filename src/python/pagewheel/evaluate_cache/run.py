"""Runs pagewheel under a setting, and gives a number for each sample of a column."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pagewheel
from pagewheel.errors import InvalidArgumentError
from pagewheel.evaluate_cache.tasks import TASKS, Material, Sample, samples
from pagewheel.evaluate_cache.texts import SETS, code, excerpts, prose
from pagewheel.options import parse_properties

BLOCK = 32  # budgets are multiples: then blocks and single tokens are compared at one size
_BATCH = 16  # prompts at once
_LIKELIEST = 64  # tokens that the divergence tells apart; all others are one
_BEYOND = 2048  # tokens of a text after the model's context

FULL = "full"
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What holds for all settings: the texts, their number and the areas that stay."""

    samples: int = 100
    tokens: int = 512
    new_tokens: int = 32  # of a continuation
    which: str = "test"
    start_size: int = 32
    recent_size: int = 32
    longest: int = 10240  # tokens of a text for perplexity: its context and what is beyond
    properties: tuple[tuple[str, Any], ...] = ()

    @property
    def seed(self) -> int:
        return 1 + SETS.index(self.which)

    @property
    def streams(self) -> int:
        """Long texts are few: each token of them counts."""
        return max(1, self.samples // 12)


@dataclass(frozen=True)
class Setting:
    """A policy with the arguments of CacheEvictionConfig that go with it, at one budget.

    `text` is NAME or FILE.py:CLASS, then ,ARGUMENT=VALUE for each argument. FULL: no eviction.
    """

    text: str
    share: float = 1.0

    def budget(self, plan: Plan) -> int:
        """Tokens."""
        return round(plan.tokens * self.share / BLOCK) * BLOCK

    def config(self, plan: Plan, while_reading: bool) -> pagewheel.CacheEvictionConfig | None:
        """Raises InvalidArgumentError, and typer.BadParameter for what is no ARGUMENT=VALUE."""
        if self.text == FULL:
            return None
        name, *items = self.text.split(",")
        arguments: dict[str, Any] = {"apply_rotation": True, **parse_properties(items)}
        budget = self.budget(plan)
        if name == "kvcrush":
            blocks = (budget - plan.start_size - plan.recent_size) // BLOCK
            budget_of_crush = max(1, blocks // 4)
            arguments["kvcrush_config"] = pagewheel.KVCrushConfig(budget_of_crush)
        if while_reading:  # no decision waits for the end of what is read
            arguments.pop("decision_delay", None)
        try:
            return pagewheel.CacheEvictionConfig(
                plan.start_size,
                plan.recent_size,
                budget,
                policy=_policy(name),
                evict_during_prefill=while_reading,
                **arguments,
            )
        except TypeError as error:
            raise InvalidArgumentError(f"{self.text!r}: {str(error).splitlines()[0]}") from None


def _policy(name: str) -> Any:
    """The name of a built-in policy, or an object of the class that FILE.py:CLASS names."""
    file, colon, kind = name.partition(":")
    if not colon:
        return name
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    if spec is None or spec.loader is None or not Path(file).is_file():
        raise InvalidArgumentError(f"policy is {name!r}: {file!r} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, kind):
        raise InvalidArgumentError(f"policy is {name!r}: {file} has no class {kind!r}")
    return getattr(module, kind)()


@dataclass(frozen=True)
class Row:
    """The logarithms of the likeliest tokens' probabilities, and of all others' together."""

    tokens: NDArray[np.int64]
    logs: NDArray[np.float64]  # [tokens + 1]


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max()
    logs: NDArray[np.float64] = shifted - math.log(np.exp(shifted).sum())
    return logs


def _row(logits: NDArray[np.float32], tokens: NDArray[np.int64] | None = None) -> Row:
    logs = _log_softmax(logits)
    if tokens is None:
        tokens = np.argpartition(logs, -_LIKELIEST)[-_LIKELIEST:]
    others = max(1e-12, 1 - float(np.exp(logs[tokens]).sum()))
    return Row(tokens, np.append(logs[tokens], math.log(others)))


class Recorder:
    """A logits processor that writes down each row, and has the next token be a given one.

    It shares no state with other requests; rows come in their order.
    """

    def __init__(self, reference: Recorder | None = None) -> None:
        self.reference = reference
        self.rows: list[Row] = []
        self.best: list[int] = []

    def __call__(self, _ids: NDArray[np.int64], logits: NDArray[np.float32]) -> None:
        step = len(self.best)
        self.best.append(int(logits.argmax()))
        if self.reference is None:
            self.rows.append(_row(logits))
            return
        self.rows.append(_row(logits, self.reference.rows[step].tokens))
        logits[:] = -np.inf
        logits[self.reference.best[step]] = 0

    def agreement(self) -> float:
        """Of greedy tokens with the reference's."""
        assert self.reference is not None
        return common_share(self.best, self.reference.best)

    def divergence(self) -> float:
        """KL from the reference, mean over tokens; the first is computed before any goes."""
        assert self.reference is not None
        pairs = list(zip(self.reference.rows, self.rows, strict=True))[1:]
        each = [float(np.sum(np.exp(p.logs) * (p.logs - q.logs))) for p, q in pairs]
        return sum(each) / len(each)


def common_share(a: Sequence[int], b: Sequence[int]) -> float:
    """The share of tokens before the first that differs."""
    pairs = zip(a, b, strict=True)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), len(a)) / len(a)


class Evaluation:
    """A model's answers to the same samples under any setting."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder, self.plan = folder, plan
        self.tokenizer = pagewheel.Tokenizer(folder)
        self._references: dict[str, list[Recorder]] = {}
        texts = {"prose": prose(plan.which), "code": code(plan.which)}
        self._ids = {name: self.encode(text) for name, text in texts.items()}
        self.material = Material(self._ids["prose"], self.encode, self._chat, plan.tokens)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = (
            self.tokenizer.encode(text, add_special_tokens=False).input_ids.data[0].tolist()
        )
        return ids

    def _chat(self, messages: list[dict[str, str]]) -> str:
        if self.tokenizer.chat_template:
            return str(self.tokenizer.apply_chat_template(messages, True))
        return "".join(f"{m['role']}: {m['content']}\n" for m in messages) + "assistant:"

    def samples(self, name: str) -> list[Sample]:
        return samples(TASKS[name], self.material, self.plan.samples, self.plan.seed)

    def pipeline(
        self, setting: Setting, while_reading: bool = False
    ) -> pagewheel.ContinuousBatchingPipeline:
        scheduler = pagewheel.SchedulerConfig()
        config = setting.config(self.plan, while_reading)
        if config is not None:
            scheduler.use_cache_eviction = True
            scheduler.cache_eviction_config = config
        properties = dict(self.plan.properties)
        return pagewheel.ContinuousBatchingPipeline(self.folder, scheduler, "CPU", properties)

    def told(self, name: str, setting: Setting, progress: Progress) -> list[float]:
        """By sample the share of what was asked for that the answer contains."""
        task, asked = TASKS[name], self.samples(name)
        prompts = [one.prompt for one in asked]
        answers = self.generate(setting, prompts, task.new_tokens, progress, task.while_reading)
        return [
            one.score(self.tokenizer.decode(ids)) for one, ids in zip(asked, answers, strict=True)
        ]

    def generate(
        self,
        setting: Setting,
        prompts: Sequence[list[int]],
        new_tokens: int,
        progress: Progress,
        while_reading: bool = False,
    ) -> list[list[int]]:
        """Greedy tokens. Another engine that is compared takes the place of this method."""
        pipeline = self.pipeline(setting, while_reading)
        options = pagewheel.GenerationConfig(max_new_tokens=new_tokens, ignore_eos=True)
        answers: list[list[int]] = []
        for first in range(0, len(prompts), _BATCH):
            progress(f"{first} of {len(prompts)}")
            part = prompts[first : first + _BATCH]
            results = pipeline.generate(part, [options] * len(part))
            answers += [result.m_generation_ids[0] for result in results]
        return answers

    def prompts(self, name: str) -> list[list[int]]:
        """Those that are continued, of "prose" or "code"."""
        plan = self.plan
        return excerpts(self._ids[name], plan.tokens, plan.samples, 10 + plan.seed)

    def _continued(
        self, name: str, setting: Setting, references: Sequence[Recorder] | None, show: Progress
    ) -> list[Recorder]:
        prompts = self.prompts(name)
        recorders = [Recorder(references[i] if references else None) for i in range(len(prompts))]
        pipeline = self.pipeline(setting)
        for first in range(0, len(prompts), _BATCH):
            show(f"{first} of {len(prompts)}")
            part = prompts[first : first + _BATCH]
            options = [
                pagewheel.GenerationConfig(
                    max_new_tokens=self.plan.new_tokens, ignore_eos=True, logits_processors=[one]
                )
                for one in recorders[first : first + len(part)]
            ]
            pipeline.generate(part, options)
        return recorders

    def continued(self, name: str, setting: Setting, progress: Progress) -> list[Recorder]:
        """The text's continuation as the full cache has it, seen with this setting's cache."""
        if name not in self._references:
            full = self._continued(name, Setting(FULL), None, progress)
            self._references[name] = full
        return self._continued(name, setting, self._references[name], progress)

    def streamed(
        self, context: int, setting: Setting, progress: Progress
    ) -> tuple[list[float], list[float]]:
        """By text the mean negative log-probability of tokens inside of the context and beyond.

        Texts are evicted while they are read. Without eviction there is nothing beyond.
        """
        inside = min(context, self.plan.longest)
        beyond = 0 if setting.text == FULL else min(_BEYOND, self.plan.longest - inside)
        texts = excerpts(
            self._ids["prose"], inside - 1 + beyond, self.plan.streams, 20 + self.plan.seed
        )
        pipeline = self.pipeline(setting, while_reading=True)
        options = pagewheel.GenerationConfig(max_new_tokens=1, logprobs=1, echo=True)
        losses: tuple[list[float], list[float]] = ([], [])
        for number, text in enumerate(texts):
            progress(f"{number} of {len(texts)}")
            handle = pipeline.add_request(number, text, options)
            while pipeline.has_non_finished_requests():
                pipeline.step()
            logs = np.array(handle.read_all()[0].prompt_log_probs)
            losses[0].append(-float(logs[self.plan.tokens : inside - 2].mean()))
            if beyond:
                losses[1].append(-float(logs[inside:].mean()))
        return losses
