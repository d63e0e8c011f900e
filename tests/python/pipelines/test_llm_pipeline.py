"""LLMPipeline: inputs, streaming, chat, and bad input that harms nothing else."""

from __future__ import annotations

import _thread
import threading
from pathlib import Path

import numpy as np
import pytest
from conftest import greedy

import pagewheel

PROMPT = "Name the capital city of France."


def test_a_string_gives_text_through_the_chat_template(pipeline: pagewheel.LLMPipeline) -> None:
    text = pipeline.generate(PROMPT, max_new_tokens=20)
    assert isinstance(text, str)
    assert text == "The capital city of France is Paris."


def test_a_gguf_file_loads_directly(smollm2_gguf: Path) -> None:
    pipeline = pagewheel.LLMPipeline(smollm2_gguf)
    assert "Paris" in pipeline(PROMPT, max_new_tokens=20)


def test_inputs_of_every_kind_agree(f32_pipeline: pagewheel.LLMPipeline) -> None:
    tokenizer = f32_pipeline.get_tokenizer()
    history = pagewheel.ChatHistory([{"role": "user", "content": PROMPT}])
    rendered = tokenizer.apply_chat_template(history, add_generation_prompt=True)
    encoded = tokenizer.encode(rendered, add_special_tokens=False)
    ids = np.array(encoded.input_ids.data)
    text = f32_pipeline.generate(PROMPT, greedy(8))
    assert f32_pipeline.generate([PROMPT, PROMPT], greedy(8)).texts == [text, text]
    assert f32_pipeline.generate(history, greedy(8)).texts == [text]
    plain = greedy(8, apply_chat_template=False)
    for tokens in (encoded, encoded.input_ids, ids, ids[0], ids.tolist()):
        result = f32_pipeline.generate(tokens, plain)
        assert tokenizer.decode(result.tokens[0]) == text


def test_padding_in_a_batch_is_left_out(f32_pipeline: pagewheel.LLMPipeline) -> None:
    tokenizer = f32_pipeline.get_tokenizer()
    texts = ["Hello", "A much longer prompt than the first one"]
    for side in ("left", "right"):
        batch = tokenizer.encode(texts, padding_side=side)
        together = f32_pipeline.generate(batch, greedy(6)).tokens
        alone = [
            f32_pipeline.generate(tokenizer.encode(text), greedy(6)).tokens[0] for text in texts
        ]
        assert together == alone


def test_streamed_text_joins_to_the_result(pipeline: pagewheel.LLMPipeline) -> None:
    pieces: list[str] = []
    text = pipeline.generate("Write a line with emoji 🎉🎊 and ümläuts", greedy(60), pieces.append)
    assert "".join(pieces) == text
    assert len(pieces) > 5  # some tokens come together, where drafts were right
    assert not any("\ufffd" in piece for piece in pieces)


def test_a_streamer_may_stop_or_cancel(pipeline: pagewheel.LLMPipeline) -> None:
    for answer in (True, pagewheel.StreamingStatus.STOP, pagewheel.StreamingStatus.CANCEL):
        pieces: list[str] = []

        def stream(piece: str, pieces: list[str] = pieces, answer: object = answer) -> object:
            pieces.append(piece)
            return answer if len(pieces) == 3 else None

        pipeline.generate("Count to one hundred.", greedy(200), stream)
        assert 3 <= len(pieces) <= 4


class Collector(pagewheel.StreamerBase):
    def __init__(self) -> None:
        super().__init__()
        self.tokens: list[int] = []
        self.ended = 0

    def write(self, token: int | list[int]) -> pagewheel.StreamingStatus:
        self.tokens += token if isinstance(token, list) else [token]
        return pagewheel.StreamingStatus.RUNNING

    def end(self) -> None:
        self.ended += 1


def test_a_streamer_of_ones_own_gets_every_token(pipeline: pagewheel.LLMPipeline) -> None:
    collector = Collector()
    result = pipeline.generate(np.array([504, 5345]), greedy(10), collector)
    assert collector.tokens == result.tokens[0]
    assert collector.ended == 1


def test_text_streamer_prints_what_decode_gives(pipeline: pagewheel.LLMPipeline) -> None:
    pieces: list[str] = []
    streamer = pagewheel.TextStreamer(pipeline.get_tokenizer(), pieces.append)
    assert pipeline.generate(PROMPT, greedy(20), streamer) == "".join(pieces)


