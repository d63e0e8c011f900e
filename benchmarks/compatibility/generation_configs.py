"""Parameters of a GenerationConfig, each set with openvino_genai's verdict and ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

CASES: Sequence[Mapping[str, Any]] = (
    {},
    {"max_new_tokens": 10},
    {"max_length": 10},
    {"eos_token_id": 1},
    {"stop_token_ids": {1}},
    {"stop_strings": {"a"}},
    {"ignore_eos": True},
    {"ignore_eos": True, "eos_token_id": 1},
    {"ignore_eos": True, "max_length": 3},
    {"ignore_eos": True, "max_new_tokens": 3},
    {"ignore_eos": True, "stop_strings": {"a"}},
    {"max_new_tokens": 0},
    {"max_new_tokens": 0, "echo": True},
    {"max_new_tokens": 0, "max_length": 5},
    {"max_length": 0},
    {"max_length": 0, "max_new_tokens": 5},
    {"max_length": 0, "echo": True},
    {"max_new_tokens": 1, "min_new_tokens": 1},
    {"max_new_tokens": 1, "min_new_tokens": 2},
    {"max_length": 1, "min_new_tokens": 2},
    {"stop_token_ids": {1}, "min_new_tokens": 5},
    {"stop_strings": {"a"}, "min_new_tokens": 5},
    {"max_new_tokens": 3.0},
    {"max_new_tokens": 10, "top_k": 1.0},
    {"max_new_tokens": 10, "top_k": 1.5},
    {"max_new_tokens": -1},
    {"max_new_tokens": "10"},
    {"max_new_tokens": None},
    {"max_new_tokens": True},
    {"max_new_tokens": 10, "stop_token_ids": {-1}},
    {"max_new_tokens": 10, "stop_token_ids": [1]},
    {"max_new_tokens": 10, "stop_strings": ["a"]},
    {"max_new_tokens": 10, "stop_strings": {""}},
    {"max_new_tokens": 10, "stop_strings": set()},
    {"max_new_tokens": 10, "stop_token_ids": set()},
    {"max_new_tokens": 10, "eos_token_id": -1},
    {"max_new_tokens": 10, "eos_token_id": -2},
    {"eos_token_id": 1, "stop_token_ids": {2}},
    {"max_new_tokens": 10, "temperature": 0.0},
    {"max_new_tokens": 10, "temperature": -1.0},
    {"max_new_tokens": 10, "temperature": 0.0, "do_sample": True},
    {"max_new_tokens": 10, "temperature": -1.0, "do_sample": True},
    {"max_new_tokens": 10, "temperature": 1},
    {"max_new_tokens": 10, "temperature": 2.5, "do_sample": True},
    {"max_new_tokens": 10, "top_p": 0.0},
    {"max_new_tokens": 10, "top_p": 1.5},
    {"max_new_tokens": 10, "top_p": 0.0, "do_sample": True},
    {"max_new_tokens": 10, "top_p": 1.5, "do_sample": True},
    {"max_new_tokens": 10, "top_p": 1, "do_sample": True},
    {"max_new_tokens": 10, "top_p": -0.1, "do_sample": True},
    {"max_new_tokens": 10, "top_k": 0},
    {"max_new_tokens": 10, "top_k": 0, "do_sample": True},
    {"max_new_tokens": 10, "top_k": -1, "do_sample": True},
    {"max_new_tokens": 10, "top_k": 5, "do_sample": True},
    {"max_new_tokens": 10, "min_p": 1.0},
    {"max_new_tokens": 10, "min_p": 1.0, "do_sample": True},
    {"max_new_tokens": 10, "min_p": -0.1, "do_sample": True},
    {"max_new_tokens": 10, "min_p": -0.1},
    {"max_new_tokens": 10, "min_p": 0.5, "do_sample": True},
    {"max_new_tokens": 10, "repetition_penalty": 0.0},
    {"max_new_tokens": 10, "repetition_penalty": -1.0},
    {"max_new_tokens": 10, "repetition_penalty": 0.0, "do_sample": True},
    {"max_new_tokens": 10, "repetition_penalty": 1.2},
    {"max_new_tokens": 10, "presence_penalty": 2.1},
    {"max_new_tokens": 10, "presence_penalty": -2.0},
    {"max_new_tokens": 10, "frequency_penalty": -2.1},
    {"max_new_tokens": 10, "frequency_penalty": 2.0},
    {"max_new_tokens": 10, "num_return_sequences": 0},
    {"max_new_tokens": 10, "num_return_sequences": 2},
    {"max_new_tokens": 10, "num_return_sequences": 2, "do_sample": True},
    {"max_new_tokens": 10, "num_return_sequences": 2, "num_beams": 2},
    {"max_new_tokens": 10, "num_return_sequences": 3, "num_beams": 2},
    {"max_new_tokens": 10, "num_beams": 0},
    {"max_new_tokens": 10, "num_beams": 2},
    {"max_new_tokens": 10, "num_beams": 2, "do_sample": True},
    {"max_new_tokens": 10, "num_beams": 2, "no_repeat_ngram_size": 0},
    {"max_new_tokens": 10, "no_repeat_ngram_size": 0},
    {"max_new_tokens": 10, "num_beams": 2, "no_repeat_ngram_size": 2},
    {"max_new_tokens": 10, "num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 1.0},
    {"max_new_tokens": 10, "num_beams": 4, "num_beam_groups": 2},
    {"max_new_tokens": 10, "num_beams": 4, "num_beam_groups": 3, "diversity_penalty": 1.0},
    {"max_new_tokens": 10, "num_beams": 4, "diversity_penalty": 1.0},
    {"max_new_tokens": 10, "num_beams": 4, "diversity_penalty": -1.0},
    {"max_new_tokens": 10, "num_beams": 4, "num_beam_groups": 2, "diversity_penalty": -1.0},
    {"max_new_tokens": 10, "num_beam_groups": 2},
    {"max_new_tokens": 10, "num_beam_groups": 2, "do_sample": True},
    {"max_new_tokens": 10, "diversity_penalty": 1.0},
    {"max_new_tokens": 10, "length_penalty": 2.0},
    {"max_new_tokens": 10, "num_beams": 2, "length_penalty": -2.0},
    {"max_new_tokens": 10, "num_beam_groups": 0},
    {"max_new_tokens": 10, "num_beams": 2, "temperature": 0.5},
    {"max_new_tokens": 10, "num_beams": 2, "top_p": 0.5},
    {"max_new_tokens": 10, "num_beams": 2, "top_k": 5},
    {"max_new_tokens": 10, "num_beams": 2, "repetition_penalty": 1.5},
    {"max_new_tokens": 10, "num_beams": 2, "presence_penalty": 1.0},
    {"max_new_tokens": 10, "num_beams": 2, "frequency_penalty": 1.0},
    {"max_new_tokens": 10, "num_beams": 2, "temperature": 0.0},
    {"max_new_tokens": 10, "num_beams": 2, "top_p": 0.0},
    {"max_new_tokens": 10, "temperature": 0.5},
    {"max_new_tokens": 10, "top_p": 0.5},
    {"max_new_tokens": 10, "top_k": 5},
    {"max_new_tokens": 10, "min_p": 0.5},
    {"max_new_tokens": 10, "logprobs": 5},
    {"max_new_tokens": 10, "rng_seed": 5},
    {"max_new_tokens": 10, "unknown_name": 1},
    {"max_new_tokens": 10, "do_sample": 1},
    {"max_new_tokens": 10, "temperature": "1"},
    {"max_new_tokens": 10, "temperature": True},
    {"max_new_tokens": 10, "echo": True},
    {"max_new_tokens": 10, "include_stop_str_in_output": True},
    {"max_new_tokens": 10, "apply_chat_template": False},
    {"max_new_tokens": 10, "num_beams": 1001},
    {"num_assistant_tokens": 3, "max_new_tokens": 3},
    {"assistant_confidence_threshold": 0.5, "max_new_tokens": 3},
    {"num_assistant_tokens": 3, "assistant_confidence_threshold": 0.5, "max_new_tokens": 3},
    {"max_ngram_size": 3, "max_new_tokens": 3},
    {"max_ngram_size": 3, "num_assistant_tokens": 3, "max_new_tokens": 3},
)


def verdicts(api: Any) -> dict[str, dict[str, bool]]:
    """By the case, whether module `api` accepts it as keywords and set one by one."""

    def is_accepted(make: Any) -> bool:
        try:
            make().validate()
        except (RuntimeError, TypeError, ValueError, AttributeError):
            return False
        return True

    def set_one_by_one(case: Mapping[str, Any]) -> Any:
        config = api.GenerationConfig()
        for name, value in case.items():
            setattr(config, name, value)
        return config

    return {
        repr(case): {
            "keywords": is_accepted(lambda case=case: api.GenerationConfig(**case)),
            "attributes": is_accepted(lambda case=case: set_one_by_one(case)),
        }
        for case in CASES
    }
