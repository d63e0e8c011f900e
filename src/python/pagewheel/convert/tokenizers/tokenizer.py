"""Tokenizer and detokenizer graphs, out of openvino_tokenizers' steps.

Only `openvino_tokenizers.tokenizer_pipeline` is used: its Hugging Face parser imports
transformers, which pagewheel does not need at run time.
"""

from __future__ import annotations

import openvino as ov
import openvino_tokenizers
from openvino_tokenizers.constants import (
    BOS_TOKEN_ID_NAME,
    CHAT_TEMPLATE_NAME,
    EOS_TOKEN_ID_NAME,
    PAD_TOKEN_ID_NAME,
    UTF8ReplaceMode,
)
from openvino_tokenizers.tokenizer_pipeline import (
    AddToken,
    BPETokenizationStep,
    CombineSegmentsStep,
    FuseStep,
    NormalizeUnicode,
    PaddingStep,
    RegexDecodingStep,
    RegexSplitStep,
    Sequence,
    TokenizerPipeline,
    TruncationStep,
    UTF8ValidateStep,
    VocabDecoderStep,
)
from openvino_tokenizers.utils import (
    apply_unicode_to_bytes,
    change_inputs_type,
    change_outputs_type,
    unicode_to_bytes,
)

from ...errors import ConversionError
from ..tokenizers import sentencepiece
from .pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from .steps import WholePiecesBPEStep, split_special_tokens
from .vocabulary import TokenType, Vocabulary, bpe_arguments, listed_merges

# `Vocabulary.model`: byte-level BPE, SentencePiece BPE and Unigram.
_MODELS = ("gpt2", "llama", "t5")
_SENTENCEPIECE = ("llama", "t5")
# The C++ core's limit too. openvino-tokenizers' tree of a vocabulary is as deep as its longest
# token.
_MAX_TOKEN_BYTES = 16_384


def _token_bytes(text: str) -> bytes:
    """Gives a byte-level token's bytes; text outside of GPT-2's alphabet stands for itself."""
    return apply_unicode_to_bytes(text, return_corrupted_tokens=True)


def build_tokenizer(vocabulary: Vocabulary) -> tuple[ov.Model, ov.Model]:
    """The tokenizer (string [batch] -> input_ids, attention_mask i64 [batch, tokens],
    padded on the left) and the detokenizer (i64 [batch, tokens] -> string [batch]).

    Control tokens are recognised in text and left out of decoded text; user-defined
    tokens are recognised and kept. Raises ConversionError for a tokenizer model or
    pre-tokenizer that is not supported.
    """
    if vocabulary.model not in _MODELS:
        raise ConversionError(
            f"tokenizer.ggml.model {vocabulary.model!r} is not supported; "
            f"supported: {', '.join(_MODELS)}"
        )
    _check_lengths(vocabulary.tokens)
    pipeline = TokenizerPipeline()
    encoding_steps = _encoding_steps(vocabulary)
    pipeline.add_steps(encoding_steps)
    pipeline.add_steps(_decoding_steps(vocabulary, encoding_steps))
    # The order matters: the detokenizer shares the vocabulary constant of the tokenizer.
    tokenizer = change_outputs_type(pipeline.get_tokenizer_ov_subgraph(), ov.Type.i64)
    detokenizer = change_inputs_type(pipeline.get_detokenizer_ov_subgraph(), ov.Type.i64)
    for model in (tokenizer, detokenizer):
        _describe(model, vocabulary)
    return tokenizer, detokenizer


def _check_lengths(tokens: list[str]) -> None:
    for index, text in enumerate(tokens):
        if len(text) > _MAX_TOKEN_BYTES // 4 and len(text.encode()) > _MAX_TOKEN_BYTES:
            raise ConversionError(
                f"token {index}, {text!r:.40}, is {len(text.encode())} bytes long; allowed: "
                f"{_MAX_TOKEN_BYTES}"
            )


def _encoding_steps(vocabulary: Vocabulary) -> list[object]:
    if vocabulary.model == "llama":
        steps = sentencepiece.bpe_steps(vocabulary)
    elif vocabulary.model == "t5":
        steps = sentencepiece.unigram_steps(vocabulary)
    else:
        steps = _byte_level_steps(vocabulary)
    # It does nothing until a program switches it on. openvino_genai edits the graph and needs
    # it: without it, encoding without special tokens gives nothing there.
    steps.append(TruncationStep(max_length=vocabulary.context_length))
    sequence: list[object] = [Sequence()]
    if vocabulary.add_bos and vocabulary.bos_id is not None:
        sequence.insert(0, AddToken(_token_id=vocabulary.bos_id))
    if vocabulary.add_eos and vocabulary.eos_id is not None:
        sequence.append(AddToken(_token_id=vocabulary.eos_id))
    steps.append(CombineSegmentsStep(sequence))
    # A decoder continues where the prompt ends, so prompts of a batch end together.
    steps.append(PaddingStep(_token_id=vocabulary.pad_id or 0, pad_right=False))
    return steps


