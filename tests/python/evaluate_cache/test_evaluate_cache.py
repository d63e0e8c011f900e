"""`pagewheel evaluate-cache`: its samples, its numbers and its files."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pagewheel.cli.app import app
from pagewheel.evaluate_cache.report import mean_and_error
from pagewheel.evaluate_cache.run import FULL, Evaluation, Plan, Setting, _row
from pagewheel.evaluate_cache.tasks import TASKS
from pagewheel.evaluate_cache.texts import code, prose

POLICY = """
import pagewheel

class Oldest(pagewheel.EvictionPolicy):
    def drop(self, view, count):
        return list(range(view.first_unit, view.first_unit + count))
"""


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["evaluate-cache", *map(str, arguments)])
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def evaluation(shallow_folder: Path) -> Evaluation:
    return Evaluation(shallow_folder, Plan(samples=4, tokens=384))


@pytest.mark.parametrize("name", TASKS)
def test_a_prompt_has_the_length_asked_for_and_holds_its_answers(
    evaluation: Evaluation, name: str
) -> None:
    samples = evaluation.samples(name)
    assert evaluation.samples(name) == samples  # by the seed
    for sample in samples:
        assert abs(len(sample.prompt) - 384) < 20
        assert sample.score(evaluation.tokenizer.decode(sample.prompt)) == 1
    assert len({sample.answers for sample in samples}) > 1


def test_texts_to_tune_on_and_to_test_on_have_next_to_nothing_in_common() -> None:
    """Paragraphs of the manual quote each other in part."""
    for text in (prose, code):
        tuning, test = text("tuning"), text("test")
        pieces = [test[i : i + 200] for i in range(0, len(test) - 200, 200)]
        assert sum(piece in tuning for piece in pieces) <= len(pieces) / 100
    assert Plan(which="tuning").seed != Plan(which="test").seed


def test_the_full_cache_agrees_with_itself_and_a_small_one_does_not(
    evaluation: Evaluation,
) -> None:
    def numbers(setting: Setting) -> tuple[list[float], list[float]]:
        recorders = evaluation.continued("prose", setting, lambda _done: None)
        return [one.agreement() for one in recorders], [one.divergence() for one in recorders]

    assert numbers(Setting(FULL)) == ([1.0] * 4, [0.0] * 4)
    agreement, divergence = numbers(Setting("streaming", 0.25))
    assert min(agreement) < 1 and all(0 < each < 20 for each in divergence)


def test_the_divergence_of_likely_tokens_is_close_to_that_of_all() -> None:
    random = np.random.default_rng(1)
    a = (random.standard_normal(1000) * 4).astype(np.float32)
    b = (a + random.standard_normal(1000)).astype(np.float32)
    p, q = (np.exp(x.astype(np.float64)) / np.exp(x.astype(np.float64)).sum() for x in (a, b))
    exact = float(np.sum(p * np.log(p / q)))
    row = _row(a)
    other = _row(b, row.tokens)
    got = float(np.sum(np.exp(row.logs) * (row.logs - other.logs)))
    assert 0.9 * exact < got <= exact


def test_a_decision_waits_for_answers_and_not_while_a_prompt_is_read() -> None:
    for while_reading in (False, True):
        config = Setting("norm_sum,decision_delay=8", 0.5).config(Plan(), while_reading)
        assert config is not None
        assert config.decision_delay == (0 if while_reading else 8)
        assert config.evict_during_prefill == while_reading


def test_errors_are_those_of_means() -> None:
    mean, error = mean_and_error([0.0, 1.0, 1.0, 0.0])
    assert mean == 0.5
    assert error == pytest.approx(math.sqrt(1 / 3 / 4))
    assert mean_and_error([3.0]) == (3.0, 0.0)


def test_the_command_measures_each_cell_once_and_writes_table_file_and_chart(
    tiny_folder: Path, tmp_path: Path
) -> None:
    mine, file, chart = tmp_path / "mine.py", tmp_path / "q.json", tmp_path / "q.svg"
    mine.write_text(POLICY)
    options = [tiny_folder, "--samples", 2, "--tokens", 256, "--new-tokens", 4, "-o", file]
    options += ["--chart", chart, "--budget", 0.5, "--policy", "norm_sum,score_pooling=1"]
    status, output = run(*options, "--only", "passkey", "--only", "prose")
    assert status == 0, output
    rows = [line.split(" | ")[0] for line in output.splitlines()]
    assert rows[2:] == ["| full", "| norm_sum,score_pooling=1 0.5"]
    before = json.loads(file.read_text())["results"]
    assert len(before["passkey"]["norm_sum,score_pooling=1 0.5"]) == 2
    status, output = run(
        *options, "--policy", f"{mine}:Oldest", "--only", "passkey", "--only", "stream"
    )
    assert status == 0, output
    after = json.loads(file.read_text())["results"]
    assert after["prose KL"] == before["prose KL"]
    assert f"{mine}:Oldest 0.5" in after["passkey"]
    assert after["perplexity beyond"] and FULL not in after["perplexity beyond"]
    assert chart.read_text().count("passkey") == 1 and "full cache" in chart.read_text()
    status, output = run(*options, "--start-size", 64)
    assert status == 2 and "start_size" in output


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--policy", "nothing"], "norm_sum"),
        (["--policy", "norm_sum,depth=3"], "depth"),
        (["--policy", "norm_sum,depth"], "KEY=VALUE"),
        (["--policy", "nowhere.py:Mine"], "nowhere.py"),
        (["--budget", "1.5"], "1.5"),
        (["--budget", "0.1"], "max_cache_size"),
        (["--only", "everything"], "passkey"),
        (["--texts", "all"], "tuning"),
    ],
)
def test_wrong_usage_is_named(tiny_folder: Path, arguments: list[str], named: str) -> None:
    status, output = run(tiny_folder, *arguments)
    assert status == 2 and named in output
