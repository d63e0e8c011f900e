"""/api/..., asked by Ollama's own client and LangChain's."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ollama
import pytest
from asking import CHAT_TOOLS, HELLO, SCHEMA
from fake_hub import FakeHub
from langchain_ollama import ChatOllama
from serving import Served, serving, tiny_settings
from waiting import eventually

from pagewheel.hub import pull
from pagewheel.serve.settings import KeyLimits, ServerSettings

GREEDY = {"temperature": 0, "num_predict": 12}
PROPERTIES = {"batch_invariant": True}  # texts are compared whoever shares a step or a prefix
KEYS = {"plain-key": KeyLimits(), "admin-key": KeyLimits(admin=True)}


@pytest.fixture
def client(served: Served) -> ollama.Client:
    return ollama.Client(host=served.url)


@pytest.fixture(scope="module")
def idle(tiny_folder: Path) -> Iterator[Served]:
    """A server that need not keep its model in memory."""
    model = replace(tiny_settings(tiny_folder).models[0], is_pinned=False)
    with serving(ServerSettings((model,), port=0)) as one:
        yield one


def openai_text(served: Served, **fields: Any) -> str:
    body = {"messages": HELLO, "temperature": 0, "max_tokens": 12, **fields}
    choice = served.post("/v1/chat/completions", body).json()["choices"][0]
    return str(choice["message"]["content"])


@pytest.mark.usefixtures("nothing_is_left")
def test_a_chat_has_the_text_of_openais_endpoint(served: Served, client: ollama.Client) -> None:
    whole = client.chat("tiny", HELLO, options=GREEDY)
    assert whole.message.content == openai_text(served)
    assert (whole.done, whole.done_reason, whole.eval_count) == (True, "length", 12)
    assert whole.prompt_eval_count and whole.total_duration and whole.eval_duration


@pytest.mark.usefixtures("nothing_is_left")
def test_a_stream_of_lines_is_the_whole_answer(client: ollama.Client) -> None:
    whole = client.chat("tiny", HELLO, options=GREEDY)
    lines = list(client.chat("tiny", HELLO, options=GREEDY, stream=True))
    assert "".join(each.message.content or "" for each in lines) == whole.message.content
    assert [each.done for each in lines] == [False] * (len(lines) - 1) + [True]
    assert (lines[-1].done_reason, lines[-1].eval_count) == ("length", 12)


def test_the_tag_of_ollamas_names_is_left_out(client: ollama.Client) -> None:
    assert client.chat("tiny:latest", HELLO, options=GREEDY).done


def test_a_raw_prompt_is_completed_and_continued(served: Served, client: ollama.Client) -> None:
    first = client.generate("tiny", "Hello", raw=True, options=GREEDY)
    body = {"prompt": "Hello", "temperature": 0, "max_tokens": 12}
    assert first.response == served.post("/v1/completions", body).json()["choices"][0]["text"]
    assert first.context is not None and len(first.context) >= 13
    second = client.generate("tiny", "And", raw=True, context=first.context, options=GREEDY)
    assert second.prompt_eval_count == len(first.context) + len(served.engine.encode("And", True))


def test_a_prompt_and_its_system_message_are_a_conversation(
    served: Served, client: ollama.Client
) -> None:
    made = client.generate("tiny", "Hello", system="Be brief", options=GREEDY)
    messages = [{"role": "system", "content": "Be brief"}, *HELLO]
    assert made.response == openai_text(served, messages=messages)


@pytest.mark.parametrize("form", ["json", SCHEMA])
def test_a_format_holds_the_answer(client: ollama.Client, form: Any) -> None:
    answer = client.chat("tiny", HELLO, format=form, options={"seed": 1, "num_predict": 400})
    content = answer.message.content or ""
    if answer.done_reason == "stop":
        assert isinstance(json.loads(content), dict)
    if form is SCHEMA:
        assert json.loads(content)["place"] in ("Rome", "Oslo")


def test_options_are_parameters(client: ollama.Client) -> None:
    options = {"seed": 7, "temperature": 1.5, "top_k": 40, "num_predict": 9, "repeat_penalty": 1.2}
    texts = {client.generate("tiny", "Hello", options=options).response for _ in range(2)}
    assert len(texts) == 1
    text = texts.pop() or ""
    stopped = client.generate("tiny", "Hello", options={**options, "stop": [text[3]]})
    assert stopped.response == text[: text.index(text[3])]
    assert stopped.done_reason == "stop"


def test_hints_for_a_machine_are_taken(client: ollama.Client) -> None:
    hints = {"num_ctx": 8192, "num_thread": 4, "num_gpu": 1, "repeat_last_n": 64}
    plain = client.chat("tiny", HELLO, options=GREEDY)
    assert client.chat("tiny", HELLO, options=GREEDY | hints).message == plain.message


def test_log_probabilities_come_with_the_tokens(client: ollama.Client) -> None:
    answer = client.chat("tiny", HELLO, options=GREEDY, logprobs=True, top_logprobs=2)
    assert answer.logprobs is not None and len(answer.logprobs) == 12
    first = answer.logprobs[0]
    assert first.top_logprobs is not None
    assert first.logprob == max(each.logprob for each in first.top_logprobs)


def test_calls_are_lines_of_objects(calling_folder: Path) -> None:
    with serving(tiny_settings(calling_folder)) as served:
        body = {"model": "tiny", "messages": HELLO, "tools": CHAT_TOOLS[:1]}
        body |= {"tool_choice": "required", "parallel_tool_calls": False, "stream": True}
        lines = [json.loads(each) for each in served.post("/api/chat", body).text.split("\n")[:-1]]
        calls = [call for each in lines for call in each["message"].get("tool_calls", ())]
        assert [each["function"]["name"] for each in calls] == ["weather"]
        (call,) = calls
        assert call["function"]["arguments"]["place"] in ("Rome", "Oslo")
        said = [{"role": "assistant", "tool_calls": calls}]
        said.append({"role": "tool", "tool_name": "weather", "content": "Sun"})
        client = ollama.Client(host=served.url)
        assert client.chat("tiny", [*HELLO, *said], options=GREEDY).done


@pytest.mark.parametrize(
    ("path", "fields", "named"),
    [
        ("chat", {"messages": [{"role": "user", "content": "a", "images": ["aaaa"]}]}, "images"),
        ("chat", {"messages": HELLO, "options": {"no_such": 1}}, "options.no_such"),
        ("chat", {"messages": HELLO, "options": {"num_predict": 0}}, "num_predict"),
        ("chat", {"messages": HELLO, "format": "yaml"}, "format"),
        ("chat", {"messages": HELLO, "think": 3}, "think"),
        ("chat", {"messages": HELLO, "keep_alive": "soon"}, "keep_alive"),
        ("chat", {"messages": [{"role": "nobody", "content": "a"}]}, "role"),
        ("chat", {"messages": HELLO, "no_such": 1}, "no_such"),
        ("generate", {"prompt": "a", "template": "{{ x }}"}, "template"),
        ("generate", {"prompt": "a", "suffix": "b"}, "suffix"),
        ("generate", {"prompt": "a", "context": [-1]}, "context"),
    ],
)
def test_what_is_wrong_is_named(served: Served, path: str, fields: Any, named: str) -> None:
    answer = served.post(f"/api/{path}", {"model": "tiny", **fields})
    assert answer.status_code == 400
    assert list(answer.json()) == ["error"]
    assert named in answer.json()["error"]


def test_an_unknown_model_is_not_found(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="does not exist") as raised:
        client.chat("other", HELLO)
    assert raised.value.status_code == 404


def test_an_error_in_a_stream_is_a_line(served: Served) -> None:
    body = {"model": "tiny", "messages": HELLO, "stream": True}
    body["options"] = {"num_predict": 4000, "ignore_eos": True}
    with served.http.stream("POST", "/api/chat", json=body) as answer:
        lines = answer.iter_lines()
        next(lines)
        loop = served.server.servers[0].get_loop()
        loop.call_soon_threadsafe(served.server.service.admission.stop_all)
        last = [json.loads(each) for each in lines][-1]
    assert "shutting down" in last["error"]


def test_models_are_listed_and_shown(served: Served, client: ollama.Client) -> None:
    (listed,) = client.list().models
    assert (listed.model, bool(listed.size), len(listed.digest or "")) == ("tiny", True, 64)
    (running,) = client.ps().models
    assert running.context_length == 4096
    shown = client.show("tiny")
    assert shown.capabilities == ["completion", "tools"]
    assert shown.template == served.engine.chat_template
    assert "version" in served.http.get("/api/version").json()
    with pytest.raises(ollama.ResponseError, match="not served yet"):
        client.embed("tiny", "a")


def test_langchain_streams_and_binds_tools(served: Served) -> None:
    model = ChatOllama(model="tiny", base_url=served.url, temperature=0, num_predict=12)
    whole = model.invoke("Hello")
    assert whole.content == openai_text(served)
    assert "".join(str(each.content) for each in model.stream("Hello")) == whole.content
    assert model.bind_tools(CHAT_TOOLS).invoke("Hello").usage_metadata is not None


def test_keep_alive_says_how_long_a_model_stays(idle: Served) -> None:
    client, registry = ollama.Client(host=idle.url), idle.server.service.registry
    assert client.generate("tiny", "").done_reason == "load"
    assert [each.name for each in registry.loaded()] == ["tiny"]
    assert client.generate("tiny", "", keep_alive=0).done_reason == "unload"
    assert not list(registry.loaded())
    client.chat("tiny", HELLO, options=GREEDY, keep_alive="100ms")
    eventually(lambda: not list(registry.loaded()))
    client.chat("tiny", HELLO, options=GREEDY, keep_alive=-1)
    (running,) = client.ps().models
    assert running.expires_at is not None and running.expires_at.year == 9999


def test_a_key_that_is_no_admins_unloads_nothing(tiny_folder: Path) -> None:
    model = replace(tiny_settings(tiny_folder).models[0], is_pinned=False)
    with serving(ServerSettings((model,), port=0, keys=tuple(KEYS), key_limits=KEYS)) as served:
        for key, count in (("plain-key", 1), ("admin-key", 0)):
            client = ollama.Client(host=served.url, headers={"authorization": f"Bearer {key}"})
            client.generate("tiny", "a", options=GREEDY)
            client.generate("tiny", "", keep_alive=0)
            assert len(list(served.server.service.registry.loaded())) == count


@pytest.fixture
def pulling(tiny_folder: Path, hub: FakeHub) -> Iterator[Served]:
    hub.repositories["o/tiny"] = {"tiny.gguf": (tiny_folder.parent / "tiny.gguf").read_bytes()}
    settings = tiny_settings(tiny_folder, keys=tuple(KEYS), key_limits=KEYS, pulled_bytes=2 << 20)
    with serving(settings) as one:
        one.http.headers["authorization"] = "Bearer admin-key"
        yield one


def test_an_admin_pulls_serves_and_deletes_a_model(pulling: Served) -> None:
    client = ollama.Client(host=pulling.url, headers={"authorization": "Bearer admin-key"})
    said = [each.status for each in client.pull("hf.co/o/tiny", stream=True)]
    assert said[-1] == "success"
    assert {each.model for each in client.list().models} == {"tiny", "o/tiny"}
    mine = client.chat("o/tiny", HELLO, options=GREEDY)
    assert mine.message == client.chat("tiny", HELLO, options=GREEDY).message
    client.delete("o/tiny")
    assert {each.model for each in client.list().models} == {"tiny"}
    with pytest.raises(ollama.ResponseError, match="does not exist"):
        client.chat("o/tiny", HELLO)


def test_the_end_of_a_server_does_not_wait_for_a_pull(tiny_folder: Path, hub: FakeHub) -> None:
    hub.repositories["o/slow"] = {"model.gguf": b"GGUF" + bytes(1 << 20)}
    hub.held = threading.Event()
    settings = tiny_settings(tiny_folder, keys=tuple(KEYS), key_limits=KEYS, pulled_bytes=1 << 30)
    headers, body = {"authorization": "Bearer admin-key"}, {"model": "o/slow"}
    with serving(settings) as served:
        with served.http.stream("POST", "/api/pull", json=body, headers=headers) as answer:
            assert "to fetch" in next(answer.iter_lines())
        again = served.post("/api/pull", body, headers=headers)
        assert again.status_code == 429  # the first one goes on without its client
    assert not hub.held.is_set()
    hub.held.set()


def test_a_model_in_use_is_not_deleted(pulling: Served) -> None:
    client = ollama.Client(host=pulling.url, headers={"authorization": "Bearer admin-key"})
    client.pull("o/tiny")
    options = {"num_predict": 4000, "ignore_eos": True}
    answer = client.chat("o/tiny", HELLO, stream=True, options=options)
    next(answer)
    with pytest.raises(ollama.ResponseError, match="in use"):
        client.delete("o/tiny")
    answer.close()


@pytest.mark.parametrize(
    ("name", "status"),
    [("http://127.0.0.1/a.gguf", 400), ("../../etc/passwd", 400), ("o/none", 404), ("", 400)],
)
def test_only_names_of_the_hub_are_pulled(pulling: Served, name: str, status: int) -> None:
    answer = pulling.post("/api/pull", {"model": name, "stream": False})
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]


def test_no_more_is_pulled_than_there_is_space_for(pulling: Served, hub: FakeHub) -> None:
    hub.repositories["o/large"] = {"large.gguf": b"GGUF" + bytes(3 << 20)}
    answer = pulling.post("/api/pull", {"model": "o/large", "stream": False})
    assert answer.status_code == 502
    assert "allowed" in answer.json()["error"]
    assert not hub.downloads()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/pull", {"model": "o/tiny"}),
        ("DELETE", "/api/delete", {"model": "o/tiny"}),
        ("POST", "/models/load", {"model": "tiny"}),
        ("POST", "/models/unload", {"model": "tiny"}),
        ("POST", "/sleep", {}),
        ("POST", "/wake_up", {}),
    ],
)
def test_what_changes_the_server_needs_an_admins_key(
    pulling: Served, method: str, path: str, body: Any
) -> None:
    headers = {"authorization": "Bearer plain-key"}
    answer = pulling.http.request(method, path, json=body, headers=headers)
    assert answer.status_code == 403
    assert "admin=yes" in answer.text


def test_deleting_touches_only_what_was_pulled(pulling: Served, tiny_folder: Path) -> None:
    for name in ("tiny", str(tiny_folder), "../tiny", "o/never"):
        answer = pulling.http.request("DELETE", "/api/delete", json={"model": name})
        assert answer.status_code == 404
    assert (tiny_folder / "openvino_model.xml").is_file()


def test_what_is_served_since_the_start_is_not_deleted(tiny_folder: Path, hub: FakeHub) -> None:
    hub.repositories["o/tiny"] = {"tiny.gguf": (tiny_folder.parent / "tiny.gguf").read_bytes()}
    path = pull("o/tiny", progress=False).path
    model = replace(tiny_settings(path).models[0], is_pinned=False)
    with serving(ServerSettings((model,), port=0, keys=tuple(KEYS), key_limits=KEYS)) as served:
        headers = {"authorization": "Bearer admin-key"}
        body = {"model": "o/tiny"}
        answer = served.http.request("DELETE", "/api/delete", json=body, headers=headers)
        assert answer.status_code == 409
    assert path.is_file()


def test_models_are_loaded_and_unloaded_by_an_admin(pulling: Served) -> None:
    registry = pulling.server.service.registry
    assert pulling.post("/models/unload", {"model": "tiny"}).json() == {"success": True}
    assert not list(registry.loaded())
    assert pulling.http.get("/is_sleeping").json() == {"is_sleeping": True}
    assert pulling.post("/models/load", {"model": "tiny"}).json() == {"success": True}
    assert pulling.post("/sleep", {}).status_code == 200
    assert not list(registry.loaded())
    assert pulling.post("/wake_up", {}).status_code == 200
    assert [each.name for each in registry.loaded()] == ["tiny"]
