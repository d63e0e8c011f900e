"""Streaming of every sequence, without lag: with each token comes all text that it made certain."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from conftest import batching_pipeline, greedy
from fuzzing import TIMES

import pagewheel

Tokens = npt.NDArray[np.int64]
Logits = npt.NDArray[np.float32]
PROMPTS = [[10, 20, 30], [40, 50], [60, 61, 62, 63]]


@pytest.fixture(scope="module")
def tiny(tiny_folder: Path) -> pagewheel.ContinuousBatchingPipeline:
    return batching_pipeline(tiny_folder)


def test_every_sequence_of_a_batch_streams_what_it_results_in(
    tiny: pagewheel.ContinuousBatchingPipeline,
) -> None:
    texts: dict[tuple[int, int], str] = defaultdict(str)
    tokens: dict[tuple[int, int], list[int]] = defaultdict(list)
    reasons: dict[tuple[int, int], list[pagewheel.GenerationFinishReason]] = defaultdict(list)

    def callback(news: pagewheel.StreamedOutput) -> None:
        key, output = (news.prompt, news.sequence), news.output
        texts[key] += output.text
        tokens[key] += output.generated_ids
        assert len(output.generated_log_probs) == len(output.generated_ids)
        assert len(output.top_log_probs) == len(output.generated_ids)
        if output.finish_reason != pagewheel.GenerationFinishReason.NONE:
            reasons[key].append(output.finish_reason)

    config = greedy(20, num_return_sequences=2, do_sample=True, rng_seed=3, logprobs=2)
    results = tiny.generate(PROMPTS, config, pagewheel.OutputStreamer(callback))
    tokenizer = tiny.get_tokenizer()
    for prompt, result in enumerate(results):
        for sequence, generated in enumerate(result.m_generation_ids):
            assert tokens[prompt, sequence] == generated
            assert texts[prompt, sequence] == tokenizer.decode(generated)
            assert reasons[prompt, sequence] == [pagewheel.GenerationFinishReason.LENGTH]
    assert len(texts) == 6


def test_it_streams_from_texts_and_a_chat_too(tiny_folder: Path) -> None:
    pipeline = pagewheel.LLMPipeline(tiny_folder, "CPU")
    for inputs in ("Hello", ["Hello", "again"]):
        texts = ["", ""]

        def callback(news: pagewheel.StreamedOutput, texts: list[str] = texts) -> None:
            texts[news.prompt] += news.output.text

        result = pipeline.generate(
            inputs,
            max_new_tokens=8,
            ignore_eos=True,
            apply_chat_template=False,
            streamer=pagewheel.OutputStreamer(callback),
        )
        assert texts[0] == (result if isinstance(result, str) else result.texts[0])


def test_its_answer_ends_the_sequences_of_that_prompt(
    tiny: pagewheel.ContinuousBatchingPipeline,
) -> None:
    def callback(news: pagewheel.StreamedOutput) -> pagewheel.StreamingStatus:
        stops = news.prompt == 1 and len(news.output.generated_ids) > 0
        return pagewheel.StreamingStatus.STOP if stops else pagewheel.StreamingStatus.RUNNING

    results = tiny.generate(PROMPTS, greedy(20), pagewheel.OutputStreamer(callback))
    assert [len(result.m_generation_ids[0]) for result in results] == [20, 1, 20]
    assert results[1].m_finish_reasons == [pagewheel.GenerationFinishReason.STOP]


def test_what_it_raises_reaches_the_caller_and_ends_the_whole_call(
    tiny: pagewheel.ContinuousBatchingPipeline,
) -> None:
    def callback(news: pagewheel.StreamedOutput) -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        tiny.generate(PROMPTS, greedy(20), pagewheel.OutputStreamer(callback))
    assert tiny.get_metrics().requests == 0


def test_other_streamers_say_what_takes_several_sequences(
    tiny: pagewheel.ContinuousBatchingPipeline,
) -> None:
    with pytest.raises(ValueError, match=r"there are 3 prompts .*; an OutputStreamer takes them"):
        tiny.generate(PROMPTS, greedy(2), lambda text: None)
    with pytest.raises(ValueError, match="num_beams is 2"):
        tiny.generate(PROMPTS, greedy(2, num_beams=2), pagewheel.OutputStreamer(lambda news: None))


def is_undecided(held: str, stops: list[str]) -> bool:
    """Whether a later token may change the text: half a character, a space, a stop string begun."""
    if held.rstrip("\ufffd ") == "":
        return True
    return any(stop.startswith(held.rstrip("\ufffd ")) for stop in stops)


@pytest.mark.parametrize("stops", [[], ["abc", "the end", "e e"]], ids=["plain", "stops"])
def test_text_comes_with_the_token_that_makes_it_certain(
    shallow_folder: Path, stops: list[str]
) -> None:
    """Of random tokens, forced by a processor: emoji, bytes, spaces and beginnings of stops."""
    pipeline = batching_pipeline(shallow_folder, {})
    tokenizer = pipeline.get_tokenizer()
    pieces = ["🎉", "Grüße", "the ", "ab", " e", "日本語", "don't", "\n\n", "e", " the en"]
    among = [t for piece in pieces for t in tokenizer.encode(piece).input_ids.data[0].tolist()]
    rng = random.Random(len(stops))

    def check(script: list[int]) -> None:
        done: list[int] = []
        shown: list[str] = []

        def force(token_ids: Tokens, logits: Logits) -> None:
            logits[script[len(token_ids) - 2]] = 1e6

        def callback(news: pagewheel.StreamedOutput) -> None:
            shown.append(news.output.text)
            done.extend(news.output.generated_ids)
            text, so_far = tokenizer.decode(done), "".join(shown)
            assert text.startswith(so_far), (so_far, text)
            if news.output.finish_reason != pagewheel.GenerationFinishReason.STOP:
                assert is_undecided(text[len(so_far) :], stops), (so_far, text)

        config = greedy(60, logits_processors=[force], stop_strings=set(stops))
        pipeline.generate([[504, 28]], config, pagewheel.OutputStreamer(callback))
        assert len(done) > 3

    for _ in range(3 * TIMES):
        check([rng.choice(among) for _ in range(60)])
