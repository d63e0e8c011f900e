"""What programs written for openvino_genai get back: results, streams, handles."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from conftest import drain

import pagewheel
import pagewheel.openvino_genai

PROMPT = "Why is the sky blue?"


def config_of(genai: ModuleType, **kwargs: Any) -> Any:
    return genai.GenerationConfig(max_new_tokens=5, **kwargs)


def test_set_generation_config_shows_what_is_in_force(genai: ModuleType, tiny_folder: Path) -> None:
    pipeline = genai.LLMPipeline(tiny_folder, "CPU")
    before = pipeline.get_generation_config()
    pipeline.set_generation_config(config_of(genai))
    after = pipeline.get_generation_config()
    assert (after.max_new_tokens, after.eos_token_id) == (5, before.eos_token_id)
    assert before.eos_token_id in after.stop_token_ids


def test_echo_is_without_special_tokens_and_streams(genai: ModuleType, pipe: Any) -> None:
    pieces: list[str] = []
    text = pipe.generate(PROMPT, max_new_tokens=4, echo=True, streamer=pieces.append)
    assert "".join(pieces) == text
    assert "<|im_start|>" not in text
    assert text.endswith(pipe.generate(PROMPT, max_new_tokens=4))
    assert PROMPT in text
    prompt_alone = pipe.generate(PROMPT, max_new_tokens=0, echo=True)
    assert text.startswith(prompt_alone)
    tokens = pipe.generate(np.array([[504, 6376]]), max_new_tokens=0, echo=True).tokens
    assert tokens == [[504, 6376]]


class Tokens(pagewheel.StreamerBase):
    def __init__(self, answer: pagewheel.StreamingStatus) -> None:
        super().__init__()
        self.answer = answer
        self.writes: list[object] = []

    def write(self, token: object) -> pagewheel.StreamingStatus:
        self.writes.append(token)
        return self.answer

    def end(self) -> None:
        self.writes.append("end")


def test_streamers_get_lists_and_say_how_it_ends(genai: ModuleType, pipe: Any) -> None:
    status, reason = genai.StreamingStatus, genai.GenerationFinishReason
    streamer = Tokens(status.RUNNING)
    pipe.generate(PROMPT, max_new_tokens=3, streamer=streamer)
    assert sum(len(each) for each in streamer.writes[:-1]) == 3  # drafts may be among them
    assert streamer.writes[-1] == "end"
    for answer, expected in (
        (status.STOP, reason.STOP),
        (status.CANCEL, reason.NONE),
        (status.TOOL_CALL_STOP, reason.TOOL_CALL),
    ):
        result = pipe.generate([PROMPT], max_new_tokens=50, streamer=Tokens(answer))
        assert result.finish_reasons == [expected]
        assert result.texts != [""]


def test_results_have_scores_and_metrics_of_each_request(genai: ModuleType, pipe: Any) -> None:
    drawn = pipe.generate(
        [PROMPT], max_new_tokens=4, do_sample=True, num_return_sequences=2, rng_seed=3
    )
    assert all(score < 0 for score in drawn.scores)
    lines = [f"{s:.6f}: {t}" for s, t in zip(drawn.scores, drawn.texts, strict=True)]
    assert str(drawn) == "\n".join(lines)
    greedy = pipe.generate(["a", PROMPT], max_new_tokens=4)
    assert greedy.scores == [0, 0]
    assert greedy.extended_perf_metrics is None
    of_each = greedy.request_metrics
    inputs = [metrics.get_num_input_tokens() for metrics in of_each]
    assert inputs[0] < inputs[1]
    assert sum(inputs) == greedy.perf_metrics.get_num_input_tokens()
    assert all(metrics.get_ttft().mean > 0 for metrics in of_each)
    assert greedy.perf_metrics.get_grammar_compiler_init_times() == {}
    assert greedy.perf_metrics.get_grammar_compile_time().as_tuple() == (-1, -1, -1, -1)
    assert greedy.perf_metrics.raw_metrics.grammar_compile_times == []


def test_results_can_be_made_and_written(genai: ModuleType) -> None:
    for kind, values in (
        (genai.GenerationResult, ["a"]),
        (genai.EncodedGenerationResult, [[1, 2]]),
    ):
        result = kind()
        result.m_generation_ids = values
        result.m_scores = [1.5]
        assert (result.m_generation_ids, result.m_scores) == (values, [1.5])
    assert genai.DecodedResults().texts == []
    assert genai.SummaryStats().mean == 0


def test_read_waits_for_the_next_output_and_steps_itself(genai: ModuleType, batching: Any) -> None:
    handle = batching.add_request(1, PROMPT, config_of(genai, ignore_eos=True))
    pieces = []
    while handle.get_status() == genai.GenerationStatus.RUNNING:
        for output in handle.read().values():
            pieces += output.generated_ids
    assert len(pieces) == 5
    assert handle.read() == {}
    assert handle.read_all() == []
    assert not batching.has_non_finished_requests()


def test_read_waits_for_the_thread_that_steps(genai: ModuleType, batching: Any) -> None:
    batching.start()
    try:
        handle = batching.add_request(1, PROMPT, config_of(genai, ignore_eos=True))
        assert len(handle.read_all()[0].generated_ids) == 5
    finally:
        batching.stop()


def test_read_all_is_of_the_end_and_in_order_of_score(genai: ModuleType, batching: Any) -> None:
    config = config_of(genai, do_sample=True, num_return_sequences=4, rng_seed=1)
    handle = batching.add_request(1, PROMPT, config)
    outputs = handle.read_all()
    scores = [output.score for output in outputs]
    assert scores == sorted(scores, reverse=True)
    for output in outputs:
        assert output.score == pytest.approx(sum(output.generated_log_probs), abs=1e-4)
        assert all(value < 0 for value in output.generated_log_probs)


def test_nothing_is_read_after_stop_and_cancel(genai: ModuleType, batching: Any) -> None:
    for end, status in (("stop", "STOP"), ("cancel", "CANCEL")):
        handle = batching.add_request(1, PROMPT, config_of(genai, ignore_eos=True))
        batching.step()
        getattr(handle, end)()
        assert handle.get_status() == getattr(genai.GenerationStatus, status)
        assert not handle.can_read()
        for read in (handle.read, handle.read_all):
            with pytest.raises(RuntimeError, match="stopped, cancelled or dropped"):
                read()
        drain(batching)


def test_handles_that_are_dropped_leave_nothing_behind(genai: ModuleType, batching: Any) -> None:
    config = config_of(genai)
    for i in range(10_000):
        batching.add_request(i, [10 + i % 50], config)
        if i % 100 == 99:
            batching.step()
    gc.collect()
    batching.step()
    assert not batching.has_non_finished_requests()
    assert batching.get_metrics().cache_usage == 0


def test_a_read_is_ended_by_another_threads_cancel(genai: ModuleType, batching: Any) -> None:
    handle = batching.add_request(
        1, PROMPT, genai.GenerationConfig(max_new_tokens=900, ignore_eos=True)
    )
    timer = threading.Timer(0.2, handle.cancel)
    timer.start()
    with pytest.raises(RuntimeError, match="stopped, cancelled or dropped"):
        handle.read_all()
    timer.join()
    drain(batching)


def test_defaults_are_its_own_in_the_module_that_has_its_name(tiny_folder: Path) -> None:
    genai = pagewheel.openvino_genai
    assert genai.GenerationConfig().rng_seed == 0
    assert pagewheel.GenerationConfig().rng_seed is None
    assert genai.SchedulerConfig().max_num_batched_tokens == 256
    assert genai.SchedulerConfig().cache_eviction_config.granularity.name == "BLOCK"
    assert pagewheel.SchedulerConfig().cache_eviction_config.granularity.name == "AUTO"
    pipeline = genai.LLMPipeline(tiny_folder, "CPU")
    drawn = [
        pipeline.generate(np.array([[10, 11]]), max_new_tokens=20, do_sample=True).tokens
        for _ in range(2)
    ]
    assert drawn[0] == drawn[1]
