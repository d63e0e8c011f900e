"""Whatever is sent, the answer is defined, names what is wrong, and harms nobody else."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from raw_http import connect, read_all, request_bytes
from serving import Served, serving, tiny_settings
from waiting import eventually

import pagewheel
from pagewheel._pagewheel import generation_parameters
from pagewheel.errors import PagewheelError
from pagewheel.serve.api.conversation import tool_call
from pagewheel.serve.api.openai_choices import of_tokens
from pagewheel.serve.http import body as request_body
from pagewheel.serve.http.body import parse_object
from pagewheel.serve.http.errors import ApiError
from pagewheel.serve.http.request_context import json_text
from pagewheel.serve.server import listen
from pagewheel.serve.settings import Limits

HELLO = [{"role": "user", "content": "Hello"}]
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
LIMITS = Limits(body_bytes=1 << 20, body_seconds=1.0, head_seconds=1.0, stall_seconds=2.0)


@pytest.fixture(scope="module")
def served(tiny_folder: Path) -> Iterator[Served]:
    with serving(tiny_settings(tiny_folder, LIMITS)) as one:
        yield one


@pytest.fixture(autouse=True)
def _others_are_served(served: Served) -> Iterator[None]:
    yield
    assert served.post(COMPLETIONS, {"prompt": "a", "max_tokens": 2}).status_code == 200
    eventually(served.is_at_rest)


def refused(served: Served, path: str, body: Any, status: int = 400) -> dict[str, Any]:
    answer = served.post(path, body)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error  # type: ignore[no-any-return]


FIRST_PART = "messages[0].content[0]"
WRONG = [
    ({"messages": "hi"}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": [1]}, "messages[0]"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "king", "content": "a"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": "a", "mood": "b"}]}, "messages[0].mood"),
    (
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        "messages[0].content[0].text",
    ),
    ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].tool_call_id"),
    ({"model": 7}, "model"),
    ({"stream": "yes"}, "stream"),
    ({"stream": 1}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"other": True}}, "stream_options.other"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 2**70}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": 4, "max_completion_tokens": 5}, "max_completion_tokens"),
    ({"n": 0}, "n"),
    ({"n": 1000}, "n"),
    ({"n": True}, "n"),
    ({"logprobs": 3}, "logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"top_logprobs": 5}, "top_logprobs"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": -1}, "temperature"),
    ({"top_p": 2}, "top_p"),
    ({"top_k": -3}, "top_k"),
    ({"seed": 1.5}, "seed"),
    ({"stop": [1]}, "stop"),
    ({"stop": [str(number) for number in range(1001)]}, "stop"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"timeout": 0}, "timeout"),
    ({"timeout": "soon"}, "timeout"),
    ({"metadata": {str(number): "" for number in range(17)}}, "metadata"),
    ({"metadata": {"a" * 65: ""}}, "metadata"),
    ({"metadata": {"a": []}}, "metadata.a"),
    ({"metadata": {"a": "b" * 513}}, "metadata.a"),
    ({"priority": 2000}, "priority"),
    ({"cache_salt": 5}, "cache_salt"),
    ({"tools": {}}, "tools"),
    ({"tools": [{"type": "web"}]}, "tools[0].type"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "a"}}}, "tool_choice"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": "json"}, "response_format"),
    ({"modalities": ["audio"]}, "modalities"),
    ({"store": 3}, "store"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
    ({"chat_template": "{{ 1 }}"}, "chat_template"),
    ({"apply_chat_template": False}, "apply_chat_template"),
    ({"banana": 1}, "banana"),
]


@pytest.mark.parametrize(("fields", "param"), WRONG, ids=lambda value: json.dumps(value)[:60])
def test_a_wrong_field_of_a_chat_is_named(
    served: Served, fields: dict[str, Any], param: str
) -> None:
    error = refused(served, CHAT, {"messages": HELLO, **fields})
    assert error["param"] == param
    assert param in error["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt[0]"),
        ({"prompt": [1.5]}, "prompt[0]"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"prompt": [10**9]}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt[1]"),
        ({"prompt": ["a"] * 1000}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"suffix": "b"}, "suffix"),
        ({"best_of": 0}, "best_of"),
        ({"logprobs": 21}, "logprobs"),
        ({"echo": "yes"}, "echo"),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_a_wrong_field_of_a_completion_is_named(
    served: Served, fields: dict[str, Any], param: str
) -> None:
    assert refused(served, COMPLETIONS, {"prompt": "a", **fields})["param"] == param


@pytest.mark.parametrize("value", ["x", -1, 1.5, True, [], {}, [None], 2**80, "9" * 5000])
def test_every_parameter_of_the_engine_stands_every_type(served: Served, value: Any) -> None:
    for parameter in generation_parameters():
        body = {"prompt": "a", "max_tokens": 2, parameter.name: value}
        answer = served.post(COMPLETIONS, body)
        assert answer.status_code in (200, 400), (parameter.name, answer.text)
        if answer.status_code == 400:
            assert answer.json()["error"]["message"]


WIDE = {str(number): number for number in range(2001)}
WIDE_CALL = {
    "id": "a",
    "type": "function",
    "function": {"name": "a", "arguments": json.dumps(WIDE)},
}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"chat_template_kwargs": {"a": WIDE}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": WIDE}, "chat_template_kwargs"),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "parameters": WIDE}}]},
            "tools",
        ),
        (
            {"messages": [{"role": "assistant", "content": None, "tool_calls": [WIDE_CALL]}]},
            "messages",
        ),
    ],
    ids=["nested", "top", "tools", "arguments"],
)
def test_objects_that_would_hold_others_are_refused(
    served: Served, fields: dict[str, Any], param: str
) -> None:
    """A template's JSON takes time by the square of their members."""
    error = refused(served, CHAT, {"messages": HELLO, **fields})
    assert error["param"] == param
    assert "too many members" in error["message"]


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", "video_url"])
def test_media_are_refused_by_name(served: Served, kind: str) -> None:
    part = {"type": kind, kind: {"url": "file:///etc/passwd"}}
    error = refused(served, CHAT, {"messages": [{"role": "user", "content": [part]}]})
    assert kind in error["message"]
    assert "not supported" in error["message"]


