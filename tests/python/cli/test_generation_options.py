"""Parameters of generation on the command line: which are options, and what they become."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

import pagewheel
from pagewheel._pagewheel import generation_parameters
from pagewheel.cli.app import app
from pagewheel.cli.generation_options import (
    Sampling,
    generation_options,
    offered_parameters,
    spelling,
)
from pagewheel.parameters import apply_parameters


def applied(**given: object) -> pagewheel.GenerationConfig:
    config = pagewheel.GenerationConfig()
    apply_parameters(config, given)
    return config


def test_an_option_of_sampling_turns_sampling_on() -> None:
    config = applied(max_new_tokens=5, temperature=0.5)
    assert (config.max_new_tokens, config.do_sample, config.temperature) == (5, True, 0.5)
    assert not applied(max_new_tokens=5, repetition_penalty=1.5).do_sample


def test_greedy_wins_over_options_of_sampling() -> None:
    config = applied(do_sample=False, rng_seed=3)
    assert (config.do_sample, config.rng_seed) == (False, 3)


def test_beams_win_over_a_model_that_samples() -> None:
    config = pagewheel.GenerationConfig(do_sample=True)
    apply_parameters(config, {"num_beams": 3})
    assert (config.do_sample, config.num_beams) == (False, 3)


def options_of(command: str) -> dict[str, str]:
    """Help by option."""
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return {
        name: getattr(option, "help", None) or ""
        for option in group.commands[command].params
        for name in option.opts
    }


@pytest.mark.parametrize("command", ["generate", "chat"])
def test_every_parameter_of_generation_is_an_option_with_its_help(command: str) -> None:
    options = options_of(command)
    offered = offered_parameters(with_beams=command == "generate")
    assert len(offered) > 15
    for parameter in offered:
        text = options[spelling(parameter)]
        assert text.startswith(parameter.help), parameter.name
        assert parameter.allowed in text, parameter.name


def test_what_a_command_that_prints_one_text_has_no_use_for_is_no_option() -> None:
    offered = {parameter.name for parameter in offered_parameters()}
    assert offered < {each.name for each in generation_parameters()}
    assert not offered & {"logprobs", "num_return_sequences", "cache_salt"}


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        (["--top-p", "0.5"], "top_p", 0.5),
        (["--stop-strings", "a", "--stop-strings", "b"], "stop_strings", {"a", "b"}),
        (["--stop-token-ids", "7"], "stop_token_ids", {7}),
        (["--logit-bias", "7=-1.5", "--logit-bias", "8=2"], "logit_bias", {7: -1.5, 8: 2.0}),
        (["--bad-words", "a"], "bad_words", {"a"}),
        (["--stop-criteria", "NEVER"], "stop_criteria", pagewheel.StopCriteria.NEVER),
        (["--no-ignore-eos"], "ignore_eos", False),
        (["--ignore-eos"], "ignore_eos", True),
        (["--seed", str(2**64 - 1)], "rng_seed", 2**64 - 1),
        ([], "max_new_tokens", 3),
        (["--max-length", "9"], "max_length", 9),
        (["--max-length", "9"], "max_new_tokens", 2**64 - 1),
        (["--max-length", "9", "--max-new-tokens", "4"], "max_new_tokens", 4),
    ],
)
def test_options_become_parameters_of_their_types(
    given: list[str], name: str, value: object
) -> None:
    small = typer.Typer()
    seen: list[Sampling] = []

    @small.command()
    @generation_options(max_new_tokens=3)
    def command(sampling: Sampling) -> None:
        seen.append(sampling)

    result = CliRunner().invoke(small, given)
    assert result.exit_code == 0, result.output
    config = pagewheel.GenerationConfig()
    apply_parameters(config, seen[0].given)
    assert getattr(config, name) == value
