"""What is asked, and when: a function of the settings and the seed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from pagewheel.errors import InvalidArgumentError

# Most vocabularies have each of these, with the space before it, as one token.
_TEXT = """
the of and to in is was for that on with as by at from it an be are this have not had were
or which but one all has they their been would there when who will more no if out so said
what up its about into than them can only other new some time could these two may then do
first any my now such like our over man me even most made after also did many before must
through back years where much your way well down should because each just those people how
too little state good very make world still own see men work long get here between both life
being under never day same another know while last might us great old year off come since
against go came right used take three house city river water light stone road field horse
"""
_WORDS = _TEXT.split()


@dataclass(frozen=True)
class Conversation:
    """Questions that are asked one after the other, each with all that was said before it."""

    system: str
    questions: tuple[str, ...]


@dataclass(frozen=True)
class Synthetic:
    """Conversations of random words; lengths in tokens, which a word is about one of."""

    prompt_tokens: int = 128
    spread: float = 0.0  # lengths are uniform within this share of prompt_tokens, up and down
    questions: int = 1
    shared_tokens: int = 0  # of the system message that conversations share
    num_shared: int = 1  # different ones of these; each conversation has one

    def settings(self) -> dict[str, Any]:
        """For a result file."""
        return asdict(self)

    def conversations(self, seed: str) -> Iterator[Conversation]:
        """Yields them without end. Another seed gives other words, shared ones too."""
        random = Random(seed)
        shared = [_text(random, self.shared_tokens) for _ in range(self.num_shared)]
        while True:
            yield Conversation(
                random.choice(shared), tuple(self._question(random) for _ in range(self.questions))
            )

    def _question(self, random: Random) -> str:
        length = self.prompt_tokens * random.uniform(1 - self.spread, 1 + self.spread)
        return _text(random, max(1, round(length)))


@dataclass(frozen=True)
class FromFile:
    """Conversations of a file, again from its beginning where they do not suffice."""

    path: Path
    found: tuple[Conversation, ...]

    def settings(self) -> dict[str, Any]:
        """For a result file."""
        return {"file": str(self.path), "conversations": len(self.found)}

    def conversations(self, seed: str) -> Iterator[Conversation]:
        """Yields them without end, in an order of the seed."""
        order = list(self.found)
        random = Random(seed)
        while True:
            random.shuffle(order)
            yield from order


Workload = Synthetic | FromFile


def _text(random: Random, num_words: int) -> str:
    return " ".join(random.choices(_WORDS, k=num_words))


def read_file(path: Path) -> FromFile:
    """Reads prompts, one per line: texts, or JSON texts, {"prompt": ...}, {"messages": ...}."""
    is_json = path.suffix == ".jsonl"
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        if not is_json:
            found.append(Conversation("", (line,)))
            continue
        try:
            found.append(_conversation(json.loads(line)))
        except (ValueError, TypeError, KeyError):
            raise InvalidArgumentError(
                f'{path}, line {number}: expected a JSON text, {{"prompt": text}} or '
                f'{{"messages": [{{"role": ..., "content": text}}, ...]}}, got {line[:80]!r}'
            ) from None
    if not found:
        raise InvalidArgumentError(f"{path} has no prompt")
    return FromFile(path, tuple(found))


def _conversation(value: Any) -> Conversation:
    """Answers in a file are left out: the server gives its own."""
    if isinstance(value, str):
        return Conversation("", (value,))
    if "messages" not in value:
        return Conversation("", (_checked(value["prompt"]),))
    by_role: dict[str, list[str]] = {"system": [], "user": [], "assistant": []}
    for message in value["messages"]:
        by_role[message["role"]].append(_checked(message["content"]))
    if not by_role["user"]:
        raise ValueError
    return Conversation("\n".join(by_role["system"]), tuple(by_role["user"]))


def _checked(text: Any) -> str:
    if not isinstance(text, str) or not text:
        raise ValueError
    return text


@dataclass(frozen=True)
class Load:
    """Conversations begin at `rate` a second, as a Poisson process, or `concurrency` run at once.

    Exactly one of both is given.
    """

    rate: float | None = None
    concurrency: int | None = None

    @property
    def name(self) -> str:
        if self.rate is not None:
            return f"{self.rate:g} a second"
        return f"{self.concurrency} at once"


def arrivals(rate: float, count: int, seed: str) -> Sequence[float]:
    """Gives moments of a Poisson process, in seconds after the start."""
    random = Random(seed)
    moments, now = [], 0.0
    for _ in range(count):
        now += random.expovariate(rate)
        moments.append(now)
    return moments