def test_a_prompt_beyond_the_context_is_refused_with_its_field(served: Served) -> None:
    long = "a" * 9000
    for path, field, value in (
        (CHAT, "messages", [{"role": "user", "content": long}]),
        ("/v1/completions", "prompt", long),
        ("/v1/completions", "prompt", [5] * 9000),
        ("/v1/responses", "input", long),
    ):
        error = refused(served, path, {field: value})
        assert error["code"] == "context_length_exceeded"
        assert error["param"] == field


def test_an_unknown_model_and_path_are_not_found(served: Served) -> None:
    error = refused(served, CHAT, {"model": "../../etc/passwd", "messages": HELLO}, 404)
    assert error["code"] == "model_not_found"
    assert served.http.get("/v1/engines").status_code == 404
    assert served.http.get("/v1/engines").json()["error"]["type"] == "not_found_error"
    assert served.http.get(CHAT).status_code == 405


RAW = [
    (b"", 400),
    (b"{", 400),
    (b"[]", 400),
    (b"null", 400),
    (b'{"prompt": "\xff\xfe"}', 400),
    ('{"prompt": "a"}'.encode("utf-16"), 400),
    (b'{"prompt": "\\ud800"}', 400),
    (b'{"prompt": NaN}', 400),
    (b'{"prompt": "a", "metadata": {"a": 1e999}}', 400),
    (b'{"prompt": "a", "temperature": -1e999}', 400),
    (b'{"prompt": "a", "timeout": ' + b"-" + b"9" * 399 + b"}", 400),
    (b'{"prompt": "a", "n": ' + b"9" * 100000 + b"}", 400),
    (b'{"prompt": ' + b"[" * 100000 + b"]" * 100000 + b"}", 400),
    (b'{"prompt": ' + b"[" * 500 + b"]" * 500 + b"}", 400),
    (b'{"metadata": ' + b'{"a":' * 90 + b"1" + b"}" * 90 + b"}", 400),
    (b'{"prompt": "' + b"a" * (2 << 20) + b'"}', 413),
    (b'{"prompt": "' + b"a" * (10 << 20) + b'"}', 413),
]


