"""What a model makes of a prompt: a measure that every change of its arithmetic changes."""

from __future__ import annotations

import numpy as np
from conftest import drain, greedy

import pagewheel


def prompt_log_probs(
    pipeline: pagewheel.ContinuousBatchingPipeline, prompt: str | list[int]
) -> np.ndarray:
    """Log-probabilities of the prompt's tokens but for the first."""
    handle = pipeline.add_request(0, prompt, greedy(1, logprobs=1, echo=True))
    drain(pipeline)
    return np.array(handle.read_all()[0].prompt_log_probs)
