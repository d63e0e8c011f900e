"""Programs written for openvino_genai: run with the import changed, one way or the other."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import openvino as ov
import pytest
import tokenizers
from openvino_tokenizers import convert_tokenizer
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template

import pagewheel
import pagewheel.openvino_genai

PROMPT = "Why is the sky blue?"


def config_of(genai: ModuleType, **kwargs: Any) -> Any:
    return genai.GenerationConfig(max_new_tokens=5, **kwargs)


def test_errors_are_runtime_errors(genai: ModuleType, smollm2_folder: Path, pipe: Any) -> None:
    for wrong in (
        lambda: genai.LLMPipeline("/nowhere", "CPU"),
        lambda: genai.LLMPipeline(smollm2_folder, "XPU"),
        lambda: genai.LLMPipeline(smollm2_folder, "CPU", NO_SUCH_PROPERTY=1),
        lambda: genai.Tokenizer("/nowhere"),
        lambda: pipe.generate(PROMPT, max_new_tokens=0),
        lambda: pipe.generate(PROMPT, genai.GenerationConfig(top_p=2, do_sample=True)),
        lambda: pipe.set_generation_config(genai.GenerationConfig(max_new_tokens=0)),
        lambda: pipe.get_tokenizer().encode("a", padding_side="middle"),
        lambda: pipe.get_tokenizer().apply_chat_template(
            [{"role": "user", "content": "a"}], True, "{{ raise_exception('no') }}"
        ),
    ):
        with pytest.raises(RuntimeError):
            wrong()


@pytest.mark.parametrize(
    "properties",
    [
        {"ATTENTION_BACKEND": "PA"},
        {"ATTENTION_BACKEND": "SDPA"},
        {"prompt_lookup": False},
        {"prompt_lookup": True},
        {"enable_save_ov_model": True},
        {"extensions": []},
    ],
    ids=str,
)
def test_its_properties_are_understood(
    genai: ModuleType, tiny_folder: Path, properties: dict[str, Any]
) -> None:
    for pipeline in (
        genai.LLMPipeline(tiny_folder, "CPU", properties),
        genai.LLMPipeline(tiny_folder, "CPU", **properties),
    ):
        result = pipeline.generate(np.array([[10, 11]]), max_new_tokens=2, ignore_eos=True)
        assert len(result.tokens[0]) == 2


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"ATTENTION_BACKEND": "X"}, "ATTENTION_BACKEND is 'X'; allowed: PA, SDPA"),
        ({"prompt_lookup": "a"}, "prompt_lookup"),
        ({"extensions": ["/nowhere.so"]}, "/nowhere.so"),
    ],
)
def test_what_its_properties_may_not_be_is_told(
    tiny_folder: Path, properties: dict[str, Any], message: str
) -> None:
    with pytest.raises(RuntimeError, match=message):
        pagewheel.LLMPipeline(tiny_folder, "CPU", **properties)


def test_a_gguf_file_is_saved_beside_itself_where_that_is_asked(
    tiny_folder: Path, tmp_path: Path
) -> None:
    gguf = Path(shutil.copy(tiny_folder.parent / "tiny.gguf", tmp_path / "tiny.gguf"))
    (tmp_path / "config.json").write_text("{}")
    pagewheel.LLMPipeline(gguf, "CPU", enable_save_ov_model=True)
    assert (tmp_path / "openvino_model.xml").is_file()
    assert (tmp_path / "openvino_tokenizer.bin").is_file()
    assert (tmp_path / "config.json").read_text() == "{}"


def test_the_device_auto_is_the_cpu(genai: ModuleType, tiny_folder: Path) -> None:
    for device in ("AUTO", "AUTO:CPU", "AUTO:GPU,CPU"):
        genai.LLMPipeline(tiny_folder, device)
    for device in ("HETERO:CPU", "MULTI:CPU"):
        with pytest.raises(RuntimeError, match="a model runs on one device"):
            genai.LLMPipeline(tiny_folder, device)


def read(path: Path) -> tuple[str, ov.Tensor]:
    weights = np.fromfile(path.with_suffix(".bin"), dtype=np.uint8)
    return path.read_text(encoding="utf-8"), ov.Tensor(weights)


def test_a_model_that_is_in_no_file_generates(
    genai: ModuleType, smollm2_folder: Path, pipe: Any
) -> None:
    tokenizer = genai.Tokenizer(
        *read(smollm2_folder / "openvino_tokenizer.xml"),
        *read(smollm2_folder / "openvino_detokenizer.xml"),
    )
    from_folder = pipe.get_tokenizer()
    assert tokenizer.get_eos_token_id() == from_folder.get_eos_token_id() == 2
    assert tokenizer.get_eos_token() == from_folder.get_eos_token()
    assert tokenizer.chat_template == from_folder.chat_template
    assert tokenizer.decode([504, 6376]) == from_folder.decode([504, 6376])
    in_memory = genai.LLMPipeline(*read(smollm2_folder / "openvino_model.xml"), tokenizer, "CPU")
    expected = pipe.generate(PROMPT, max_new_tokens=8)
    assert in_memory.generate(PROMPT, max_new_tokens=8) == expected
    limited = genai.LLMPipeline(
        *read(smollm2_folder / "openvino_model.xml"), tokenizer, "CPU", config_of(genai)
    )
    assert limited.get_generation_config().max_new_tokens == 5


def test_a_damaged_model_in_memory_is_refused(smollm2_folder: Path) -> None:
    tokenizer = pagewheel.Tokenizer(smollm2_folder)
    for model in ("", "<xml/>", "<net><layers>"):
        with pytest.raises(RuntimeError, match="the model in memory"):
            pagewheel.LLMPipeline(model, ov.Tensor(np.zeros(4, np.uint8)), tokenizer, "CPU")


def test_tokenizers_take_properties(genai: ModuleType, smollm2_folder: Path) -> None:
    plain = genai.Tokenizer(smollm2_folder).encode(PROMPT).input_ids.data
    for tokenizer in (
        genai.Tokenizer(smollm2_folder, {"PERFORMANCE_HINT": "LATENCY"}),
        genai.Tokenizer(smollm2_folder, PERFORMANCE_HINT="LATENCY"),
    ):
        assert np.array_equal(tokenizer.encode(PROMPT).input_ids.data, plain)
    with pytest.raises(RuntimeError, match="NO_SUCH"):
        genai.Tokenizer(smollm2_folder, NO_SUCH=1)
    with pytest.raises(RuntimeError, match="NO_SUCH"):
        genai.ContinuousBatchingPipeline(
            smollm2_folder, genai.SchedulerConfig(), "CPU", {}, {"NO_SUCH": 1}
        )


def test_any_sequence_serves(genai: ModuleType, pipe: Any, batching: Any) -> None:
    tokenizer = pipe.get_tokenizer()
    prompts = ("Hello there", "a")
    listed = tokenizer.encode(list(prompts)).input_ids.data
    assert np.array_equal(tokenizer.encode(prompts).input_ids.data, listed)
    assert listed[1, 0] == tokenizer.get_pad_token_id()  # on the left, as the folder says
    assert isinstance(tokenizer.decode((504, 6376)), str)
    assert isinstance(tokenizer.decode(np.array([504, 6376])), str)
    assert tokenizer.decode(np.array([[504, 6376]])) == [tokenizer.decode([504, 6376])]
    assert len(pipe.generate(prompts, max_new_tokens=3).texts) == 2
    config = config_of(genai)
    assert len(batching.generate(prompts, (config, config))) == 2
    assert len(batching.generate(((10, 11), (12,)), [config, config])) == 2


def test_pairs_are_refused_where_the_tokenizer_takes_one_text(pipe: Any) -> None:
    tokenizer = pipe.get_tokenizer()
    assert not tokenizer.supports_paired_input()
    for pairs in ((["a"], ["b"]), ([["a", "b"]],), ([("a", "b")],)):
        with pytest.raises(RuntimeError, match="takes one text at a time"):
            tokenizer.encode(*pairs)


@pytest.fixture(scope="module")
def paired_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of two inputs, and no model, as encoders have."""
    tokens = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c", "d")
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]"
    )
    folder = tmp_path_factory.mktemp("paired")
    graphs = convert_tokenizer(fast, with_detokenizer=True, number_of_inputs=2)
    for name, graph in zip(("tokenizer", "detokenizer"), graphs, strict=True):
        ov.save_model(graph, folder / f"openvino_{name}.xml")
    return folder


