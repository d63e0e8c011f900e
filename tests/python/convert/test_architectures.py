"""Every architecture computes what transformers computes, from the same safetensors."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
import torch
from conftest import F32, greedy
from test_decoder_graph import Decoder, relative

import pagewheel
from pagewheel.convert import convert

TEXT = tiny_models.random_ids(300)
NAMES = [name for name in tiny_models.ARCHITECTURES if not name.endswith("-even")]


@pytest.fixture(scope="module", params=NAMES)
def model(request: pytest.FixtureRequest) -> Any:
    model = tiny_models.make(request.param)
    # OpenVINO's attention has no soft cap: see the test of what that costs.
    for layer in model.model.layers:
        if getattr(layer.self_attn, "attn_logit_softcapping", None):
            layer.self_attn.attn_logit_softcapping = None
    return model


@pytest.fixture(scope="module")
def folder(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tiny_models.save(model, tmp_path_factory.mktemp("source"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return convert(source, tmp_path_factory.mktemp("converted") / "model", progress=False)


@pytest.fixture(scope="module")
def expected(model: Any) -> Any:
    return tiny_models.logits(model, TEXT)


def test_prefill_and_decode_give_the_logits_of_transformers(folder: Path, expected: Any) -> None:
    decoder = Decoder(folder)
    got = [decoder(TEXT[:230])] + [decoder([token]) for token in TEXT[230:]]
    error = relative(np.concatenate(got), expected)
    print(f"{error:.1e}")
    assert error < 1e-4


@pytest.mark.parametrize("backend", ["native", "openvino"])
def test_paged_attention_gives_the_tokens_of_transformers(
    folder: Path, model: Any, expected: Any, backend: str
) -> None:
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
    np.testing.assert_allclose(output.prompt_log_probs, of_prompt, atol=2e-4)
    # Where every token is the reference's best after the same tokens, both went one way.
    generated = list(output.generated_ids)
    assert len(generated) == 64
    logits = tiny_models.logits(model, TEXT + generated)[len(TEXT) - 1 : -1]
    assert generated == logits.argmax(-1).tolist()