@pytest.mark.parametrize(("body", "status"), RAW, ids=lambda value: str(value)[:40])
def test_bytes_that_are_no_request_are_refused(served: Served, body: bytes, status: int) -> None:
    headers = {"content-type": "application/json"}
    answer = served.http.post(COMPLETIONS, content=body, headers=headers)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


def test_another_content_type_is_refused(served: Served) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = served.http.post(COMPLETIONS, content=b"{}", headers={"content-type": kind})
        assert answer.status_code == 415


def test_texts_with_anything_in_them_are_answered(served: Served) -> None:
    for text in ("\0", "a\0b", "\u202e", "🙂" * 50, "<|im_end|>", "{{ 7 * 7 }}", "\x1b[2J", "﷽"):
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": 2}
        assert served.post(CHAT, body).status_code == 200, repr(text)


def test_headers_that_do_not_come_end_the_connection(served: Served) -> None:
    for start in (b"", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-A: "):
        with connect(served) as connection:
            connection.sendall(start)
            begin = time.monotonic()
            assert read_all_or_reset(connection) == b""
            assert time.monotonic() - begin < 5


def test_headers_without_end_are_cut(served: Served) -> None:
    with connect(served) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: ")
        with pytest.raises(OSError):
            for _ in range(100000):
                connection.sendall(b"a" * 4096)


def test_a_body_that_does_not_come_is_given_up(served: Served) -> None:
    whole = request_bytes(COMPLETIONS, {"prompt": "a"})
    with connect(served) as connection:
        connection.sendall(whole[:-5])
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")


def _early_answer(connection: socket.socket, path: str, kind: str = "application/json") -> bytes:
    """To a request whose body has not come."""
    head = {"Content-Length": "1000000", "Content-Type": kind}
    connection.sendall(request_bytes(path, b"", **head))
    answer = connection.recv(1 << 16)
    while b"\r\n\r\n{" not in answer:
        answer += connection.recv(1 << 16)
    return answer


@pytest.mark.parametrize(("path", "kind"), [("/v1/nothing", ""), (COMPLETIONS, "text/plain")])
@pytest.mark.parametrize("drips", [1, 30])
def test_a_body_after_its_answer_holds_the_connection_for_no_longer_than_headers(
    served: Served, path: str, kind: str, drips: int
) -> None:
    with connect(served) as connection:
        answer = _early_answer(connection, path, kind)
        assert answer.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 415 "))
        begin = time.monotonic()
        connection.settimeout(0.1)
        for _ in range(drips):
            try:
                connection.sendall(b"a")
                assert connection.recv(1) == b""
            except TimeoutError:
                continue
            except OSError:
                break
        connection.settimeout(10)
        assert read_all_or_reset(connection) == b""
        assert time.monotonic() - begin < 4  # before uvicorn's own five seconds


def test_a_connection_goes_on_after_a_body_that_nobody_read(served: Served) -> None:
    with connect(served) as connection:
        _early_answer(connection, "/v1/nothing")
        connection.sendall(b"a" * 1000000)
        connection.sendall(request_bytes(COMPLETIONS, {"prompt": "a", "max_tokens": 2}))
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        time.sleep(LIMITS.head_seconds * 1.5)  # uvicorn's timer is the only one now
        connection.sendall(request_bytes(COMPLETIONS, {"prompt": "a", "max_tokens": 2}))
        assert b"HTTP/1.1 200 " in connection.recv(1 << 16)


@pytest.mark.parametrize("prompts", ["a", ["a", "b"]])
@pytest.mark.parametrize("stream", [False, True])
def test_bans_that_leave_no_token_are_the_requests_own_fault(
    served: Served, caplog: pytest.LogCaptureFixture, prompts: Any, stream: bool
) -> None:
    body = {"prompt": prompts, "allowed_token_ids": [5], "suppress_tokens": [5], "stream": stream}
    error = refused(served, COMPLETIONS, body)
    assert error["type"] == "invalid_request_error"
    assert error["code"] == "no_token_possible"
    assert "no token can be chosen" in error["message"]
    assert not [each for each in caplog.records if each.exc_info]


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("stream", [False, True])
def test_choices_that_all_fail_before_a_token_are_refused(
    served: Served, n: int, stream: bool
) -> None:
    """The grammar allows what the ban does not."""
    body = {"allowed_token_ids": [5], "structured_outputs": {"choice": ["Rome"]}}
    body |= {"messages": HELLO, "n": n, "temperature": 1.0, "stream": stream}
    assert refused(served, CHAT, body)["code"] == "grammar_failed"


@pytest.mark.parametrize("n", [1, 3])
def test_choices_that_all_fail_after_a_token_end_with_an_error_event(
    served: Served, n: int
) -> None:
    (token,) = served.post("/tokenize", {"prompt": "R", "add_special_tokens": False}).json()[
        "tokens"
    ]
    # Long enough for the stream to have begun when they fail.
    body = {"allowed_token_ids": [token], "structured_outputs": {"choice": ["R" * 400 + "Q"]}}
    body |= {"messages": HELLO, "n": n, "temperature": 1.0, "max_tokens": 500, "stream": True}
    answer = served.post(CHAT, body)
    assert answer.status_code == 200
    events = [
        json.loads(line.removeprefix("data: "))
        for line in answer.text.split("\n")
        if line.startswith("data: {")
    ]
    texts = [each["choices"][0]["delta"].get("content") or "" for each in events[:-1]]
    assert set("".join(texts)) == {"R"}
    assert events[-1]["error"]["code"] == "grammar_failed"


def test_a_failure_of_the_engine_is_told_without_a_traceback(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise PagewheelError("out of luck", code="step_failed")

    with monkeypatch.context() as patch:
        patch.setattr(pagewheel.GenerationHandle, "read_available", fail)
        error = refused(served, COMPLETIONS, {"prompt": "a"}, 500)
    assert error["message"] == "out of luck"
    assert error["code"] == "step_failed"
    assert not [each for each in caplog.records if each.exc_info]


def test_numbers_that_json_has_not_are_not_sent() -> None:
    with pytest.raises(ValueError, match="JSON"):
        json_text({"a": float("inf")})
    (impossible,) = of_tokens({5: b"a"}, [5], [float("-inf")])
    assert impossible.log_prob == -9999.0


def test_bytes_that_are_no_http_are_answered(served: Served) -> None:
    with connect(served) as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 what is this\r\n\r\n")
        assert b" 400 " in read_all(connection)


def test_a_client_that_does_not_read_is_cut_off_and_holds_nobody(served: Served) -> None:
    body = {"prompt": "a", "max_tokens": 3900, "ignore_eos": True, "stream": True}
    body |= {"n": 4, "temperature": 1.0, "echo": True}
    with connect(served, SO_RCVBUF=4096) as connection:
        connection.sendall(request_bytes(COMPLETIONS, body))
        assert served.post(COMPLETIONS, {"prompt": "b", "max_tokens": 8}).status_code == 200
        eventually(served.is_at_rest, 30)


def test_an_answer_whose_end_nobody_takes_does_not_keep_its_connection(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system has a small buffer for it, and the rest is too little to pause what sends."""

    def listen_with_small_buffers(host: str, port: int) -> socket.socket:
        listening = listen(host, port)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return listening

    monkeypatch.setattr("serving.listen", listen_with_small_buffers)
    body = {"prompt": "a", "max_tokens": 120, "ignore_eos": True, "logprobs": 20}
    with serving(tiny_settings(tiny_folder, LIMITS)) as served:
        connections = served.server.server_state.connections
        assert 20_000 < len(served.post(COMPLETIONS, body).content) < 60_000
        (others,) = connections
        with connect(served, SO_RCVBUF=4096) as connection:
            connection.sendall(request_bytes(COMPLETIONS, body, Connection="close"))
            eventually(lambda: len(connections) == 2)
            eventually(lambda: connections == {others}, 30)
        # One that has taken all of it goes on.
        assert served.post(COMPLETIONS, body).status_code == 200
        assert connections == {others}


def test_a_foreign_host_is_refused_where_there_are_no_keys(served: Served) -> None:
    answer = served.http.get("/v1/models", headers={"host": "evil.example"})
    assert answer.status_code == 403
    assert served.http.get("/v1/models", headers={"host": "localhost:1"}).status_code == 200
    assert served.http.get("/health", headers={"host": "10.0.0.7"}).status_code == 200


def read_all_or_reset(connection: socket.socket) -> bytes:
    try:
        return read_all(connection)
    except ConnectionResetError:
        return b""


STRANGE: list[Any] = ["x", "", -1, 0, 1.5, 2**80, True, [], [None], [[1]], {}, {"type": "x"}]
FIELDS = {
    CHAT: "model messages stream stream_options max_tokens max_completion_tokens n logprobs "
    "top_logprobs tools tool_choice parallel_tool_calls response_format structured_outputs "
    "guided_json guided_regex guided_choice guided_grammar user metadata store "
    "service_tier modalities audio chat_template_kwargs reasoning_effort timeout stop",
    COMPLETIONS: "model prompt stream stream_options max_tokens n logprobs echo suffix best_of "
    "add_special_tokens user response_format timeout",
    "/v1/responses": "model input instructions previous_response_id max_output_tokens store stream "
    "metadata text tools tool_choice include background truncation",
    "/v1/messages": "model messages system max_tokens stop_sequences stream thinking tools "
    "tool_choice output_config output_format",
    "/tokenize": "model prompt messages add_special_tokens tools chat_template_kwargs",
    "/detokenize": "model tokens",
}
RIGHT: dict[str, dict[str, Any]] = {
    CHAT: {"messages": HELLO, "max_tokens": 2},
    COMPLETIONS: {"prompt": "a", "max_tokens": 2},
    "/v1/responses": {"input": "a", "max_output_tokens": 2},
    "/v1/messages": {"messages": HELLO, "max_tokens": 2},
    "/tokenize": {"prompt": "a"},
    "/detokenize": {"tokens": [5]},
}


@pytest.mark.parametrize("path", FIELDS)
def test_every_field_stands_every_type(served: Served, path: str) -> None:
    assert served.post(path, RIGHT[path]).status_code == 200
    for field in FIELDS[path].split():
        for value in STRANGE:
            answer = served.post(path, {**RIGHT[path], field: value})
            assert answer.status_code in (200, 400, 404), (field, value, answer.text)


@pytest.mark.parametrize("piece", ["[]", "{}", "0", '""', '"a\\\\"', '{"a":[1]}'])
def test_a_body_of_very_many_values_is_refused_before_it_is_parsed(piece: str) -> None:
    body = f'{{"a": [{",".join([piece] * 300_000)}]}}'
    with pytest.raises(ApiError) as found:
        parse_object(body.encode())
    assert found.value.status == 400
    assert "200000 values" in found.value.message


def test_commas_and_brackets_in_texts_are_no_values() -> None:
    text = 'a,[{"\\' * 100_000
    assert parse_object(json.dumps({"prompt": text}).encode())["prompt"] == text


@pytest.mark.parametrize("digits", ["1e999", "-1e999", "9" * 401])
def test_a_number_that_no_float_can_hold_is_a_text_in_a_call_and_nowhere_else(digits: str) -> None:
    call = f'{{"type": "tool_use", "id": "a", "name": "b", "input": {{"c": [{digits}]}}}}'
    body = parse_object(f'{{"messages": [{{"content": [{call}]}}]}}'.encode())
    given = body["messages"][0]["content"][0]["input"]["c"]
    assert given == [digits]
    assert type(given[0]) is str
    for wrong in ('{"temperature": %s}', '{"prompt": [%s]}', '{"input": {"a": %s}}'):
        with pytest.raises(ApiError, match="too large") as found:
            parse_object((wrong % digits).encode())
        assert found.value.status == 400


def nested_calls(depth: int, inner: str) -> bytes:
    begin = '{"type": "tool_use", "input": '
    return (begin * depth + inner + "}" * depth).encode()


def test_calls_in_calls_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced: list[Any] = []
    replace = request_body.replace_large_numbers
    monkeypatch.setattr(
        request_body, "replace_large_numbers", lambda each: (replaced.append(each), replace(each))
    )
    with pytest.raises(ApiError, match="deeper than 64"):
        parse_object(nested_calls(900, '{"x": 1e999, "p": [1, 2]}'))
    assert replaced == []
    inner: Any = parse_object(nested_calls(60, '{"x": 1e999, "p": [1, 2]}'))
    assert replaced == [inner["input"]]
    for _ in range(60):
        inner = inner["input"]
    assert inner == {"x": "1e999", "p": [1, 2]}
    assert type(inner["x"]) is str


LARGE = [2**64, -(2**63) - 1, 10**24 + 1, 10**319 + 7]


@pytest.mark.parametrize("value", LARGE, ids=lambda value: str(value)[:30])
def test_an_integer_beyond_64_bits_is_a_text_in_a_call(value: int) -> None:
    given = {"a": value, "b": [{"c": value, "d": True}]}
    wanted = {"a": str(value), "b": [{"c": str(value), "d": True}]}
    for arguments in (json.dumps(given), given):
        assert tool_call("id", "name", arguments)["function"]["arguments"] == wanted
    kept = {"a": [2**64 - 1, -(2**63), 0.5, None]}
    assert tool_call("id", "name", json.dumps(kept))["function"]["arguments"] == kept


@pytest.mark.parametrize("value", LARGE, ids=lambda value: str(value)[:30])
def test_templates_are_given_no_integer_that_they_would_round(served: Served, value: int) -> None:
    hello = [{"role": "user", "content": "a"}]
    parameters = {"type": "object", "properties": {"a": {"maximum": value}}}
    tool = {"type": "function", "function": {"name": "a", "parameters": parameters}}
    for field, given in (("tools", [tool]), ("chat_template_kwargs", {"a": [value]})):
        for path in (CHAT, "/tokenize"):
            answer = served.post(path, {"messages": hello, field: given})
            assert answer.status_code == 400, answer.text[:300]
            assert answer.json()["error"]["param"] == field
            assert "64 bits" in answer.json()["error"]["message"]


HALF = json.dumps({"place": "\ud83d"})  # a text of plain ASCII


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (
            "/v1/chat/completions",
            {
                "messages": [
                    {
                        "role": "assistant",
                        "tool_calls": [{"id": "a", "function": {"name": "a", "arguments": HALF}}],
                    }
                ]
            },
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            "/v1/responses",
            {"input": [{"type": "function_call", "call_id": "a", "name": "a", "arguments": HALF}]},
            "input[0].arguments",
        ),
    ],
)
def test_half_of_a_character_in_arguments_is_refused_as_in_a_body(
    served: Served, path: str, body: Any, field: str
) -> None:
    answer = served.post(path, body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field
    assert "half of a UTF-16 surrogate pair" in answer.json()["error"]["message"]


def test_both_halves_of_a_character_in_arguments_are_one() -> None:
    call = tool_call("id", "name", json.dumps({"place": "\U0001f600"}))
    assert call["function"]["arguments"] == {"place": "\U0001f600"}
    numbers = tool_call("id", "name", '{"a": 1e999, "b": NaN, "c": 1, "c": 2}')
    assert numbers["function"]["arguments"] == {"a": "1e999", "b": "NaN", "c": 2}
    # A model wrote it: what continues its conversation must not fail.
    assert tool_call("id", "name", HALF)["function"]["arguments"] == HALF
