"""Streamed text: joined it is what decode() gives, whatever the tokens and whoever decodes them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import openvino as ov
import pytest
from conftest import batching_pipeline, greedy
from fuzzing import TIMES
from openvino_tokenizers import convert_tokenizer
from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast
from waiting import eventually

import pagewheel

# What TextStreamer was given in a report: bytes that are no character before those of one.
REPORTED = [
    bytes([0x80, 0x80, 0x80, 0xF0, 0x9F, 0x98, 0x80]),
    bytes([0x80, 0x80, 0x80, 0xC3, 0xA9]),
]


def streamed(tokenizer: pagewheel.Tokenizer, tokens: Iterable[int], **options: object) -> str:
    pieces: list[str] = []
    streamer = pagewheel.TextStreamer(tokenizer, pieces.append, **options)
    for token in tokens:
        streamer.write(token)
    streamer.end()
    return "".join(pieces)


def byte_tokens(tokenizer: pagewheel.Tokenizer, form: str = "") -> list[int]:
    """Ids by byte value; `form` is how the vocabulary writes a byte, itself if it is empty."""
    vocabulary = tokenizer.get_vocab()
    names = [form.format(b).encode() if form else bytes([b]) for b in range(256)]
    return [vocabulary[name] if name in vocabulary else vocabulary[b"a"] for name in names]


def check_streams(tokenizer: pagewheel.Tokenizer, among: list[int], count: int, seed: int) -> None:
    """Sequences of tokens out of all and out of `among`, with runs of one token."""
    rng = random.Random(seed)
    size = len(tokenizer.get_vocab_vector())
    for _ in range(count * TIMES):
        tokens: list[int] = []
        share = rng.random()
        while len(tokens) < 60:
            token = rng.choice(among) if rng.random() < share else rng.randrange(size)
            tokens += [token] * (rng.randrange(30) if rng.random() < 0.05 else 1)
        for skip in (True, False):
            text = streamed(tokenizer, tokens, detokenization_params={"skip_special_tokens": skip})
            assert text == tokenizer.decode(tokens, skip_special_tokens=skip), tokens


@pytest.fixture(scope="module")
def tiny(tiny_folder: Path) -> pagewheel.ContinuousBatchingPipeline:
    return batching_pipeline(tiny_folder)


@pytest.fixture(scope="module")
def fallback_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SentencePiece vocabulary with bytes as its last resort, as transformers' Llama 2 has it,
    whose graph pagewheel did not write: it has operations of its own for bytes and spaces."""
    return write_tokenizer(tmp_path_factory.mktemp("fallback"), clean_up=False)


