"""Numbers of threads: asked for, given, described; answers do not depend on them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import pagewheel
from pagewheel._pagewheel import describe_threads

pytestmark = pytest.mark.all_cores


def answer(folder: Path, threads: int) -> str:
    pipeline = pagewheel.LLMPipeline(
        folder, "CPU", INFERENCE_NUM_THREADS=threads, batch_invariant=True
    )
    return str(pipeline.generate("The capital of France is", max_new_tokens=48, ignore_eos=True))


def test_the_text_does_not_depend_on_the_threads(smollm2_folder: Path) -> None:
    texts = {answer(smollm2_folder, threads) for threads in (1, 2)}
    assert len(texts) == 1


def test_more_threads_than_cores_are_cut_down_with_a_warning(tiny_folder: Path) -> None:
    messages: list[str] = []
    pagewheel.set_log_callback(lambda level, text: messages.append(text))
    try:
        pagewheel.LLMPipeline(tiny_folder, "CPU", INFERENCE_NUM_THREADS=4096)
        pagewheel.LLMPipeline(tiny_folder, "CPU", INFERENCE_NUM_THREADS=1)
    finally:
        pagewheel.set_log_callback(None)
    warnings = [text for text in messages if "INFERENCE_NUM_THREADS" in text]
    assert len(warnings) == 1
    assert warnings[0].startswith("INFERENCE_NUM_THREADS is 4096, but only ")


def test_threads_are_described(tiny_folder: Path) -> None:
    default = describe_threads()
    assert 1 <= default.count <= len(os.sched_getaffinity(0))
    asked = describe_threads("CPU", {"INFERENCE_NUM_THREADS": 4096})
    assert asked.count <= len(os.sched_getaffinity(0))
    assert asked.why.startswith("INFERENCE_NUM_THREADS is 4096, more than")
    with pytest.raises(ValueError, match="INFERENCE_NUM_THREADS"):
        describe_threads("CPU", {"INFERENCE_NUM_THREADS": "many"})
