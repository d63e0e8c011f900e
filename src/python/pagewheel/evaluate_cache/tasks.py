"""Questions about something that stands in a long prompt, generated from a seed.

Those of RULER (Hsieh et al. 2024, arXiv:2404.06654) are worded so that small models answer them:
a prompt ends with the begin of its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pagewheel.evaluate_cache.texts import Encode

# Text of a conversation's messages, up to where the next answer begins.
Chat = Callable[[list[dict[str, str]]], str]


@dataclass(frozen=True)
class Sample:
    """A prompt, and the texts that its answer has to contain."""

    prompt: list[int]
    answers: tuple[str, ...]

    def score(self, text: str) -> float:
        """The share of the answers that the text contains."""
        found = [answer.lower() in text.lower() for answer in self.answers]
        return sum(found) / len(found)


@dataclass(frozen=True)
class Material:
    """What prompts are made of: tokens of prose, how text becomes tokens, and a length."""

    prose: Sequence[int]
    encode: Encode
    chat: Chat
    length: int  # tokens of a prompt, about

    def filler(self, rng: np.random.Generator, length: int) -> list[int]:
        begin = int(rng.integers(0, len(self.prose) - length + 1))
        return list(self.prose[begin : begin + length])

    def hidden(
        self, rng: np.random.Generator, needles: Sequence[str], depths: Sequence[float], end: str
    ) -> list[int]:
        """Prose with each needle at its depth, and `end` behind it."""
        inserted = [self.encode(f"\n{needle}\n") for needle in needles]
        question = self.encode(f"\n{end}")
        length = max(1, self.length - len(question) - sum(map(len, inserted)))
        filler = self.filler(rng, length)
        prompt, done = [], 0
        for depth, needle in sorted(zip(depths, inserted, strict=True)):
            cut = int(length * depth)
            prompt += [*filler[done:cut], *needle]
            done = cut
        return [*prompt, *filler[done:], *question]


def _number(rng: np.random.Generator) -> str:
    return str(rng.integers(10000, 100000))


def _spread(rng: np.random.Generator, count: int) -> list[float]:
    """Depths from 10% to 85%, one in each equal part, in random order."""
    depths = 0.1 + 0.75 * (np.arange(count) + rng.random(count)) / count
    return [float(depth) for depth in rng.permutation(depths)]


def passkey(material: Material, rng: np.random.Generator) -> Sample:
    key = _number(rng)
    needle = f"The pass key is {key}. Remember it. {key} is the pass key."
    end = "What is the pass key? The pass key is"
    return Sample(material.hidden(rng, [needle], _spread(rng, 1), end), (key,))


_CITIES = "Lisbon Oslo Cairo Boston Vienna Tokyo Madrid Dublin Paris Athens Berlin Rome"


def needles(material: Material, rng: np.random.Generator) -> Sample:
    """Four keys with a value each, of which one is asked for (RULER's multi-key)."""
    cities = rng.choice(_CITIES.split(), 4, replace=False)
    numbers = [_number(rng) for _ in cities]
    told = [f"The code of {c} is {n}." for c, n in zip(cities, numbers, strict=True)]
    asked = int(rng.integers(4))
    end = f"What is the code of {cities[asked]}? The code of {cities[asked]} is"
    return Sample(material.hidden(rng, told, _spread(rng, 4), end), (numbers[asked],))


def values(material: Material, rng: np.random.Generator) -> Sample:
    """One key with two values, which both are asked for (RULER's multi-value)."""
    city = rng.choice(_CITIES.split())
    numbers = [_number(rng) for _ in range(2)]
    told = [f"One of the two codes of {city} is {number}." for number in numbers]
    end = f"What are the two codes of {city}? The two codes of {city} are"
    return Sample(material.hidden(rng, told, _spread(rng, 2), end), tuple(numbers))


def variables(material: Material, rng: np.random.Generator) -> Sample:
    """A variable that has the value of another one (RULER's variable tracking)."""
    first, second, other = rng.choice(list("abcdefghkmnpqrstuvwxyz"), 3, replace=False)
    number, wrong = _number(rng), _number(rng)
    told = [f"VAR {first} = {number}", f"VAR {other} = {wrong}", f"VAR {second} = VAR {first}"]
    depths = sorted(_spread(rng, 3))
    end = f"VAR {second} = VAR {first}, and VAR {first} ="
    return Sample(material.hidden(rng, told, depths, end), (number,))


_WORDS = (
    "river garden window silver mountain candle orange bottle pencil forest island mirror "
    "engine basket thunder blanket hammer rabbit copper ladder pocket castle button marble"
)


def common_words(material: Material, rng: np.random.Generator) -> Sample:
    """A list in which one word stands far more often than others (RULER's common words)."""
    words = list(rng.permutation(_WORDS.split()))
    common, others = words[0], words[1:]
    end = material.encode("\nThe word that comes most often in this list is")
    prompt = material.encode("A list of words:")
    while len(prompt) + len(end) < material.length:
        part = [*rng.choice(others, 3, replace=False), common]
        prompt += material.encode(" " + " ".join(rng.permutation(part)))
    return Sample([*prompt, *end], (common,))


_FACTS = {
    "name": ("My name is {}.", "Oliver Hannah Victor Laura Martin Sophie Daniel Julia"),
    "dog's name": ("My dog's name is {}.", "Rex Bella Max Luna Rocky Daisy Buddy Coco"),
    "home town": ("My home town is {}.", _CITIES),
    "favourite fruit": (
        "My favourite fruit is {}.",
        "apples bananas cherries grapes lemons peaches pears plums",
    ),
}
_SYSTEM = (
    "You are a helpful assistant. You remember everything that the user tells you about "
    "themselves, and you answer questions about it briefly and truthfully."
)


def _conversation(material: Material, rng: np.random.Generator, turns_of_facts: int) -> Sample:
    """Facts in the first turns, prose in the others, and a question about one fact.

    The prose is that of the material as text, so that the model's own template is around it.
    """
    told = {what: str(rng.choice(names.split())) for what, (_, names) in _FACTS.items()}
    sentences = [sentence.format(told[what]) for what, (sentence, _) in _FACTS.items()]
    asked = str(rng.choice(list(_FACTS)))
    per_turn = len(sentences) // turns_of_facts
    said = [" ".join(sentences[i : i + per_turn]) for i in range(0, len(sentences), per_turn)]
    turns = 4
    mark = "@@@"  # where a turn's prose goes
    messages = [{"role": "system", "content": _SYSTEM}]
    for turn in range(turns):
        told_here = f"Let me tell you about me. {said[turn]} " if turn < len(said) else ""
        read = turns_of_facts > 1 or turn > 0
        text = told_here + (f"Read this text: {mark}" if read else "")
        messages.append({"role": "user", "content": text.strip()})
        messages.append({"role": "assistant", "content": "Thank you, I will remember it."})
    messages.append({"role": "user", "content": f"What is my {asked}?"})
    parts = [material.encode(part) for part in material.chat(messages).split(mark)]
    parts[-1] += material.encode(f"Your {asked} is")
    room = max(1, (material.length - sum(map(len, parts))) // max(1, len(parts) - 1))
    prompt = list(parts[0])
    for part in parts[1:]:
        prompt += [*material.filler(rng, room), *part]
    return Sample(prompt, (told[asked],))


def facts(material: Material, rng: np.random.Generator) -> Sample:
    """All that is asked for later stands in the first turn."""
    return _conversation(material, rng, 1)


def chat(material: Material, rng: np.random.Generator) -> Sample:
    """Every turn has a fact and prose."""
    return _conversation(material, rng, 4)


@dataclass(frozen=True)
class Task:
    """`while_reading`: the prompt is evicted while it is read, so before its question is known."""

    make: Callable[[Material, np.random.Generator], Sample]
    while_reading: bool = False
    new_tokens: int = 8


TASKS = {
    "passkey": Task(passkey),
    "needles": Task(needles),
    "values": Task(values, new_tokens=20),
    "variables": Task(variables),
    "words": Task(common_words, new_tokens=4),
    "facts": Task(facts, while_reading=True),
    "chat": Task(chat, while_reading=True),
}


def samples(task: Task, material: Material, count: int, seed: int) -> list[Sample]:
    rng = np.random.default_rng(seed)
    return [task.make(material, rng) for _ in range(count)]
