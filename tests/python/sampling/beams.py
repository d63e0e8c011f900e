"""What tests of beam search share."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from conftest import F32, batching_pipeline

import pagewheel

Batching = pagewheel.ContinuousBatchingPipeline


def make_pipeline(folder: Path, **options: object) -> Batching:
    return batching_pipeline(folder, {**F32, "attention_backend": "native"}, **options)


def random_prompt(rng: random.Random) -> list[int]:
    return [rng.randrange(4, 267) for _ in range(rng.randint(1, 50))]


def run(pipeline: Batching, prompt: list[int], **options: Any) -> pagewheel.EncodedGenerationResult:
    return pipeline.generate([prompt], pagewheel.GenerationConfig(**options))[0]
