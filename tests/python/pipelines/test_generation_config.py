"""Generation parameters as keywords, as a dict and out of a model's folder."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import batching_pipeline, greedy

import pagewheel
from pagewheel._pagewheel import GenerationParameter, generation_parameters

PROMPT = [10, 11, 12]
PARAMETERS = [
    name for name, value in vars(pagewheel.GenerationConfig).items() if isinstance(value, property)
]


# Of each type a value that is no parameter's default.
OTHER_VALUES: dict[str, object] = {
    "bool": True,
    "int": 3,
    "int | None": 2,
    "float": 0.5,
    "float | None": 0.5,
    "str": "text",
    "set[int]": {2},
    "set[str]": {"text"},
    "dict[int, float]": {2: -1.5},
    "list[list[int]]": [[2, 3], [4]],
    "StopCriteria": pagewheel.StopCriteria.NEVER,
}


@pytest.fixture(scope="module")
def tiny(tiny_folder: Path) -> pagewheel.LLMPipeline:
    return pagewheel.LLMPipeline(tiny_folder, "CPU")


@pytest.mark.parametrize("parameter", generation_parameters(), ids=lambda each: each.name)
def test_every_parameter_is_a_keyword_a_property_a_key_and_a_line_of_the_docs(
    parameter: GenerationParameter, tmp_path: Path
) -> None:
    name = parameter.name
    exceptions = {
        "apply_chat_template": False,
        "cache_eviction": False,
        "skip_special_tokens": False,
        "dry_base": 2.0,
        "mirostat": 2,
    }
    value = exceptions.get(name, OTHER_VALUES[parameter.type])
    assert getattr(pagewheel.GenerationConfig(), name) != value
    by_keyword = pagewheel.GenerationConfig(**{name: value})
    assert getattr(by_keyword, name) == value
    config = pagewheel.GenerationConfig()
    setattr(config, name, value)
    assert getattr(config, name) == value
    assert (getattr(pagewheel.GenerationConfig, name).__doc__ or "").endswith(parameter.help)
    text = pagewheel.GenerationConfig.__doc__ or ""
    (line,) = [each for each in text.splitlines() if each.startswith(f"  {name} (")]
    assert parameter.help in line and parameter.allowed in line and parameter.initial in line
    assert f"\n{parameter.section}:\n" in text
    file = tmp_path / "generation_config.json"
    plain = [2] if value == {2} else ["text"] if value == {"text"} else value
    plain = "NEVER" if parameter.type == "StopCriteria" else plain
    beside = {"num_assistant_tokens": 2} if name == "max_ngram_size" else {}
    file.write_text(json.dumps({"do_sample": True, "num_beam_groups": 1, **beside, name: plain}))
    if name not in ("num_beams", "num_beam_groups"):  # which go with others only
        assert getattr(pagewheel.GenerationConfig(file), name) == value


def test_the_table_has_every_property() -> None:
    names = [each.name for each in generation_parameters()]
    # Three that JSON cannot hold.
    assert [*names, "parsers", "structured_output_config", "logits_processors"] == PARAMETERS
    assert {each.type for each in generation_parameters()} == set(OTHER_VALUES)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("top_p", 1.5, "top_p is 1.5; allowed: greater than 0, at most 1"),
        ("top_k", -1, "generation parameter 'top_k' is -1; allowed: integers from 0"),
        ("num_beams", 0, "num_beams is 0; allowed: 1 to 1000"),
    ],
)
def test_a_parameter_is_checked_by_itself(name: str, value: object, message: str) -> None:
    (parameter,) = [each for each in generation_parameters() if each.name == name]
    with pytest.raises(ValueError, match=message):
        parameter.check(value)
    parameter.check(1)


def test_none_is_every_parameters_default_as_keyword_and_in_a_dict(
    tiny: pagewheel.LLMPipeline,
) -> None:
    default = pagewheel.GenerationConfig()
    nothing = dict.fromkeys(PARAMETERS)
    by_keyword = pagewheel.GenerationConfig(**nothing)
    updated = pagewheel.GenerationConfig(
        max_new_tokens=3, temperature=0.5, top_p=0.5, top_k=3, logprobs=1, do_sample=True
    )
    updated.update_generation_config(**nothing)
    for name in PARAMETERS:
        assert getattr(by_keyword, name) == getattr(default, name), name
        assert getattr(updated, name) == getattr(default, name), name
    prompt = np.array(PROMPT)
    expected = tiny.generate(prompt, max_new_tokens=5, ignore_eos=True).tokens
    rest = dict.fromkeys(set(PARAMETERS) - {"max_new_tokens", "ignore_eos"})
    assert tiny.generate(prompt, max_new_tokens=5, ignore_eos=True, **rest).tokens == expected
    config = {"max_new_tokens": 5, "ignore_eos": True, **rest}
    assert tiny.generate(prompt, config).tokens == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("logprobs", -1),
        ("priority", 2**40),
        ("priority", 1.5),
        ("eos_token_id", 1.5),
        ("eos_token_id", [1, 1.5]),
        ("stop_token_ids", {1.5}),
        ("stop_token_ids", [2**63]),
        ("max_new_tokens", 2**64),
        ("top_k", np.float32(3.5)),
        ("rng_seed", -1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", 1e39),
        ("timeout", math.nan),
        ("timeout", np.float64("-inf")),
        ("do_sample", 1),
        ("stop_strings", [1]),
        ("stop_strings", [[[]]]),
        ("logit_bias", [1]),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {1.5: 1.0}),
        ("logit_bias", {True: 1.0}),
        ("logit_bias", {1: "a"}),
        ("bad_words_ids", [1]),
        ("bad_words_ids", [[1.5]]),
        ("allowed_token_ids", [-1]),
    ],
)
def test_values_that_do_not_fit_are_refused_by_name_in_every_form(
    tiny: pagewheel.LLMPipeline, name: str, value: object
) -> None:
    message = f"generation parameter '{name}' is .*; allowed: "
    config = pagewheel.GenerationConfig()
    for refused in (
        lambda: pagewheel.GenerationConfig(**{name: value}),
        lambda: config.update_generation_config(**{name: value}),
        lambda: tiny.generate(np.array(PROMPT), {name: value}),
        lambda: tiny.generate(np.array(PROMPT), **{name: value}),
    ):
        with pytest.raises(ValueError, match=message):
            refused()


@pytest.mark.parametrize("value", [math.nan, -math.inf, 0, -1.5, 1e39, "soon"])
def test_a_timeout_is_a_positive_number_or_infinite(value: object) -> None:
    message = r"'timeout' is .*; allowed: numbers above 0, up to 3.*, or \"inf\""
    with pytest.raises(ValueError, match=message):
        pagewheel.GenerationConfig(timeout=value)
    for endless in (math.inf, "inf"):
        assert pagewheel.GenerationConfig(timeout=endless).timeout == math.inf


@pytest.mark.parametrize("value", [np.array([0.5, 0.6]), np.array(0.5), [np.array([1])], object()])
def test_what_is_no_parameter_is_refused_by_name(value: object) -> None:
    with pytest.raises(TypeError, match=r"generation parameter 'top_p' cannot be made of "):
        pagewheel.GenerationConfig(top_p=value)


def test_numpy_numbers_of_every_size_are_numbers() -> None:
    for kind in (np.float16, np.float32, np.float64, np.longdouble):
        assert pagewheel.GenerationConfig(top_p=kind(0.5)).top_p == 0.5
    for kind in (np.int8, np.uint64):
        assert pagewheel.GenerationConfig(top_k=kind(5)).top_k == 5
        assert pagewheel.GenerationConfig(stop_token_ids={kind(5)}).stop_token_ids == {5}
    assert pagewheel.GenerationConfig(do_sample=np.bool_(True)).do_sample


def test_what_fits_is_taken_exactly() -> None:
    config = pagewheel.GenerationConfig(
        max_new_tokens=np.int64(2**53 + 1),
        rng_seed=2**64 - 2,
        eos_token_id=2**63 - 1,
        timeout=np.float32("inf"),
        logprobs=None,
    )
    assert config.max_new_tokens == 2**53 + 1
    assert config.rng_seed == 2**64 - 2
    assert config.eos_token_id == 2**63 - 1
    assert config.timeout == math.inf
    assert config.logprobs == 0
    config.validate()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_return_sequences": 10**9, "do_sample": True}, "num_return_sequences is 1000000000"),
        ({"num_beams": 10**9}, "num_beams is 1000000000"),
        ({"logprobs": 2**64 - 1}, "logprobs is 18446744073709551615"),
        ({"stop_strings": {str(i) for i in range(1001)}}, "number of stop_strings is 1001"),
        ({"stop_strings": {"a" * 10001}}, "10001 bytes"),
    ],
)
def test_counts_beyond_reason_are_refused_and_harm_nothing(
    tiny: pagewheel.LLMPipeline, change: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        tiny.generate(np.array(PROMPT), max_new_tokens=3, **change)
    assert tiny.get_metrics().requests == 0


def folder_with(tiny_folder: Path, target: Path, content: dict[str, object]) -> Path:
    folder = Path(shutil.copytree(tiny_folder, target / "model"))
    (folder / "generation_config.json").write_text(json.dumps(content))
    return folder


def test_nulls_in_a_models_generation_config_are_defaults(
    tiny_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    names = [*PARAMETERS, "early_stopping"]
    nulls = folder_with(tiny_folder, tmp_path, dict.fromkeys(names))
    pipeline = batching_pipeline(nulls)
    default = pagewheel.GenerationConfig()
    for name in set(PARAMETERS) - {"eos_token_id", "stop_token_ids"}:
        assert getattr(pipeline.get_config(), name) == getattr(default, name), name
    assert pipeline.get_config().eos_token_id == pipeline.get_tokenizer().get_eos_token_id()
    assert pipeline.get_config().stop_token_ids == {pipeline.get_config().eos_token_id}
    assert "warning" not in capfd.readouterr().err


def test_a_model_whose_generation_config_is_out_of_range_generates(
    tiny_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    content = {
        "do_sample": False,
        "temperature": 0.0,
        "top_p": 0,
        "top_k": -1,
        "repetition_penalty": 0.0,
        "eos_token_id": 1.5,
        "num_beams": 4,
        "num_return_sequences": 10**9,
    }
    pipeline = pagewheel.LLMPipeline(folder_with(tiny_folder, tmp_path, content), "CPU")
    warnings = capfd.readouterr().err
    for name in ("top_p", "top_k", "repetition_penalty", "eos_token_id", "num_return_sequences"):
        assert f"{name} is left at its default" in warnings
    config = pipeline.get_generation_config()
    assert config.num_beams == 4
    assert not config.do_sample
    config.max_new_tokens = 5
    config.ignore_eos = True
    assert len(pipeline.generate(np.array(PROMPT), config).tokens[0]) == 5
    assert len(pipeline.generate(np.array(PROMPT), greedy(5)).tokens[0]) == 5
