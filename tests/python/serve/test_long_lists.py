"""Lists of texts and tokens in a request: their bounds, and what they leave to others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from serving import Served

pytestmark = pytest.mark.usefixtures("nothing_is_left")

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "Hello"}]


def body_of(path: str, **fields: Any) -> dict[str, Any]:
    prompt = {"messages": HELLO} if path == CHAT else {"prompt": "Hello"}
    return {**prompt, "model": "tiny", "max_tokens": 8, "ignore_eos": True, **fields}


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("stop", [f"{i:10000}" for i in range(390)], "stop_strings has 3900000 bytes in all"),
        ("bad_words", [f"{i:400}" for i in range(10000)], "bad_words has 4000000 bytes in all"),
        ("bad_words_ids", [[1] * 1000] * 70, "bad_words_ids has 70000 token ids in all"),
    ],
)
def test_more_than_is_served_is_refused_by_name(
    served: Served, path: str, field: str, value: Any, allowed: str
) -> None:
    answer = served.post(path, body_of(path, **{field: value}))
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert f"{allowed}; allowed: up to 65536" in error["message"]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_stop_text_among_many_ends_the_text(served: Served, path: str) -> None:
    def text_of(**fields: Any) -> str:
        choice = served.post(path, body_of(path, max_tokens=24, **fields)).json()["choices"][0]
        return str(choice["message"]["content"] if path == CHAT else choice["text"])

    whole = text_of()
    stop = whole[len(whole) // 2 :][:3]
    many = [stop, *(f"{i:05}" + "z" * 60 for i in range(990))]
    assert text_of(stop=many) == whole[: whole.index(stop)]


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.all_cores
@pytest.mark.parametrize("sampled", [{}, {"temperature": 1.0}, {"num_beams": 64}], ids=str)
def test_many_choices_share_their_lists(served: Served, sampled: dict[str, Any]) -> None:
    """Each choice with lists of its own would take 100 MB and more."""
    lists = {
        "stop": ["z" * 9000 + str(i) for i in range(7)],
        "bad_words_ids": [[50, i % 200, *[60] * 900] for i in range(70)],
    }
    choices = {} if "num_beams" in sampled else {"n": 100}
    served.post(COMPLETIONS, body_of(COMPLETIONS, **sampled, **choices))
    before = _resident_bytes()
    answer = served.post(COMPLETIONS, body_of(COMPLETIONS, **sampled, **choices, **lists))
    assert answer.status_code == 200
    assert _resident_bytes() - before < 60 << 20
