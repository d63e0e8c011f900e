"""How byte-level vocabularies split text before merging: GGUF's `tokenizer.ggml.pre` kinds.

The patterns are those of the models' own tokenizer.json (llama.cpp's list of kinds names the
models), written for PCRE2. Several patterns are applied one after another, each to the pieces
that the one before left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Unicode's White_Space. PCRE2's \s has U+180E too, Oniguruma's (the reference) has not.
SPACE = r"\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}"
S = f"[{SPACE}]"
NOT_S = f"[^{SPACE}]"
_OTHER = rf"[^{SPACE}\p{{L}}\p{{N}}]"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = rf"{S}*[\r\n]+|{S}+(?!{NOT_S})|{S}+"

GPT2 = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+| ?{_OTHER}+|{S}+(?!{NOT_S})|{S}+"
# The reference first cuts out every digit and then splits what is between them, so a run
# of spaces before a digit ends its piece: the lookahead must let a digit pass.
SMOLLM = (
    rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+|\p{{N}}| ?{_OTHER}+"
    rf"|{S}+(?![^{SPACE}\p{{N}}])|{S}+"
)


def _words_digits_rest(digits: str) -> str:
    """The pattern of cl100k and its heirs, which differ in how many digits make a piece."""
    return (
        rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}"
        rf"| ?{_OTHER}+[\r\n]*|{_SPACES}"
    )


_LLAMA3 = _words_digits_rest("{1,3}")
_QWEN2 = _words_digits_rest("")
_QWEN35 = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^{SPACE}\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)


def _cased_words(ending: str, digits: str) -> str:
    """The pattern of o200k and Tekken: a word goes from capitals to small letters."""
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    return (
        rf"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+{ending}"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*{ending}"
        rf"|\p{{N}}{digits}| ?{_OTHER}+[\r\n/]*|{_SPACES}"
    )


_TEKKEN = _cased_words("", "")
_GPT4O = _cased_words(f"{_CONTRACTION}?", "{1,3}")
_DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    rf"|{_SPACES}",
)
_DEEPSEEK_CODER = (
    r"[\r\n]",
    rf"{S}?\p{{L}}+",
    rf"{S}?\p{{P}}+",
    r"[\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+",
    r"\p{N}",
)
_FALCON = (r"[\p{P}$+<=>^~|`]+", GPT2, r"[0-9][0-9][0-9]")
_BLOOM = (
    rf" ?[^({SPACE}|.,!?\x{{2026}}\x{{3002}}\x{{FF0C}}\x{{3001}}\x{{0964}}\x{{06D4}}\x{{060C}})]+"
)
_BAILING = (
    rf"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{{L}}\p{{N}}]?+\p{{L}}+|\p{{N}}"
    rf"| ?{_OTHER}++[\r\n]*|{S}*[\r\n]|{S}+(?!{NOT_S})|{S}+"
)
_SEED_CODER = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}"
    rf"| ?[^{SPACE}\p{{L}}\p{{N}}\r\n]+|{_SPACES}"
)


@dataclass(frozen=True)
class PreTokenizer:
    """`whole_pieces`: a piece that is a token is taken as it is, whatever its merges give.

    `nfc`: the text is normalised first. openvino_tokenizers' NFC is a table of strings: it
    composes, but does not put several marks on one letter into canonical order.
    """

    patterns: tuple[str, ...]
    nfc: bool = False
    whole_pieces: bool = False


_KINDS: Mapping[PreTokenizer, tuple[str, ...]] = {
    PreTokenizer((GPT2,)): (
        *("default", "gpt-2", "phi-2", "jais", "trillion", "granite-docling", "gigachat"),
        *("exaone4", "mellum", "a.x-4.0", "roberta-bpe", "jina-es", "jina-de", "jina-v2-code"),
    ),
    PreTokenizer((GPT2,), nfc=True): ("mpt", "olmo", "modern-bert"),
    PreTokenizer((SMOLLM,)): ("smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b"),
    PreTokenizer((SMOLLM,), nfc=True): ("command-r",),
    PreTokenizer((_LLAMA3,), whole_pieces=True): (
        *("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0"),
        *("lfm2", "glm4"),
    ),
    PreTokenizer((_LLAMA3,)): ("dbrx", "smaug-bpe", "chatglm-bpe"),
    PreTokenizer((_QWEN2,), nfc=True): ("qwen2", "deepseek-r1-qwen"),
    PreTokenizer((_QWEN2,)): ("stablelm2", "hunyuan", "megrez", "solar-open", "grok-2"),
    PreTokenizer((_QWEN35,)): ("qwen35",),
    PreTokenizer((_TEKKEN,), whole_pieces=True): ("tekken",),
    PreTokenizer((_GPT4O,)): ("gpt-4o", "llama4", "kanana2", "minimax-m2"),
    PreTokenizer(_DEEPSEEK_V3): ("deepseek-v3", "hunyuan-dense", "joyai-llm"),
    PreTokenizer(_DEEPSEEK_CODER): ("deepseek-coder",),
    PreTokenizer(_FALCON): ("falcon",),
    PreTokenizer((_BLOOM,)): ("bloom", "poro-chat", "gpt3-finnish"),
    PreTokenizer((_BLOOM, r"\p{N}")): ("viking",),
    PreTokenizer((_BAILING,)): ("bailingmoe", "bailingmoe2", "llada-moe"),
    PreTokenizer((_SEED_CODER,)): ("seed-coder",),
}
PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    name: pre_tokenizer for pre_tokenizer, names in _KINDS.items() for name in names
}
# Kinds whose models begin every text with the bos token, where a file does not say.
ADDING_BOS = frozenset({*_KINDS[PreTokenizer((_LLAMA3,), whole_pieces=True)], "tekken"} - {"glm4"})