@pytest.fixture(scope="module")
def cleaning_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, whose decoder takes spaces away from before punctuation and contractions."""
    return write_tokenizer(tmp_path_factory.mktemp("cleaning"), clean_up=True)


def write_tokenizer(folder: Path, clean_up: bool) -> Path:
    words = [*"abnt'smrve.?!,\u2581", "\u2581a", "\u2581n", "\u2581'", "n't", "'s", "\u00e9"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    tokenizer = Tokenizer(
        models.BPE({token: i for i, token in enumerate(tokens)}, [], byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        clean_up_tokenization_spaces=clean_up,
    )
    # By transformers' own wish it would not for a vocabulary of merges.
    fast.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output = clean_up
    graphs = convert_tokenizer(fast, with_detokenizer=True)
    (folder / "openvino_model.xml").touch()  # a folder of OpenVINO's has one
    for graph, name in zip(graphs, ("tokenizer", "detokenizer"), strict=True):
        ov.save_model(graph, folder / f"openvino_{name}.xml", compress_to_fp16=False)
    return folder


def test_reported_bytes_stream_as_they_decode(smollm2_folder: Path) -> None:
    tokenizer = pagewheel.Tokenizer(smollm2_folder)
    ids = byte_tokens(tokenizer)
    for text in REPORTED:
        assert streamed(tokenizer, [ids[b] for b in text]) == text.decode(errors="replace")


@pytest.mark.parametrize("name", ["smollm2_folder", "tiny_folder"])
def test_any_tokens_of_a_byte_level_vocabulary_stream_as_they_decode(
    name: str, request: pytest.FixtureRequest
) -> None:
    tokenizer = pagewheel.Tokenizer(request.getfixturevalue(name))
    ids = byte_tokens(tokenizer)
    check_streams(tokenizer, ids[128:] + ids[32:35], 150, seed=1)


def test_any_tokens_with_byte_fallback_stream_as_they_decode(fallback_folder: Path) -> None:
    tokenizer = pagewheel.Tokenizer(fallback_folder)
    ids = byte_tokens(tokenizer, "<0x{:02X}>")
    assert tokenizer.decode([ids[b] for b in "é".encode()]) == "é"
    check_streams(tokenizer, ids[128:], 60, seed=2)


@pytest.mark.fuzz
def test_any_tokens_stream_as_they_decode_where_spaces_are_cleaned_up(
    cleaning_folder: Path,
) -> None:
    tokenizer = pagewheel.Tokenizer(cleaning_folder)
    vocabulary = tokenizer.get_vocab()
    words = [i for token, i in vocabulary.items() if not token.startswith(b"<")]
    ids = [vocabulary[token.encode()] for token in ("a", "\u2581n", "'", "t", "\u2581", ".")]
    assert tokenizer.decode(ids) == "an't."
    check_streams(tokenizer, words, 60, seed=3)


@pytest.mark.fuzz
def test_generated_text_streams_as_it_results(tiny: pagewheel.ContinuousBatchingPipeline) -> None:
    """The tiny model's weights are random, so what it says is mostly bytes that are no text."""
    stopped = 0
    for seed in range(150 * TIMES):
        stops = (
            {"\ufffd\ufffd"} if seed % 3 == 1 else {"e", "<|im_end|>"} if seed % 3 == 2 else set()
        )
        config = greedy(
            40,
            do_sample=True,
            temperature=3.0,
            rng_seed=seed,
            stop_strings=stops,
            include_stop_str_in_output=seed % 2 == 1,
            apply_chat_template=False,
        )
        pieces: list[str] = []
        result = tiny.generate([f"The {seed}"], [config], pieces.append)[0]
        text = result.m_generation_ids[0]
        assert "".join(pieces) == text
        # Without a streamer the text is decoded as a whole.
        assert tiny.generate([f"The {seed}"], [config])[0].m_generation_ids == [text]
        found = [stop for stop in stops if stop in text]
        stopped += result.m_finish_reasons[0] == pagewheel.GenerationFinishReason.STOP
        assert not found or (seed % 2 == 1 and any(text.endswith(stop) for stop in found))
    assert stopped > 20


def test_a_handles_text_in_pieces_is_what_its_tokens_decode_to(
    tiny: pagewheel.ContinuousBatchingPipeline,
) -> None:
    tokenizer = tiny.get_tokenizer()
    rng = random.Random(5)
    handles = []
    for i in range(40):
        config = greedy(
            20 + i, do_sample=True, temperature=3.0, rng_seed=i, num_return_sequences=1 + i % 3
        )
        handles.append(tiny.add_request(i, f"The {i}", config))
    texts: list[dict[int, str]] = [{} for _ in handles]
    tokens: list[dict[int, list[int]]] = [{} for _ in handles]

    def read(i: int) -> None:
        for index, output in handles[i].read_available(with_text=True).items():
            output.text.encode()  # never half a character
            texts[i][index] = texts[i].get(index, "") + output.text
            tokens[i][index] = tokens[i].get(index, []) + output.generated_ids

    while tiny.has_non_finished_requests():
        tiny.step()
        if rng.random() < 0.5:
            read(rng.randrange(len(handles)))
    for i, handle in enumerate(handles):
        read(i)
        assert not handle.can_read()
        whole = handle.outputs_so_far(with_text=True)
        assert len(whole) == 1 + i % 3
        for index, output in enumerate(whole):
            assert output.generated_ids == tokens[i][index]
            assert output.text == texts[i][index] == tokenizer.decode(output.generated_ids)
        assert [output.text for output in handle.outputs_so_far()] == [""] * len(whole)


