"""Values of generation parameters that are refused by name, and the infinity that is not."""

from __future__ import annotations

import math

import pytest

import pagewheel


def test_a_bias_of_minus_infinity_is_a_ban() -> None:
    config = pagewheel.GenerationConfig(logit_bias={1: -math.inf}, max_new_tokens=1)
    config.validate()
    assert config.logit_bias == {1: -math.inf}


@pytest.mark.parametrize("bias", [math.inf, math.nan])
def test_other_biases_without_json_are_refused_by_their_token(bias: float) -> None:
    with pytest.raises(ValueError, match=f"logit_bias of token 1 is {bias}; allowed: -100 to 100"):
        pagewheel.GenerationConfig(logit_bias={1: bias}, max_new_tokens=1).validate()


def test_an_empty_list_of_allowed_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'allowed_token_ids' is .*; allowed: lists of at least"):
        pagewheel.GenerationConfig(allowed_token_ids=[])


def test_a_refused_salt_is_not_repeated() -> None:
    with pytest.raises(ValueError, match="of 1001 bytes; allowed: at most 1000") as refused:
        pagewheel.GenerationConfig(cache_salt="s" * 1001, max_new_tokens=1).validate()
    assert "sss" not in str(refused.value)
