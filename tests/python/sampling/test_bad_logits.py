"""Models whose weights hold what is no number: an error says so, and ends nobody else's request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import F32, batching_pipeline, drain, greedy
from convert import tiny_llama

import pagewheel
from pagewheel.convert import convert

BAD = 100  # the token whose embedding is no number
GOOD_PROMPTS = [list(range(10, 10 + length)) for length in (5, 20, 40)]
BAD_PROMPTS = [[10, 11, 12, BAD, 13], [BAD, *range(10, 60)]]


def write_model(folder: Path, edit: Any) -> Path:
    path = tiny_llama.write(folder / "model.gguf", kind=tiny_llama.Kind.F32, tied=False, edit=edit)
    return convert(path, folder / "converted", progress=False)


def set_row(name: str, row: int, value: float) -> Any:
    def edit(tensors: dict[str, np.ndarray[Any, Any]]) -> None:
        tensors[name][row] = value

    return edit


@pytest.fixture(scope="module", params=[np.nan, np.inf], ids=["nan", "inf"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    edit = set_row("token_embd.weight", BAD, request.param)
    return write_model(tmp_path_factory.mktemp("bad"), edit)


def configs() -> list[pagewheel.GenerationConfig]:
    sampled = {"do_sample": True, "rng_seed": 1}
    return [
        greedy(6),
        greedy(6, **sampled),
        greedy(6, top_k=5, **sampled),
        greedy(6, top_p=0.9, **sampled),
        greedy(6, num_return_sequences=3, **sampled),
        greedy(6, num_beams=3, num_return_sequences=2),
        greedy(6, echo=True, logprobs=1),
    ]


@pytest.mark.parametrize("properties", [F32, {}], ids=["f32", "default"])
def test_a_request_whose_logits_are_no_numbers_ends_alone(
    folder: Path, properties: dict[str, str]
) -> None:
    alone = batching_pipeline(folder, properties)
    expected = [alone.generate([p], [greedy(6)])[0].m_generation_ids for p in GOOD_PROMPTS]

    pipeline = batching_pipeline(folder, properties, enable_prefix_caching=True)
    for _ in range(2):  # the second time in blocks that what is no number was in
        good = [pipeline.add_request(i, p, greedy(6)) for i, p in enumerate(GOOD_PROMPTS)]
        bad = [
            pipeline.add_request(10 + 10 * i + j, prompt, config)
            for i, prompt in enumerate(BAD_PROMPTS)
            for j, config in enumerate(configs())
        ]
        drain(pipeline)
        assert [[out.generated_ids for out in handle.read_all()] for handle in good] == expected
        for handle in bad:
            assert handle.get_status() == pagewheel.GenerationStatus.CANCEL
            with pytest.raises(
                RuntimeError, match=r"cancelled: the model computed a logit of -?nan"
            ):
                handle.read_all()
        assert pipeline.get_metrics().cache_usage == 0


@pytest.mark.parametrize(
    ("tensor", "row", "token"), [("output_norm.weight", 3, 0), ("output.weight", 77, 77)]
)
def test_generate_names_the_first_logit_that_is_no_number(
    tmp_path: Path, tensor: str, row: int, token: int
) -> None:
    """If it is one alone, the others may look sound; probabilities beside it are not."""
    folder = write_model(tmp_path, set_row(tensor, row, np.nan))
    pipeline = pagewheel.LLMPipeline(folder, "CPU", F32)
    for config in configs():
        with pytest.raises(RuntimeError, match=rf"computed a logit of -?nan for token {token}\b"):
            pipeline.generate(np.array(GOOD_PROMPTS[0]), config)


@pytest.mark.parametrize("timeout", [1e9, 1e10, 1e19, 3e38, float("inf")])
def test_a_long_timeout_ends_nothing(tiny_folder: Path, timeout: float) -> None:
    config = greedy(5)
    config.timeout = timeout
    pipeline = batching_pipeline(tiny_folder)
    result = pipeline.generate([[10, 11, 12]], [config])[0]
    assert result.m_status == pagewheel.GenerationStatus.FINISHED
    assert len(result.m_generation_ids[0]) == 5


def test_the_lowest_temperature_is_greedy(f32_pipeline: pagewheel.LLMPipeline) -> None:
    prompt = np.array([504, 5345, 282])
    expected = f32_pipeline.generate(prompt, greedy(12)).tokens
    for temperature in (1e-30, 1e-39, 1e-45):
        config = greedy(12, do_sample=True, temperature=temperature)
        assert f32_pipeline.generate(prompt, config).tokens == expected
