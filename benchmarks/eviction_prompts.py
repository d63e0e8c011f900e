"""Prompts with something in them that is asked for at the end: pass keys and conversations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class Question:
    """Token ids, and what an answer has to contain."""

    prompt: list[int]
    answer: str


def passkeys(encode: Encode, text: list[int], length: int, count: int) -> list[Question]:
    """Five-digit numbers in `length` tokens of prose, at depths from 10% to 85%."""
    rng = np.random.default_rng(11)
    questions = []
    for i in range(count):
        key = str(rng.integers(10000, 99999))
        begin = int(rng.integers(0, len(text) - length))
        filler = text[begin : begin + length]
        cut = int(length * (0.1 + 0.75 * i / max(count - 1, 1)))
        needle = encode(f"\nThe pass key is {key}. Remember it. {key} is the pass key.\n")
        question = encode("\nWhat is the pass key? The pass key is")
        questions.append(Question([*filler[:cut], *needle, *filler[cut:], *question], key))
    return questions


SYSTEM = (
    "You are a helpful assistant. You remember everything that the user tells you about "
    "themselves, and you answer questions about it briefly and truthfully."
)
FACTS = {
    "name": ("My name is {}.", "Oliver Hannah Victor Laura Martin Sophie Daniel Julia"),
    "dog's name": ("My dog's name is {}.", "Rex Bella Max Luna Rocky Daisy Buddy Coco"),
    "home town": ("My home town is {}.", "Lisbon Oslo Cairo Boston Vienna Tokyo Madrid Dublin"),
    "favourite fruit": (
        "My favourite fruit is {}.",
        "apples bananas cherries grapes lemons peaches pears plums",
    ),
}


def conversations(encode: Encode, text: list[int], length: int, count: int) -> list[Question]:
    """Chats of about `length` tokens: four facts in the first turn, three turns of prose, and a
    question about one of the facts."""

    def turn(role: str, content: str) -> str:
        return f"<|im_start|>{role}\n{content}<|im_end|>\n"

    rng = np.random.default_rng(5)
    questions = []
    for i in range(count):
        values = {what: str(rng.choice(words.split())) for what, (_, words) in FACTS.items()}
        asked = list(FACTS)[i % len(FACTS)]
        told = " ".join(sentence.format(values[what]) for what, (sentence, _) in FACTS.items())
        prompt = encode(
            turn("system", SYSTEM)
            + turn("user", f"Let me tell you about me. {told}")
            + turn("assistant", "Thank you, I will remember it.")
        )
        question = encode(
            turn("user", f"What is my {asked}?") + f"<|im_start|>assistant\nYour {asked} is"
        )
        opening = encode("<|im_start|>user\nRead this text: ")
        closing = encode("<|im_end|>\n" + turn("assistant", "I have read it."))
        each = (length - len(prompt) - len(question)) // 3 - len(opening) - len(closing)
        begin = int(rng.integers(0, len(text) - 3 * each))
        for first in range(begin, begin + 3 * each, each):
            prompt += [*opening, *text[first : first + each], *closing]
        questions.append(Question(prompt + question, values[asked]))
    return questions
