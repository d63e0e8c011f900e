"""Engines run in processes of their own, and what becomes of errors there."""

from __future__ import annotations

import pytest
from fake_engine import fake

from benchmarks.peers import Peer
from benchmarks.worker_process import WorkerError, WorkerProcess

pytestmark = pytest.mark.usefixtures("fake_engine_is_found")


def test_a_worker_answers_whatever_its_engine_prints() -> None:
    with WorkerProcess(fake("a"), timeout=60) as worker:
        answer = worker.request("load", model=__file__, device="CPU")
        assert answer["settings"] == {"device": "none"}
        assert worker.request("encode", text="AB") == {"ids": [65, 66]}
        memory = worker.request("memory")
        assert 0 < memory["now"] <= memory["peak"]
        assert worker.answered > worker.started


def test_an_error_in_an_engine_names_peer_and_cause_and_the_worker_lives() -> None:
    with WorkerProcess(fake("sick", break_load=True), timeout=60) as worker:
        with pytest.raises(WorkerError, match="'sick': load: ValueError: this model is broken"):
            worker.request("load", model="x", device="CPU")
        assert worker.request("encode", text="A") == {"ids": [65]}


def test_a_worker_that_dies_is_reported_with_its_last_words() -> None:
    with WorkerProcess(fake("mortal", die=True), timeout=60) as worker:
        with pytest.raises(WorkerError, match=r"(?s)ended with code 7.*about to die"):
            worker.request("generate", tasks=[{"prompts": [[1]], "new_tokens": 1}])
        with pytest.raises(WorkerError, match="ended with code 7"):
            worker.request("encode", text="A")


def test_a_worker_that_hangs_is_given_up() -> None:
    with (
        WorkerProcess(fake("slow", hang=True), timeout=2) as worker,
        pytest.raises(WorkerError, match="no answer within 2 s"),
    ):
        worker.request("generate", tasks=[{"prompts": [[1]], "new_tokens": 1}])


def test_an_engine_that_cannot_be_imported_is_an_error() -> None:
    with (
        WorkerProcess(Peer("x", "no_such_module:Engine", {}), timeout=60) as worker,
        pytest.raises(WorkerError, match="no_such_module"),
    ):
        worker.request("load", model="x", device="CPU")