def _byte_level_steps(vocabulary: Vocabulary) -> list[object]:
    """Makes token ids of text, without those added around it."""
    pre_tokenizer = _pre_tokenizer(vocabulary)
    special_texts = vocabulary.special_texts
    tokens = _bytes_of_tokens(vocabulary, unspelled=b"\xff")
    merges = listed_merges(vocabulary, set(tokens), _token_bytes)
    steps: list[object] = [split_special_tokens(special_texts)]
    if pre_tokenizer.nfc:
        steps.append(NormalizeUnicode("NFC"))
    for pattern in pre_tokenizer.patterns:
        steps.append(RegexSplitStep(pattern, behaviour="isolate", mergeable=False))
    symbols = set(special_texts.values())
    symbols |= {index for index, token in enumerate(tokens) if len(token) <= 1}
    arguments = bpe_arguments(vocabulary, tokens, merges, symbols.__contains__)
    steps.append(
        WholePiecesBPEStep(**arguments, pieces=tokens)
        if pre_tokenizer.whole_pieces
        else BPETokenizationStep(**arguments)
    )
    return steps


def _bytes_of_tokens(vocabulary: Vocabulary, unspelled: bytes) -> list[bytes]:
    """Gives each token's bytes, after `unspelled` where the token is not spelled in bytes.

    Some files have such tokens (command-r: the rocket emoji as it is). No text becomes them: for
    encoding, a byte that UTF-8 does not have is put in front.
    """
    specials, alphabet = set(vocabulary.special_ids), unicode_to_bytes().keys()
    return [
        text.encode()
        if index in specials
        else (b"" if alphabet >= set(text) else unspelled) + _token_bytes(text)
        for index, text in enumerate(vocabulary.tokens)
    ]


def _pre_tokenizer(vocabulary: Vocabulary) -> PreTokenizer:
    if vocabulary.split_patterns:
        return PreTokenizer(vocabulary.split_patterns, vocabulary.nfc, vocabulary.whole_pieces)
    if vocabulary.pre_tokenizer not in PRE_TOKENIZERS:
        raise ConversionError(
            f"tokenizer.ggml.pre {vocabulary.pre_tokenizer!r} is not supported; "
            f"supported: {', '.join(PRE_TOKENIZERS)}"
        )
    return PRE_TOKENIZERS[vocabulary.pre_tokenizer]


def _decoding_steps(vocabulary: Vocabulary, encoding_steps: list[object]) -> list[object]:
    """Makes texts of token ids, without the space that encoding put at the start."""
    pieces = vocabulary.model in _SENTENCEPIECE
    decoded = sentencepiece.token_bytes(vocabulary) if pieces else _bytes_of_tokens(vocabulary, b"")
    is_shared = not pieces and any(
        getattr(step, "vocab", None) == decoded for step in encoding_steps
    )
    skipped = vocabulary.ids_of_type(TokenType.CONTROL, TokenType.UNKNOWN)
    steps: list[object] = [
        VocabDecoderStep(vocab=None if is_shared else decoded, skip_tokens=skipped),
        FuseStep(),
        UTF8ValidateStep(mode=UTF8ReplaceMode.REPLACE),
    ]
    if pieces and vocabulary.add_space_prefix:
        steps.append(RegexDecodingStep.strip_forward_space())
    return steps


def _describe(model: ov.Model, vocabulary: Vocabulary) -> None:
    """Writes what programs that open only the tokenizer look for (openvino_genai does)."""
    values = {
        "openvino_version": ov.get_version(),
        "openvino_tokenizers_version": openvino_tokenizers.__version__,
        BOS_TOKEN_ID_NAME: vocabulary.bos_id,
        EOS_TOKEN_ID_NAME: vocabulary.eos_id,
        PAD_TOKEN_ID_NAME: vocabulary.pad_id,
        CHAT_TEMPLATE_NAME: vocabulary.chat_template,
    }
    for name, value in values.items():
        if value is not None:
            model.set_rt_info(value, name)
