"""`pagewheel chat` with --json-schema, --regex and --choice: each answer has the shape."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command_line import invoke, run

pytestmark = pytest.mark.usefixtures("default_model_is_converted")


def answers(*options: str, text: str) -> list[str]:
    """What was answered, without the prompts for input."""
    result = run("chat", "--greedy", "-n", "60", *options, text=text)
    assert result.returncode == 0, result.stderr
    return [line.removeprefix("> ").strip() for line in result.stdout.splitlines() if line.strip()]


def test_json_schema_is_of_every_answer(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["age"],
        "additionalProperties": False,
        "x-guidance": {"whitespace_flexible": False},
    }
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(schema))
    seen = answers("--json-schema", str(file), text="How old is Ada?\nAnd Bob?\n")
    assert len(seen) == 2
    for answer in seen:
        assert list(json.loads(answer)) == ["age"]


def test_regex_is_of_every_answer() -> None:
    seen = answers("--regex", "[0-9]{3}-[0-9]{2}", text="Your number?\nAnother?\n")
    assert len(seen) == 2
    assert all(re.fullmatch("[0-9]{3}-[0-9]{2}", answer) for answer in seen), seen


def test_each_answer_is_one_of_the_choices() -> None:
    seen = answers("--choice", "yes, so it is", "--choice", "no", text="Is it?\n/reset\nIs it?\n")
    assert seen == [seen[0]] * 2  # greedy, with the same history
    assert seen[0] in ("yes, so it is", "no")


def test_two_shapes_are_refused() -> None:
    result = invoke("chat", "--regex", "a", "--choice", "b")
    assert result.exit_code == 2
    assert "allowed is one of them" in " ".join(result.output.replace("│", " ").split())


def test_a_regex_that_is_none_is_told_in_the_terminal() -> None:
    result = run("chat", "--greedy", "--regex", "(a", text="Hi.\n")
    assert "invalid regex" in result.stderr + result.stdout


def test_a_server_takes_no_shape() -> None:
    result = invoke("chat", "--server", "http://127.0.0.1:9", "--regex", "a")
    assert result.exit_code == 2
    assert "for a model in this process" in " ".join(result.output.replace("│", " ").split())
