"""GenerationConfig accepts and refuses what openvino_genai does, but for what is listed here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import pagewheel
import pagewheel.openvino_genai
from benchmarks.compatibility.generation_configs import CASES, verdicts

RECORDED = Path(__file__).parents[2] / "data/openvino_genai/generation_configs.json"
PEER: Mapping[str, Mapping[str, bool]] = json.loads(RECORDED.read_text(encoding="utf-8"))
OURS = verdicts(pagewheel)
MODULES = {"pagewheel": OURS, "openvino_genai": verdicts(pagewheel.openvino_genai)}

# Where the verdicts differ on purpose, and why.
DIFFERENT = {
    # Accepted by the peer
    "{'max_new_tokens': 10, 'top_k': 1.5}": "no rounding",
    "{'max_new_tokens': 10, 'top_k': -1, 'do_sample': True}": "no wrapping",
    "{'max_new_tokens': 10, 'stop_strings': {''}}": "it would end every text",
    "{'max_new_tokens': 10, 'num_beams': 1001}": "bounded",
    "{'max_new_tokens': 10, 'unknown_name': 1}": "a misspelling is told",
    # Refused by the peer
    "{'max_new_tokens': None}": "None is the default; without another end",
    "{'max_new_tokens': 10, 'stop_token_ids': [1]}": "a list is as good as a set",
    "{'max_new_tokens': 10, 'stop_strings': ['a']}": "a list is as good as a set",
    "{'max_new_tokens': 10, 'num_beams': 2, 'repetition_penalty': 1.5}": "beams have penalties",
    "{'max_new_tokens': 10, 'num_beams': 2, 'presence_penalty': 1.0}": "beams have penalties",
    "{'max_new_tokens': 10, 'num_beams': 2, 'frequency_penalty': 1.0}": "beams have penalties",
}
# What pagewheel.openvino_genai accepts, as the peer does, and pagewheel refuses.
ONLY_PAGEWHEEL = {
    "{'max_new_tokens': '10'}": "a text is no number",
    "{'max_new_tokens': 10, 'temperature': '1'}": "a text is no number",
}


def differs(case: str, module: str) -> bool:
    return case in DIFFERENT or (module == "pagewheel" and case in ONLY_PAGEWHEEL)


def test_the_record_has_every_case() -> None:
    assert list(PEER) == [repr(case) for case in CASES]
    assert len(CASES) >= 100


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("case", PEER)
def test_keywords_are_judged_as_by_openvino_genai(case: str, module: str) -> None:
    ours = MODULES[module][case]["keywords"]
    if differs(case, module) and case != "{'max_new_tokens': None}":
        assert ours != PEER[case]["keywords"]
    else:
        assert ours == PEER[case]["keywords"]


# Set one by one, what eos_token_id is stops in pagewheel without being in stop_token_ids.
ONE_BY_ONE = {"{'eos_token_id': 1}", "{'eos_token_id': 1, 'stop_token_ids': {2}}"}


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("case", [case for case in PEER if case not in DIFFERENT])
def test_attributes_are_judged_as_by_openvino_genai(case: str, module: str) -> None:
    ours = MODULES[module][case]["attributes"]
    not_settable = {"{'max_new_tokens': '10'}", "{'max_new_tokens': 10, 'temperature': '1'}"}
    expected = module == "pagewheel" and case in ONE_BY_ONE | (ONLY_PAGEWHEEL.keys() - not_settable)
    assert (ours == PEER[case]["attributes"]) != expected


def test_what_is_refused_is_a_value_error_and_a_runtime_error() -> None:
    for kind in (ValueError, RuntimeError, pagewheel.InvalidArgumentError):
        with pytest.raises(kind, match="top_p is 2"):
            pagewheel.GenerationConfig(do_sample=True, max_new_tokens=1, top_p=2.0).validate()


def test_every_eos_token_that_is_set_stops() -> None:
    config = pagewheel.GenerationConfig(eos_token_id=5)
    assert config.stop_token_ids == {5}
    config.set_eos_token_id(7)
    config.set_eos_token_id(8)
    assert (config.eos_token_id, config.stop_token_ids) == (8, {5, 7, 8})
