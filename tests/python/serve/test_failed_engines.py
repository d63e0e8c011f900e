"""An engine that fails as a whole: what clients and probes are told, and that it comes back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from serving import Served, serving, tiny_settings
from waiting import eventually

import pagewheel
from pagewheel.serve.models.engine import Engine, EngineFailedError, load
from pagewheel.serve.models.registry import Registry

COMPLETIONS = "/v1/completions"
BODY = {"prompt": "a", "max_tokens": 4, "ignore_eos": True}
REASON = "the pipeline failed and serves no more: a test"


class FailedHandle:
    """Of a request that is in the engine when that fails."""

    error: type[RuntimeError] = pagewheel.PipelineFailedError

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def read_available(self, with_text: bool) -> Any:
        raise self.error(REASON)


class FailedPrefixes:
    """Of a pipeline that has failed."""

    def save(self, *_arguments: Any, **_named: Any) -> None:
        raise pagewheel.PipelineFailedError(REASON)


class FailedPipeline:
    """Says what one says that has failed: no input of a request leads a real one there."""

    def __init__(self, pipeline: Any, takes_requests: bool) -> None:
        self._pipeline = pipeline
        self._takes_requests = takes_requests

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipeline, name)

    def add_request(self, *arguments: Any) -> Any:
        if self._takes_requests:
            return FailedHandle(self._pipeline.add_request(*arguments))
        raise pagewheel.PipelineFailedError(REASON)

    def get_cache_view(self, *arguments: Any) -> Any:
        if self._takes_requests:
            return self._pipeline.get_cache_view(*arguments)
        raise pagewheel.PipelineFailedError(REASON)

    def get_prefix_cache(self) -> Any:
        return FailedPrefixes()


def fail(served: Served, takes_requests: bool = False) -> Engine:
    engine = served.engine
    engine._pipeline = FailedPipeline(engine._pipeline, takes_requests)  # type: ignore[assignment]
    return engine


@pytest.mark.parametrize("takes_requests", [False, True])
@pytest.mark.parametrize("is_pinned", [False, True])
def test_requests_get_503_and_the_model_is_loaded_again(
    tiny_folder: Path, takes_requests: bool, is_pinned: bool
) -> None:
    settings = tiny_settings(tiny_folder)
    models = (replace(settings.models[0], is_pinned=is_pinned),)
    with serving(replace(settings, models=models)) as served:
        assert served.post(COMPLETIONS, BODY).status_code == 200
        failed = fail(served, takes_requests)
        answer = served.post(COMPLETIONS, BODY)
        assert answer.status_code == 503
        assert answer.headers["retry-after"]
        assert answer.json()["error"]["code"] == "engine_failed"
        assert "a test" not in answer.text
        eventually(lambda: served.post(COMPLETIONS, BODY).status_code == 200)
        assert served.engine is not failed
        assert served.http.get("/ready").status_code == 200


def test_probes_are_told_without_any_request(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tiny_settings(tiny_folder)) as served:
        failed = fail(served)
        monkeypatch.setattr(Registry, "_has_just_failed", staticmethod(lambda _entry: True))
        eventually(lambda: served.http.get("/ready").status_code == 503)
        assert served.http.get("/ready").headers["retry-after"]
        with pytest.raises(EngineFailedError):  # so that Ray Serve replaces the replica
            asyncio.run(served.server.service.registry.check())
        monkeypatch.undo()
        eventually(lambda: served.http.get("/ready").status_code == 200)
        assert served.engine is not failed
        assert served.post(COMPLETIONS, BODY).status_code == 200


def test_a_failure_that_nobody_has_seen_leaves_the_saved_prefixes(
    tiny_folder: Path, tmp_path: Path
) -> None:
    settings = tiny_settings(tiny_folder, prefix_cache_dir=tmp_path / "prefixes")
    with serving(settings) as served:
        assert served.post(COMPLETIONS, {**BODY, "prompt": "a" * 200}).status_code == 200
    (saved,) = (tmp_path / "prefixes").glob("*.prefixes")
    before = saved.stat().st_ino
    with serving(settings) as served:
        assert served.post(COMPLETIONS, {**BODY, "prompt": "b" * 200}).status_code == 200
        fail(served, takes_requests=True)
        assert served.engine.failure is None
    assert saved.stat().st_ino == before
    assert list((tmp_path / "prefixes").glob(".saving-*")) == []


def test_an_error_of_a_request_alone_is_no_failure_of_the_engine(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tiny_settings(tiny_folder)) as served:
        monkeypatch.setattr(FailedHandle, "error", RuntimeError)
        engine = fail(served, takes_requests=True)
        assert served.post(COMPLETIONS, BODY).status_code == 500
        assert engine.failure is None
        assert served.engine is engine


def test_an_engine_that_is_closed_while_it_is_checked_has_not_failed(tiny_folder: Path) -> None:
    engine = load(tiny_settings(tiny_folder).models[0], tiny_folder)
    engine.close()
    asyncio.run(engine.check())  # its thread takes no more calls
    assert engine.failure is None
