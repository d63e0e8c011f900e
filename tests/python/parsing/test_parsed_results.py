"""Parsers in generate() and in streamers, with a real model."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import pytest

import pagewheel

PROMPT = "Why is the sky blue?"


@pytest.fixture(scope="module")
def pipe(smollm2_folder: Path) -> pagewheel.LLMPipeline:
    return pagewheel.LLMPipeline(smollm2_folder)


class Mark(pagewheel.Parser):
    def __init__(self, mark: str) -> None:
        super().__init__()
        self.mark = mark

    def parse(self, message: dict[str, Any]) -> None:
        message["marks"] = [*message.get("marks", []), self.mark]
        message["content"] = message["content"][:3]


class Failing(pagewheel.Parser):
    def parse(self, message: dict[str, Any]) -> None:
        raise KeyError("mine")


class Streamer(pagewheel.TextParserStreamer):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.deltas: list[dict[str, Any]] = []

    def write(self, message: dict[str, Any]) -> pagewheel.StreamingStatus:
        self.deltas.append(message)
        return pagewheel.StreamingStatus.RUNNING


def test_parsers_are_applied_in_order_to_every_text(pipe: pagewheel.LLMPipeline) -> None:
    config = pagewheel.GenerationConfig(max_new_tokens=4, parsers=[Mark("a"), Mark("b")])
    gc.collect()
    results = pipe.generate([PROMPT, "Hi"], config)
    assert results.parsed == [{"content": text[:3], "marks": ["a", "b"]} for text in results.texts]
    drawn = pipe.generate([PROMPT], config, do_sample=True, num_return_sequences=2)
    assert [message["content"] for message in drawn.parsed] == [text[:3] for text in drawn.texts]
    assert pipe.generate([PROMPT], max_new_tokens=2).parsed == []
    assert pipe.generate([PROMPT], config, parsers=None).parsed == []


def test_results_of_the_batching_pipeline_are_parsed_too(smollm2_folder: Path) -> None:
    pipeline = pagewheel.ContinuousBatchingPipeline(
        smollm2_folder, pagewheel.SchedulerConfig(), "CPU"
    )
    configs = [
        pagewheel.GenerationConfig(max_new_tokens=3, parsers=[Mark(mark)]) for mark in ("a", "b")
    ]
    results = pipeline.generate([PROMPT, PROMPT], configs)
    assert [result.parsed[0]["marks"] for result in results] == [["a"], ["b"]]


def test_a_parser_of_tokens_gets_the_special_ones(pipe: pagewheel.LLMPipeline) -> None:
    tokenizer = pipe.get_tokenizer()
    text = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    for family, shown in (("qwen", "Hi"), ("mistral", "<|im_start|>Hi")):
        streamer = Streamer(tokenizer, [pagewheel.ToolCallIncrementalParser(family)])
        streamer._write(tokenizer.encode("<|im_start|>Hi").input_ids.data[0].tolist())
        streamer.end()
        assert streamer.get_parsed_message()["content"] == shown
    streamer = Streamer(tokenizer, [pagewheel.ToolCallIncrementalParser("qwen")])
    streamer._write(tokenizer.encode(text).input_ids.data[0].tolist())
    streamer.end()
    assert streamer.get_parsed_message()["tool_calls"][0]["function"]["name"] == "f"


def test_what_a_parser_raises_reaches_the_caller(pipe: pagewheel.LLMPipeline) -> None:
    with pytest.raises(KeyError, match="mine"):
        pipe.generate([PROMPT], max_new_tokens=2, parsers=[Failing()])
    with pytest.raises(TypeError, match="must define parse"):
        pipe.generate([PROMPT], max_new_tokens=2, parsers=[pagewheel.Parser()])
    with pytest.raises((TypeError, RuntimeError)):
        pagewheel.GenerationConfig(parsers=[3])


def test_a_streamers_message_is_parsed_of_the_result(pipe: pagewheel.LLMPipeline) -> None:
    streamer = Streamer(
        pipe.get_tokenizer(), [pagewheel.ReasoningIncrementalParser(expect_open_tag=False)]
    )
    for _ in range(2):  # the second text begins anew
        streamer.deltas.clear()
        results = pipe.generate([PROMPT], max_new_tokens=5, streamer=streamer)
        message = streamer.get_parsed_message()
        assert results.parsed == [message]
        assert message["content"] == message["reasoning_content"] == results.texts[0]
        assert "".join(delta["content"] for delta in streamer.deltas) == results.texts[0]


class Stopping(pagewheel.IncrementalParser):
    def __init__(self) -> None:
        super().__init__()
        self.tokens: list[int] = []
        self.events: list[str] = []

    def parse(self, delta: dict[str, Any], text: str, tokens: list[int] | None = None) -> str:
        self.tokens += tokens or []
        if len(self.tokens) >= 3:
            self.set_status(pagewheel.StreamingStatus.TOOL_CALL_STOP)
        delta["seen"] = text
        return text.upper()

    def finish(self, delta: dict[str, Any]) -> str:
        self.events.append("finish")
        return "."

    def reset(self) -> None:
        self.events.append("reset")


def test_a_parser_can_end_the_text_as_a_tool_call(pipe: pagewheel.LLMPipeline) -> None:
    parser = Stopping()
    streamer = Streamer(pipe.get_tokenizer(), [parser])
    results = pipe.generate([PROMPT], max_new_tokens=50, streamer=streamer)
    assert results.finish_reasons == [pagewheel.GenerationFinishReason.TOOL_CALL]
    assert len(parser.tokens) >= 3  # drafts of the same step come together
    assert parser.events == ["reset", "finish"]
    message = streamer.get_parsed_message()
    assert message == {
        "seen": message["seen"],
        "content": message["seen"].upper() + ".",
    }
    assert results.texts == [message["seen"]]


def test_the_first_whole_call_can_end_the_text(pipe: pagewheel.LLMPipeline) -> None:
    parser = pagewheel.ToolCallIncrementalParser("qwen", stop_after_call=True)
    streamer = Streamer(pipe.get_tokenizer(), [parser])
    running, stop = pagewheel.StreamingStatus.RUNNING, pagewheel.StreamingStatus.TOOL_CALL_STOP
    assert streamer._write('<tool_call>{"name": "f", "arguments": {}') == running
    assert streamer._write("}") == stop
    streamer.reset()
    assert streamer._write("again") == running
    assert streamer.get_parsed_message() == {"content": "again"}


def test_what_follows_the_first_call_in_the_same_piece_is_dropped() -> None:
    parser = pagewheel.ToolCallIncrementalParser("qwen", stop_after_call=True)
    call = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    delta: dict = {}
    assert parser.parse(delta, f"Well. {call}{call} more") == "Well. "
    assert [each["index"] for each in delta["tool_calls"]] == [0]
    assert parser.get_status() == pagewheel.StreamingStatus.TOOL_CALL_STOP
    rest: dict = {}
    assert parser.parse(rest, f"more {call}") == ""
    assert parser.finish(rest) == ""
    assert "tool_calls" not in rest


def test_parsers_follow_each_other_and_what_is_held_back_comes_in_the_end(
    pipe: pagewheel.LLMPipeline,
) -> None:
    streamer = Streamer(
        pipe.get_tokenizer(),
        [
            pagewheel.ReasoningIncrementalParser(keep_original_content=False),
            pagewheel.ToolCallIncrementalParser("llama3_json"),
        ],
    )
    text = '<think>Hm</think>{"name": "f", "parameters": {"a": 1}} {"name": "x'
    for character in text:
        streamer._write(character)
    assert streamer.get_parsed_message()["content"] == ""
    streamer.end()
    assert streamer.get_parsed_message() == {
        "content": ' {"name": "x',
        "reasoning_content": "Hm",
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
    }


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("a", "b", "ab"),
        (1, 2, 2),
        ([1], [2], [1, 2]),
        ({"a": "x"}, {"a": "y", "b": 1}, {"a": "xy", "b": 1}),
        (None, "x", "x"),
        ("x", None, None),
        ([{"index": 0, "a": "x"}], [{"index": 0, "a": "y"}, {"index": 1}], [{"a": "xy"}, {}]),
        ([{"index": 7, "a": "x"}], [{"index": -1}], [{"a": "x"}, {"index": -1}]),
    ],
)
def test_deltas_are_joined_by_what_they_are(
    pipe: pagewheel.LLMPipeline, first: Any, second: Any, expected: Any
) -> None:
    values = iter([first, second])

    class Given(pagewheel.IncrementalParser):
        def parse(self, delta: dict[str, Any], text: str, tokens: Any = None) -> str:
            delta["key"] = next(values)
            return text

    streamer = Streamer(pipe.get_tokenizer(), [Given()])
    streamer._write("x")
    streamer._write("y")
    assert streamer.get_parsed_message() == {"content": "xy", "key": expected}


class Model:
    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def model_dump_json(self) -> str:
        return json.dumps(self.fields)


class VllmTools:
    def extract_tool_calls(self, model_output: str, request: Any) -> Model:
        assert request is None
        return Model(tools_called=True, tool_calls=[{"id": "1"}], content=model_output[:2])


class VllmReasoning:
    def extract_reasoning(self, model_output: str, request: Any) -> tuple[str, str]:
        return model_output[:1], model_output[1:]


def test_vllms_parsers_can_be_wrapped(pipe: pagewheel.LLMPipeline) -> None:
    tools = pagewheel.VLLMParserWrapper(VllmTools())
    message: dict[str, Any] = {"content": "abc", "role": "assistant"}
    tools.parse(message)
    assert message == {
        "content": "ab",
        "role": "assistant",
        "tools_called": True,
        "tool_calls": [{"id": "1"}],
    }
    both = [pagewheel.VLLMParserWrapper(VllmReasoning()), tools]
    results = pipe.generate([PROMPT], max_new_tokens=4, parsers=both)
    assert results.parsed[0]["reasoning"] == results.texts[0][:1]
    assert results.parsed[0]["content"] == results.texts[0][1:3]
    with pytest.raises(ValueError, match="py_parser is 3"):
        pagewheel.VLLMParserWrapper(3)
