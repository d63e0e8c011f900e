"""What converted tokenizers are compared with: the `tokenizers` package, on varied text.

The reference is built from the GGUF's vocabulary, as SmolLM2's own tokenizer.json describes it
(digits one by one, then byte level). transformers' GGUF loader leaves the digit split out.
"""

from __future__ import annotations

import functools
import random
import unicodedata
from collections.abc import Set

import numpy as np
import openvino_tokenizers  # noqa: F401  (teaches ov.Core the tokenizer's operations)
from convert import tiny_llama
from openvino_core import CORE
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from pagewheel.convert.tokenizers.tokenizer import build_tokenizer
from pagewheel.convert.tokenizers.vocabulary import TokenType, Vocabulary

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Oniguruma's && cuts sets: this is the model's own pattern.
KIMI = r"\p{Han}+|" + GPT4O.replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]").replace("/", "")
DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
DEEPSEEK_CODER = (
    r"[\r\n]",
    r"\s?\p{L}+",
    r"\s?\p{P}+",
    "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
    r"\p{N}",
)
CASED = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293"
    "\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c"
    "\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5"
    "\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59"
    "\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc"
    "\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee"
    "\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
    "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f"
    "\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943"
)
DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[{CASED}]+",
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"\s+$",
    "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
    r"\p{N}+",
)


def byte_level(use_regex: bool) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def split(*patterns: str) -> pre_tokenizers.PreTokenizer:
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence([*splits, byte_level(False)])


PRE_TOKENIZERS = {
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(True), byte_level(True)]),
    "gpt-2": byte_level(True),
    "default": byte_level(True),
    "llama-bpe": split(LLAMA3),
    "qwen2": split(LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")),
    "qwen35": split(
        LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
        .replace(r"?\p{L}+", r"?[\p{L}\p{M}]+")
        .replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
    ),
    "dbrx": split(LLAMA3),
    "gpt-4o": split(GPT4O),
    "kimi-k2": split(KIMI),
    "tekken": split(
        GPT4O.replace(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace(r"\p{N}{1,3}", r"\p{N}")
    ),
    "deepseek-v3": split(*DEEPSEEK_V3),
    "deepseek-coder": split(*DEEPSEEK_CODER),
    "deepseek-llm": split(*DEEPSEEK_LLM),
    "command-r": pre_tokenizers.Sequence([pre_tokenizers.Digits(True), byte_level(True)]),
    "falcon": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"[\p{P}$+<=>^~|`]+"), "isolated"),
            byte_level(True),
            pre_tokenizers.Split(Regex(r"[0-9][0-9][0-9]"), "isolated"),
        ]
    ),
    "seed-coder": split(
        LLAMA3.replace("{1,3}", "{1}")
        .replace(r"+[\r\n]*|", r"+|")
        .replace(r" ?[^\s\p{L}\p{N}]", r" ?[^\s\p{L}\p{N}\r\n]")
    ),
    "bailingmoe": split(
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+"
    ),
}
WHOLE_PIECES = ("llama-bpe", "tekken")
NFC = ("qwen2", "command-r")


def reference_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    kind = vocabulary.pre_tokenizer
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(vocabulary.tokens)},
            merges=[tuple(merge.split(" ")) for merge in vocabulary.merges],
            ignore_merges=kind in WHOLE_PIECES,
        )
    )
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[kind]
    tokenizer.decoder = decoders.ByteLevel()
    if kind in NFC:
        tokenizer.normalizer = normalizers.NFC()
    for index in vocabulary.ids_of_type(TokenType.CONTROL):
        added = AddedToken(vocabulary.tokens[index], special=True, normalized=False)
        tokenizer.add_special_tokens([added])
    return tokenizer


class OpenVINOTokenizer:
    def __init__(self, vocabulary: Vocabulary) -> None:
        tokenizer, detokenizer = build_tokenizer(vocabulary)
        self.tokenizer = CORE.compile_model(tokenizer, "CPU")
        self.detokenizer = CORE.compile_model(detokenizer, "CPU")

    def encode(self, lines: list[str]) -> list[list[int]]:
        result = self.tokenizer(lines)
        rows = zip(result["input_ids"], result["attention_mask"], strict=True)
        return [ids[mask == 1].tolist() for ids, mask in rows]

    def decode(self, ids: list[int]) -> str:
        return str(self.detokenizer(np.array([ids], np.int64).reshape(1, -1))["string_output"][0])


PIECES = [
    *("Hello", " world", "don't", "I'LL", "we've", " ", "  ", "\t", "\n", "\r\n", "\n\n", "   \n"),
    *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<|im_start", "|>", "<|", "<"),
    *("1", "42", " 7", "3.14", "\uff11\uff12", "٣٤", "५", "Ⅻ", "½", "²", "④", "\U0001d7d8", "㉈"),
    *("ü", "é", "é", "ñ̃̃", "ß", "ﬁ", "İ", "ς", "Ça va", "naïve"),
    *("你好", "こんにちは", "안녕", "각", "ไทย", "हिन्दी", "עברית", "العربية", "Ωμέγα", "при"),
    *("👩‍👩‍👧‍👦", "👋🏽", "🇫🇷", "❤️", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "☃", "\u200d", "\ufe0f"),
    *("\x00", "\x01", "\x07", "\x1b[0m", "\x7f", "\x85", "\xa0", "\u180e", "\u200b", "\u2028"),
    *("\u2029", "\u3000", "\ufeff", "\ufffd", "\ue000", "\U000e0001", "\U0010ffff", "\ud7ff"),
    *("def f(x):\n    return x**2\n", "a_b-c", "https://x.org/?q=1&r=2", "{{", "}}", "\\n", "''"),
]


def corpus(seed: int, lines: int) -> list[str]:
    generator = random.Random(seed)
    result = ["", " ", "\n", "a", "<|im_end|>"]
    while len(result) < lines:
        kind = generator.random()
        count = generator.randint(1, 30)
        if kind < 0.7:
            result.append("".join(generator.choices(PIECES, k=count)))
        elif kind < 0.9:  # any character, assigned or not, surrogates left out
            points = (generator.randrange(0x110000 - 0x800) for _ in range(count))
            result.append("".join(chr(p if p < 0xD800 else p + 0x800) for p in points))
        else:
            result.append("".join(generator.choices(" \t\n\r'sS1a.é", k=count * 3)))
    # OpenVINO's Python binding passes strings through numpy, which cuts NULs off the end.
    return [line.rstrip("\0") for line in result]


@functools.cache
def every_character() -> list[str]:
    """Each assigned character between letters, digits and spaces."""
    return [
        f"a{c}{c}b {c} 1{c}2  {c}'s"
        for c in map(chr, range(0x110000))
        if unicodedata.category(c) not in ("Cs", "Cn", "Co")
    ]


def differences(lines: list[str], got: list[list[int]], want: list[list[int]]) -> list[str]:
    return [line for line, a, b in zip(lines, got, want, strict=True) if a != b]


def bytes_of(token: str) -> bytes:
    alphabet = {c: i for i, c in enumerate(tiny_llama.byte_alphabet())}
    return bytes(alphabet[c] for c in token)


def representable(line: str, known: Set[str]) -> bool:
    """SmolLM2's vocabulary lacks the tokens of some bytes; text with them cannot return."""
    characters = byte_level(False).pre_tokenize_str(line)
    return all(character in known for piece, _ in characters for character in piece)
