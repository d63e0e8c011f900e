"""generate_json() gives values of the schema's type, and the command line has the same shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pydantic
import pytest

import pagewheel

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 10},
        "size": {"enum": ["small", "large"]},
    },
    "required": ["name", "size"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}


class Colour(pydantic.BaseModel):
    name: Literal["red", "green"]
    is_dark: bool


@pytest.fixture(scope="module")
def pipe(smollm2_folder: Path) -> pagewheel.LLMPipeline:
    return pagewheel.LLMPipeline(smollm2_folder)


def test_a_schema_gives_what_json_gives(pipe: pagewheel.LLMPipeline) -> None:
    value = pagewheel.generate_json(pipe, CITY, "Rome in JSON.", max_new_tokens=60)
    assert set(value) == {"name", "size"}
    assert value["size"] in ("small", "large")


def test_a_model_gives_an_instance(pipe: pagewheel.LLMPipeline) -> None:
    value = pagewheel.generate_json(pipe, Colour, "A colour in JSON.", max_new_tokens=60)
    assert isinstance(value, Colour)


def test_a_literal_gives_one_of_its_values(pipe: pagewheel.LLMPipeline) -> None:
    question = "Is water wet?"
    assert pagewheel.generate_json(pipe, Literal["yes", "no"], question, max_new_tokens=20) in (
        "yes",
        "no",
    )


def test_a_text_that_is_cut_off_is_an_error(pipe: pagewheel.LLMPipeline) -> None:
    with pytest.raises(pagewheel.UnfinishedOutputError, match="max_new_tokens is 3") as raised:
        pagewheel.generate_json(pipe, CITY, "Rome in JSON.", max_new_tokens=3)
    assert raised.value.text.startswith("{")


def test_hot_samples_of_a_schema_are_valid(pipe: pagewheel.LLMPipeline) -> None:
    result = pipe.generate(
        ["Rome in JSON."], max_new_tokens=60, do_sample=True, temperature=1.5, rng_seed=1,
        num_return_sequences=4,
        structured_output_config=pagewheel.StructuredOutputConfig(json_schema=CITY),
    )  # fmt: skip
    finished = [
        text
        for text, reason in zip(result.texts, result.finish_reasons, strict=True)
        if reason == pagewheel.GenerationFinishReason.STOP
    ]
    assert finished
    for text in finished:
        jsonschema.validate(json.loads(text), CITY)
