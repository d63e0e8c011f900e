"""Cache eviction by --eviction."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from command_line import invoke

from pagewheel.cli.chat import open_pipeline
from pagewheel.options import eviction_arguments, scheduler_with

SIZES = "start=32,recent=64,max=192"


def test_sizes_rotation_and_policy_are_those_that_were_given() -> None:
    text = f"{SIZES},rotate,positions=500,delay=8,policy=streaming,granularity=token"
    found = eviction_arguments(text)
    scheduler = scheduler_with(found)
    config = scheduler.cache_eviction_config
    assert scheduler.use_cache_eviction
    assert (config.get_start_size(), config.get_recent_size()) == (32, 64)
    assert config.get_max_cache_size() == 192
    assert (config.decision_delay, config.position_limit) == (8, 500)
    assert config.apply_rotation
    assert not config.evict_during_prefill
    assert not scheduler_with(eviction_arguments(SIZES)).cache_eviction_config.apply_rotation
    assert eviction_arguments(None) == {}


WRONG = [
    ("", "expected"),
    ("on", "'on'"),
    ("start=32,recent=64", "max missing"),
    ("max=192", "start, recent missing"),
    (f"{SIZES},max=200", "'max' is there twice"),
    (f"{SIZES},rotate,rotate", "'rotate' is there twice"),
    (f"{SIZES},positions=500", "position_limit is 500; allowed: 0 without apply_rotation"),
    ("start=-1,recent=64,max=192", "start is '-1'"),
    ("start=1.5,recent=64,max=192", "start is '1.5'"),
    ("start=32,recent=64,max=99999999999999999999", "max is '9999"),
    ("start=32,recent=64,max=2147483648", "max is '2147483648'"),
    ("start=32,recent=64,max=96", "max_cache_size is 96"),
    ("start=\u0663,recent=64,max=96", "allowed: 0 to"),
    (f"{SIZES},rotate=1", "'rotate=1'"),
    (f"{SIZES},prefill=0", "'prefill=0'"),
    (f"{SIZES},policy=", "'policy='"),
    (f"{SIZES},policy=guess", "policy is 'guess'"),
    (f"{SIZES},granularity=word", "granularity is 'word'"),
    (f"{SIZES},", "''"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_wrong_values_are_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(typer.BadParameter) as error:
        eviction_arguments(text)
    assert message in str(error.value)


@pytest.mark.parametrize("command", [["generate", "hello"], ["chat"], ["serve"]])
def test_commands_end_with_the_option_and_its_value(command: list[str]) -> None:
    result = invoke(*command, "--eviction", "start=32,recent=64,max=96")
    assert result.exit_code == 2
    told = " ".join(result.stderr.replace("│", " ").split())
    assert "--eviction" in told
    assert "max_cache_size is 96" in told


def test_a_model_on_a_server_has_no_eviction_of_ours() -> None:
    result = invoke("chat", "--server", "http://127.0.0.1:1", "--eviction", SIZES)
    assert result.exit_code == 2
    assert "--eviction" in result.stderr


def test_a_pipeline_evicts_as_it_is_told(tiny_folder: Path) -> None:
    def most_used(eviction: str | None) -> float:
        pipeline = open_pipeline(tiny_folder, "CPU", {}, eviction_arguments(eviction))
        pipeline.generate("a" * 100, max_new_tokens=600, ignore_eos=True)
        return float(pipeline.get_metrics().max_cache_usage)

    assert 0 < most_used(f"{SIZES},rotate") < most_used(None) / 2


def test_a_chat_goes_on_beyond_the_context_where_prompts_are_evicted_from(
    tiny_folder: Path,
) -> None:
    text = "a" * 6000  # a token each; the model's context is 4,096
    told = open_pipeline(tiny_folder, "CPU", {}, eviction_arguments(f"{SIZES},rotate"))
    with pytest.raises(ValueError, match=r"context holds 4096.*evict_during_prefill"):
        told.generate(text, max_new_tokens=4)
    arguments = eviction_arguments(f"{SIZES},rotate,prefill")
    answer = open_pipeline(tiny_folder, "CPU", {}, arguments).generate(
        [text], max_new_tokens=4, ignore_eos=True
    )
    assert answer.perf_metrics.get_num_input_tokens() > 6000
    assert answer.perf_metrics.get_num_generated_tokens() == 4
