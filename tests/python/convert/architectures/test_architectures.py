"""Every architecture computes what transformers computes, from the same safetensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import F32, greedy
from convert import tiny_models
from convert.stateful_decoder import Decoder, relative

import pagewheel
from pagewheel.convert import convert

TEXT = tiny_models.random_ids(300)
NAMES = [name for name in tiny_models.ARCHITECTURES if not name.endswith("-even")]


@pytest.fixture(scope="module", params=NAMES)
def model(request: pytest.FixtureRequest) -> Any:
    return tiny_models.make(request.param)


@pytest.fixture(scope="module")
def folder(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tiny_models.save(model, tmp_path_factory.mktemp("source"))
    return convert(source, tmp_path_factory.mktemp("converted") / "model", progress=False)


@pytest.fixture(scope="module")
def expected(model: Any) -> Any:
    return tiny_models.logits(model, TEXT)


@pytest.fixture(scope="module")
def expected_of_openvino(model: Any, expected: Any) -> Any:
    """OpenVINO's attention has no soft cap."""
    with tiny_models.without_attention_caps(model) as caps:
        return tiny_models.logits(model, TEXT) if caps else expected


def test_prefill_and_decode_give_the_logits_of_transformers(
    folder: Path, expected_of_openvino: Any
) -> None:
    decoder = Decoder(folder)
    got = [decoder(TEXT[:230])] + [decoder([token]) for token in TEXT[230:]]
    error = relative(np.concatenate(got), expected_of_openvino)
    print(f"{error:.1e}")
    assert error < 1e-4


def test_native_attention_gives_the_tokens_of_transformers(
    folder: Path, model: Any, expected: Any
) -> None:
    check_tokens(folder, "native", lambda ids: tiny_models.logits(model, ids), expected)


def test_openvinos_attention_gives_the_tokens_of_transformers(
    folder: Path, model: Any, expected_of_openvino: Any
) -> None:
    if model.config.model_type in tiny_models.WITH_STATES:
        pytest.skip("refused by name: test_states.py")
    with tiny_models.without_attention_caps(model):
        check_tokens(
            folder, "openvino", lambda ids: tiny_models.logits(model, ids), expected_of_openvino
        )


def check_tokens(
    folder: Path, backend: str, logits_of: Callable[[list[int]], Any], expected: Any
) -> None:
    """`expected` are the reference's logits of TEXT."""
    scheduler = pagewheel.SchedulerConfig()
    scheduler.max_num_batched_tokens = 128
    pipeline = pagewheel.ContinuousBatchingPipeline(
        folder, scheduler, "CPU", {**F32, "attention_backend": backend}
    )
    handle = pipeline.add_request(0, TEXT, greedy(64, logprobs=1, echo=True))
    while pipeline.has_non_finished_requests():
        pipeline.step()
    output = handle.read_all()[0]
    log_probs = torch.log_softmax(torch.from_numpy(expected).double(), 1).numpy()
    of_prompt = log_probs[np.arange(len(TEXT) - 1), TEXT[1:]]
    print(f"{np.abs(output.prompt_log_probs - of_prompt).max():.1e}")
    np.testing.assert_allclose(output.prompt_log_probs, of_prompt, atol=2e-4)
    # Where every token is the reference's best after the same tokens, both went one way.
    generated = list(output.generated_ids)
    assert len(generated) == 64
    logits = logits_of(TEXT + generated)[len(TEXT) - 1 : -1]
    assert generated == logits.argmax(-1).tolist()


def test_a_soft_cap_makes_attention_native_or_is_warned_of(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = convert(
        tiny_models.save(tiny_models.make("gemma2"), tmp_path / "source"),
        tmp_path / "model",
        progress=False,
    )
    counts = pagewheel._pagewheel.describe_operations(str(folder)).counts
    assert ("PagedAttention", "pagewheel", 2) in [(c.operation, c.runs_on, c.count) for c in counts]
    pagewheel.LLMPipeline(folder, "CPU")
    assert "soft cap" not in capfd.readouterr().err
    pagewheel.LLMPipeline(folder, "CPU", attention_backend="openvino")
    assert "OpenVINO's attention leaves out the soft cap" in capfd.readouterr().err
