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


def _cased_words(ending: str, digits: str, letter: str = "{}") -> str:
    """The pattern of o200k and Tekken: a word goes from capitals to small letters.

    `letter` is the pattern of a letter, with {} for the class it must be of.
    """
    upper = letter.format(r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]")
    lower = letter.format(r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]")
    return (
        rf"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+{ending}"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*{ending}"
        rf"|\p{{N}}{digits}| ?{_OTHER}+[\r\n/]*|{_SPACES}"
    )


_TEKKEN = _cased_words("", "")
_GPT4O = _cased_words(f"{_CONTRACTION}?", "{1,3}")
# Kimi's: Chinese characters are words of their own, and no slash belongs to the signs before it.
# PCRE2's \p{Han} has what other scripts share.
_KIMI = _cased_words(f"{_CONTRACTION}?", "{1,3}", r"(?:(?!\p{{sc:Han}}){})")
_KIMI = rf"\p{{sc:Han}}+|{_KIMI}".replace("/", "")
_DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    rf"|{_SPACES}",
)
_CHINESE_AND_KOREAN = r"[\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+"
_DEEPSEEK_CODER = (
    r"[\r\n]",
    rf"{S}?\p{{L}}+",
    rf"{S}?\p{{P}}+",
    _CHINESE_AND_KOREAN,
    r"\p{N}",
)
# What the models' tokenizer.json takes for letters with case: a list of ranges, no Unicode class.
_CASED = (
    r"A-Za-z\x{00B5}\x{00C0}-\x{00D6}\x{00D8}-\x{00F6}\x{00F8}-\x{01BA}\x{01BC}-\x{01BF}"
    r"\x{01C4}-\x{0293}\x{0295}-\x{02AF}\x{0370}-\x{0373}\x{0376}\x{0377}\x{037B}-\x{037D}"
    r"\x{037F}\x{0386}\x{0388}-\x{038A}\x{038C}\x{038E}-\x{03A1}\x{03A3}-\x{03F5}"
    r"\x{03F7}-\x{0481}\x{048A}-\x{052F}\x{0531}-\x{0556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}"
    r"\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}"
    r"\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}"
    r"\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}"
    r"\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}"
    r"\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}"
    r"\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}"
    r"\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}"
    r"\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}"
    r"\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}"
    r"\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}"
    r"\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}"
    r"\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}"
)
_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"{S}?[{_CASED}]+",
    rf"{S}?[!-/:-~\x{{FF01}}-\x{{FF0F}}\x{{FF1A}}-\x{{FF5E}}\x{{2018}}-\x{{201F}}"
    r"\x{3000}-\x{3002}]+",
    rf"{S}+$",
    _CHINESE_AND_KOREAN,
    r"\p{N}+",
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
    PreTokenizer((_KIMI,)): ("kimi-k2",),
    PreTokenizer(_DEEPSEEK_V3): ("deepseek-v3", "hunyuan-dense", "joyai-llm"),
    PreTokenizer(_DEEPSEEK_CODER): ("deepseek-coder",),
    PreTokenizer(_DEEPSEEK_LLM): ("deepseek-llm",),
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