def test_pairs_are_encoded_where_the_tokenizer_takes_two_texts(
    genai: ModuleType, paired_folder: Path
) -> None:
    tokenizer = genai.Tokenizer(paired_folder)
    assert tokenizer.supports_paired_input()
    expected = [[2, 4, 5, 3, 6, 3], [2, 7, 3, 6, 3, 0]]
    for pairs in ((["a b", "d"], ["c"]), (["a b", "d"], ("c", "c")), ([("a b", "c"), ["d", "c"]],)):
        assert tokenizer.encode(*pairs).input_ids.data.tolist() == expected
    mask = tokenizer.encode(["a b", "d"], ["c"]).attention_mask.data.tolist()
    assert mask == [[1] * 6, [1] * 5 + [0]]
    assert tokenizer.encode("a b c").input_ids.data.tolist() == [[2, 4, 5, 6, 3]]
    plain = tokenizer.encode(["a b"], ["c"], add_special_tokens=False)
    assert plain.input_ids.data.tolist() == [[4, 5, 6]]
    with pytest.raises(RuntimeError, match="there are 2 first and 3 second texts"):
        tokenizer.encode(["a", "b"], ["a", "b", "c"])


def test_generate_of_batches_knows_its_arguments_by_name(genai: ModuleType, batching: Any) -> None:
    config = config_of(genai)
    text = batching.generate(PROMPT, config)[0].get_generation_ids()
    assert batching.generate(prompt=PROMPT, generation_config=config)[0].m_generation_ids == text
    by_list = batching.generate(prompts=[PROMPT], generation_config=[config])
    assert by_list[0].m_generation_ids == text
    history = genai.ChatHistory([{"role": "user", "content": PROMPT}])
    by_history = batching.generate(histories=[history], generation_config=[config])
    assert by_history[0].m_generation_ids == text
    ids = ov.Tensor(np.array([[10, 11, 12]]))
    (encoded,) = batching.generate(input_ids=[ids], generation_config=[config])
    assert len(encoded.m_generation_ids[0]) == 5
    assert encoded.finish_reasons == [genai.GenerationFinishReason.LENGTH]
    assert encoded.extended_perf_metrics is None
    handle = batching.add_request(request_id=1, input_ids=ids, generation_config=config)
    assert handle.read_all()[0].generated_ids == encoded.m_generation_ids[0]