def test_an_exception_in_a_callback_reaches_the_caller(pipeline: pagewheel.LLMPipeline) -> None:
    class OwnError(Exception):
        pass

    def fail(piece: str) -> None:
        raise OwnError(piece)

    class Failing(Collector):
        def write(self, token: int | list[int]) -> pagewheel.StreamingStatus:
            raise OwnError

    for streamer in (fail, Failing()):
        with pytest.raises(OwnError):
            pipeline.generate(PROMPT, greedy(50), streamer)
        assert pipeline.get_metrics().requests == 0
        assert "Paris" in pipeline.generate(PROMPT, max_new_tokens=10)


def test_ctrl_c_ends_a_long_generation(pipeline: pagewheel.LLMPipeline) -> None:
    timer = threading.Timer(0.5, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        pipeline.generate("Write a very long story.", greedy(5000))
    timer.join()
    assert "Paris" in pipeline.generate(PROMPT, max_new_tokens=10)


def test_stop_strings_cut_text_and_stream(pipeline: pagewheel.LLMPipeline) -> None:
    whole = pipeline.generate("Count from one to ten in words.", greedy(60))
    stop = whole[15:19]
    before = whole[: whole.index(stop)]
    for include, expected in ((False, before), (True, before + stop)):
        pieces: list[str] = []
        config = greedy(60, stop_strings={stop}, include_stop_str_in_output=include)
        results = pipeline.generate(["Count from one to ten in words."], config, pieces.append)
        assert results.texts == [expected]
        assert "".join(pieces) == expected
        assert results.finish_reasons == [pagewheel.GenerationFinishReason.STOP]


def test_eos_ends_generation_unless_ignored(pipeline: pagewheel.LLMPipeline) -> None:
    ended = pipeline.generate([PROMPT], max_new_tokens=50)
    assert ended.finish_reasons == [pagewheel.GenerationFinishReason.STOP]
    assert ended.perf_metrics.get_num_generated_tokens() < 20
    ignored = pipeline.generate([PROMPT], greedy(50))
    assert ignored.perf_metrics.get_num_generated_tokens() == 50
    waiting = pipeline.generate([PROMPT], max_new_tokens=50, min_new_tokens=30)
    assert waiting.perf_metrics.get_num_generated_tokens() >= 30


def test_echo_puts_the_prompt_first(pipeline: pagewheel.LLMPipeline) -> None:
    text = pipeline.generate("One, two,", greedy(4, echo=True, apply_chat_template=False))
    assert text.startswith("One, two,")
    assert len(text) > len("One, two,")


def test_seeds_repeat_and_their_absence_does_not(f32_pipeline: pagewheel.LLMPipeline) -> None:
    def sample(**kwargs: object) -> str:
        return f32_pipeline.generate(
            "Tell me a story.", greedy(20, do_sample=True, temperature=1.5, **kwargs)
        )

    assert sample(rng_seed=11) == sample(rng_seed=11)
    assert sample() != sample()


def test_a_chat_remembers_its_turns(pipeline: pagewheel.LLMPipeline) -> None:
    turns = ["My name is Ada. Remember it.", "What is my name?"]
    pipeline.start_chat("You are brief.")
    answers = [pipeline.generate(turn, greedy(12)) for turn in turns]
    pipeline.finish_chat()
    history = pagewheel.ChatHistory([{"role": "system", "content": "You are brief."}])
    for turn, answer in zip(turns, answers, strict=True):
        history.append({"role": "user", "content": turn})
        assert pipeline.generate(history, greedy(12)).texts == [answer]
        history.append({"role": "assistant", "content": answer})


def test_metrics_describe_the_call(pipeline: pagewheel.LLMPipeline) -> None:
    metrics = pipeline.generate([PROMPT, "Hi"], greedy(10)).perf_metrics
    assert metrics.get_num_generated_tokens() == 20
    assert metrics.get_num_input_tokens() > 20
    assert 0 < metrics.get_ttft().mean < metrics.get_generate_duration().mean
    assert 0 < metrics.get_tpot().mean < metrics.get_generate_duration().mean
    assert len(metrics.raw_metrics.m_times_to_first_token) == 2
    assert sum(metrics.raw_metrics.m_batch_sizes) == 20
    assert metrics.get_load_time() > 0
    assert (metrics + metrics).get_num_generated_tokens() == 40


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"temperature": -1.0, "do_sample": True}, "temperature is -1"),
        ({"top_p": 0, "do_sample": True}, "top_p is 0"),
        ({"top_p": 2, "do_sample": True}, "top_p is 2"),
        ({"top_k": -1}, "top_k"),
        ({"num_return_sequences": 2}, "num_return_sequences is 2"),
        ({"max_tokens": 5}, "unknown generation parameter 'max_tokens'"),
        ({"stop_strings": {""}}, "empty string"),
        ({"temperature": "hot"}, "temperature"),
    ],
)
def test_bad_parameters_are_refused_by_name(
    pipeline: pagewheel.LLMPipeline, kwargs: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        pipeline.generate(PROMPT, **kwargs)
    assert "Paris" in pipeline.generate(PROMPT, max_new_tokens=10)


def test_bad_prompts_are_refused(pipeline: pagewheel.LLMPipeline) -> None:
    with pytest.raises(ValueError, match="prompt is empty"):
        pipeline.generate("", apply_chat_template=False)
    with pytest.raises(ValueError, match="context holds 8192"):
        pipeline.generate("word " * 9000)
    with pytest.raises(UnicodeEncodeError):
        pipeline.generate("\ud800")
    with pytest.raises(TypeError, match="must be integers"):
        pipeline.generate([1.5, 2.5])
    with pytest.raises(TypeError, match="must be integers"):
        pipeline.generate(object())
    with pytest.raises(ValueError, match="one prompt"):
        pipeline.generate(["a", "b"], greedy(2), lambda piece: None)
    with pytest.raises(TypeError, match="streamer must be"):
        pipeline.generate("a", greedy(2), 7)
    with pytest.raises(ValueError, match="role"):
        pipeline.generate(pagewheel.ChatHistory([{"content": "no role"}]))
    assert "Paris" in pipeline.generate(PROMPT, max_new_tokens=10)


def test_a_missing_device_is_refused_with_a_list(smollm2_folder: Path) -> None:
    with pytest.raises(ValueError, match=r"device 'GPU.7' is not available; available: .*CPU"):
        pagewheel.LLMPipeline(smollm2_folder, "GPU.7")


def test_a_bad_property_is_refused_by_name(smollm2_folder: Path) -> None:
    with pytest.raises(ValueError, match="NO_SUCH_PROPERTY"):
        pagewheel.LLMPipeline(smollm2_folder, "CPU", NO_SUCH_PROPERTY=1)
    with pytest.raises(TypeError, match="ODD"):
        pagewheel.LLMPipeline(smollm2_folder, "CPU", ODD=[1])


def test_missing_files_are_named(tmp_path: Path, smollm2_folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        pagewheel.LLMPipeline(tmp_path / "nowhere", "CPU")
    for name in ("openvino_model.xml", "openvino_model.bin"):
        (tmp_path / name).symlink_to(smollm2_folder / name)
    with pytest.raises(ValueError, match=r"openvino_tokenizer\.xml"):
        pagewheel.LLMPipeline(tmp_path, "CPU")


def test_programs_for_openvino_genai_run_with_the_import_changed(smollm2_folder: Path) -> None:
    """In the words of openvino_genai's own samples: names and call forms, not its code."""
    ov_genai = pagewheel
    pipe = ov_genai.LLMPipeline(str(smollm2_folder), "CPU")
    config = ov_genai.GenerationConfig()
    config.max_new_tokens = 10
    config.do_sample = True
    config.top_p = 0.9
    config.top_k = 30

    def streamer(subword: str) -> ov_genai.StreamingStatus:
        return ov_genai.StreamingStatus.RUNNING

    pipe.generate("The Sun is yellow because", config, streamer)
    history = ov_genai.ChatHistory()
    history.append({"role": "user", "content": "Hello"})
    results = pipe.generate(history, config, streamer)
    history.append({"role": "assistant", "content": results.texts[0]})
    assert len(history) == 2
    scheduler = ov_genai.SchedulerConfig()
    scheduler.cache_size = 1
    batching = ov_genai.ContinuousBatchingPipeline(str(smollm2_folder), scheduler, "CPU", {}, {})
    generated = batching.generate(["One", "Two"], [config, config])
    assert [len(result.get_generation_ids()) for result in generated] == [1, 1]