def test_a_special_tokens_text_as_stop_string_ends_result_and_stream(
    pipeline: pagewheel.LLMPipeline,
) -> None:
    """Its text is not in the result otherwise; with include_stop_str_in_output it is asked for."""
    prompt = ["Name the capital city of France."]
    answer = "The capital city of France is Paris."
    for stop, include, expected in (
        ("<|im_end|>", False, answer),
        ("<|im_end|>", True, answer + "<|im_end|>"),
        (".<|im_end|>", False, answer[:-1]),
        (".<|im_end|>", True, answer + "<|im_end|>"),
    ):
        pieces: list[str] = []
        config = greedy(30, stop_strings={stop}, include_stop_str_in_output=include)
        result = pipeline.generate(prompt, config, pieces.append)
        assert result.texts == ["".join(pieces)] == [expected]
        assert result.finish_reasons == [pagewheel.GenerationFinishReason.STOP]


def test_generation_ends_where_a_stop_string_spans_a_special_token(
    pipeline: pagewheel.LLMPipeline,
) -> None:
    """The caller's text has no special tokens, so that is where a stop string must not be."""
    prompt = ["Name the capital city of France."]
    whole = pipeline.generate(prompt, greedy(30))
    at = len("The capital city of France is Paris.")
    assert whole.texts[0][:at].endswith("Paris.")
    stop = whole.texts[0][at - 2 : at + 2]
    pieces: list[str] = []
    result = pipeline.generate(prompt, greedy(30, stop_strings={stop}), pieces.append)
    assert result.texts == ["".join(pieces)] == [whole.texts[0][: at - 2]]
    assert result.finish_reasons == [pagewheel.GenerationFinishReason.STOP]
    assert result.perf_metrics.get_num_generated_tokens() < 30


def test_a_slow_streamer_gets_all_that_the_pipelines_own_thread_generates(
    tiny: pagewheel.ContinuousBatchingPipeline,
) -> None:
    """The request ends while the streamer is at its first text or tokens."""

    class Tokens(pagewheel.StreamerBase):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[int] = []

        def write(self, token: int | list[int]) -> pagewheel.StreamingStatus:
            eventually(lambda: not tiny.has_non_finished_requests())
            self.seen += token if isinstance(token, list) else [token]
            return pagewheel.StreamingStatus.RUNNING

        def end(self) -> None:
            self.seen.append(-1)

    def slow(text: str) -> None:
        eventually(lambda: not tiny.has_non_finished_requests())
        pieces.append(text)

    prompt, config = "Once upon a time", greedy(12)
    pieces: list[str] = []
    tokens = Tokens()
    tiny.start()
    try:
        (result,) = tiny.generate([prompt], config, slow)
        ids = tiny.get_tokenizer().encode(prompt).input_ids
        (encoded,) = tiny.generate([ids], config, tokens)
    finally:
        tiny.stop()
    assert "".join(pieces) == result.m_generation_ids[0]
    assert tokens.seen == [*encoded.m_generation_ids[0], -1]


def test_text_with_special_tokens_stops_at_their_strings(smollm2_folder: Path) -> None:
    """Beams stop where the engine's text does, too."""
    pipeline = batching_pipeline(smollm2_folder)
    for beams in ({}, {"num_beams": 2}):
        config = pagewheel.GenerationConfig(
            max_new_tokens=8,
            skip_special_tokens=False,
            logit_bias={2: 100.0},
            ignore_eos=True,
            stop_strings={"<|im_end|><|im_end|>"},
            include_stop_str_in_output=True,
            **beams,
        )
        handle = pipeline.add_request(0, [504, 6376], config)
        (output,) = handle.read_all(with_text=True)
        assert output.text == "<|im_end|><|im_end|>"
        assert output.stop_reason == "<|im_end|><|im_end|>"
        assert output.generated_ids == [2, 2]