def test_chats_of_both_pipelines_take_a_text_or_a_list_of_one(
    genai: ModuleType, pipe: Any, batching: Any
) -> None:
    config = config_of(genai)
    answers = []
    for pipeline in (pipe, batching):
        pipeline.start_chat("Be brief.")
        first = pipeline.generate(["Hello"], config if pipeline is pipe else [config])
        second = pipeline.generate("And you?", config)
        with pytest.raises(RuntimeError, match="one text at a time"):
            pipeline.generate(["a", "b"], config)
        pipeline.finish_chat()
        first_text = first.texts[0] if pipeline is pipe else first[0].m_generation_ids[0]
        answers.append([first_text, second if pipeline is pipe else second[0].m_generation_ids[0]])
    assert answers[0] == answers[1]


def test_the_template_is_applied_per_prompt(genai: ModuleType, batching: Any) -> None:
    templated, plain = config_of(genai), config_of(genai, apply_chat_template=False)
    alone = [batching.generate(PROMPT, each)[0].m_generation_ids for each in (templated, plain)]
    both = batching.generate([PROMPT, PROMPT], [templated, plain])
    assert [result.m_generation_ids for result in both] == alone
    assert alone[0] != alone[1]


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "f",
            "description": "d",
            "parameters": {"z": 1, "a": {"y": 2}},
        },
    }
]
MESSAGES = [
    {"role": "user", "zeta": 1, "content": "hi", "alpha": [{"d": 1, "c": 2}]},
    {"content": "without a role"},
]
CONTEXT = {"zz": {"b": 1, "a": 2}}


@pytest.mark.parametrize("tools", [None, [], TOOLS], ids=["none", "empty", "one"])
def test_keys_keep_their_order_and_tools_may_be_absent(
    genai: ModuleType, pipe: Any, tools: list[dict[str, Any]] | None
) -> None:
    template = (
        "{{ messages | tojson }}{{ zz | tojson }}{% if tools %}{{ tools | tojson }}{% endif %}"
    )
    (expected,), _ = render_jinja_template(
        conversations=[MESSAGES], tools=tools, chat_template=template, **CONTEXT
    )
    tokenizer = pipe.get_tokenizer()
    assert tokenizer.apply_chat_template(MESSAGES, False, template, tools, CONTEXT) == expected
    history = genai.ChatHistory(MESSAGES)
    history.set_tools(tools or [])
    history.set_extra_context(CONTEXT)
    assert tokenizer.apply_chat_template(history, False, template) == expected
    assert history.get_messages() == MESSAGES


def test_what_special_tokens_and_templates_are_is_found_in_every_file(
    genai: ModuleType, tiny_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    tokens = genai.Tokenizer(folder)
    plain = {k: v for k, v in config.items() if "token" not in k and k != "chat_template"}
    (folder / "tokenizer_config.json").write_text(json.dumps(plain))
    (folder / "special_tokens_map.json").write_text(
        json.dumps({"eos_token": {"content": tokens.get_eos_token()}, "bos_token": "<mine>"})
    )
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    (folder / "processor_config.json").write_text(json.dumps({"chat_template": "of the processor"}))
    found = genai.Tokenizer(folder)
    assert found.get_eos_token() == tokens.get_eos_token()
    assert found.get_bos_token() == "<mine>"
    assert found.chat_template == "of the processor"
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": "its own file"}))
    assert genai.Tokenizer(folder).chat_template == "its own file"


def test_a_missing_padding_token_is_the_end_token(tiny_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    for name in ("tokenizer_config.json", "config.json"):
        config = json.loads((folder / name).read_text())
        kept = {key: value for key, value in config.items() if not key.startswith("pad_token")}
        (folder / name).write_text(json.dumps(kept))
    graph = (folder / "openvino_tokenizer.xml").read_text()
    (folder / "openvino_tokenizer.xml").write_text(re.sub(r"<pad_token_id [^>]*/>", "", graph))
    tokenizer = pagewheel.Tokenizer(folder)
    assert tokenizer.get_pad_token_id() == tokenizer.get_eos_token_id() != -1
    assert tokenizer.get_pad_token() == tokenizer.get_eos_token()
