"""Diverse beam search written down from its definition (Vijayakumar et al. 2016), in float64.

Every group is a beam search of its own, as transformers has it, whose token scores are lowered
where the groups before it chose the token in the same step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Beam = tuple[float, list[int]]  # sum of scores, generated tokens


@dataclass
class Group:
    beams: list[Beam] = field(default_factory=lambda: [(0.0, [])])
    complete: list[Beam] = field(default_factory=list)  # final score, tokens; best first
    done: bool = False


def search(
    log_probs: Callable[[list[list[int]]], np.ndarray],
    *,
    num_beams: int,
    groups: int,
    diversity: float,
    length_penalty: float,
    stop: str,
    ends: Iterable[int],
    max_new_tokens: int,
) -> list[Beam]:
    """Score and tokens, best first. log_probs: generated tokens of n sequences of one length to
    f64 [n, vocabulary]."""
    ends = set(ends)
    size = num_beams // groups
    state = [Group() for _ in range(groups)]
    while not all(group.done for group in state):
        chosen: list[int] = []
        for group in state:
            if group.done:
                continue
            length = len(group.beams[0][1]) + 1
            rows = log_probs([tokens for _, tokens in group.beams])
            for token in chosen:
                rows[:, token] -= diversity
            totals = rows + np.array([total for total, _ in group.beams])[:, None]
            order = np.argsort(-totals, axis=None, kind="stable")[: size * max(2, 1 + len(ends))]
            following: list[Beam] = []
            for rank, flat in enumerate(order):
                beam, token = divmod(int(flat), rows.shape[1])
                tokens = [*group.beams[beam][1], token]
                total = float(totals[beam, token])
                if token not in ends and length < max_new_tokens:
                    following.append((total, tokens))
                elif rank < size:
                    group.complete.append((total / length**length_penalty, tokens))
            group.complete = sorted(group.complete, key=lambda one: -one[0])[:size]
            group.beams = following[:size]
            chosen += [tokens[-1] for _, tokens in group.beams]
            at = max_new_tokens if stop == "never" and length_penalty > 0 else length
            group.done = not group.beams or (
                len(group.complete) == size
                and (
                    stop == "early"
                    or group.beams[0][0] / at**length_penalty <= group.complete[-1][0]
                )
            )
    return sorted((beam for group in state for beam in group.complete), key=lambda one: -one[0])


def of_model(model: Any, prompt: list[int]) -> Callable[[list[list[int]]], np.ndarray]:
    """log_probs of transformers' model after the prompt."""
    import torch

    def log_probs(sequences: list[list[int]]) -> np.ndarray:
        with torch.no_grad():
            ids = torch.tensor([prompt + tokens for tokens in sequences])
            logits = model(ids, logits_to_keep=1).logits[:, -1]
        rows: np.ndarray = logits.double().log_softmax(-1).numpy()
        return rows

    return log_probs
