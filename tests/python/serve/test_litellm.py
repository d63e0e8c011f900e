"""LiteLLM against a server, by its names for OpenAI, vLLM and Anthropic.

It wants an older version of OpenAI's client than the other tests, so it needs a Python of its own:
PAGEWHEEL_TEST_LITELLM names one where `pip install litellm mcp` was done.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asking import THOUGHT
from serving import serving, tiny_settings

PYTHON = os.environ.get("PAGEWHEEL_TEST_LITELLM")
pytestmark = pytest.mark.skipif(
    PYTHON is None, reason="PAGEWHEEL_TEST_LITELLM names no Python that has litellm"
)


@pytest.fixture(scope="module")
def told(calling_folder: Path) -> Iterator[dict[str, Any]]:
    with serving(tiny_settings(calling_folder)) as served:
        assert PYTHON is not None
        program = Path(__file__).with_name("litellm_client.py")
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [PYTHON, program, served.url], capture_output=True, text=True, env=clean, timeout=120
        )
        assert done.returncode == 0, done.stderr[-3000:]
        yield json.loads(done.stdout.splitlines()[-1])


def test_litellm_gets_text(told: dict[str, Any]) -> None:
    # Newer ones take thoughts out of a whole answer, though not of a stream.
    assert told["text"] in (THOUGHT, THOUGHT.partition("</think>")[2])


def test_litellms_stream_joined_is_the_text(told: dict[str, Any]) -> None:
    assert told["streamed"] == THOUGHT


def test_litellm_gets_calls_and_reasoning(told: dict[str, Any]) -> None:
    assert told["call"]["name"] == "weather"
    assert json.loads(told["call"]["arguments"]) == {"place": "Rome"}
    assert told["reasoning"] == "Which place?"


def test_litellm_demands_a_shape(told: dict[str, Any]) -> None:
    assert json.loads(told["shaped"])["place"] in ("Rome", "Oslo")


def test_litellm_speaks_anthropics_language(told: dict[str, Any]) -> None:
    assert isinstance(told["anthropic"], str)
