"""Words that were given up stay out of code and docs. docs/glossary.md has those that are used.

A word is looked for wherever no letter stands beside it, so in parts of identifiers and in the
names of files too. An occurrence is allowed within a phrase, or in files, that the table names.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest
from pages import ROOT


@dataclass(frozen=True)
class OldWord:
    """`pattern` is what is not said any more, `instead` what is."""

    pattern: str
    instead: str
    phrases: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


OLD_WORDS = (
    OldWord(
        r"turn(?:s|ed|ing)?",
        "rotate",
        phrases=(
            r"turn(?:s|ed)?\s(?:(?!turn)[^\s;]*[^\s.;]\s+){0,20}?into\b",  # tokens into text
            r"turn(?:s|ed)?\s(?:[\w.`]+\s){0,3}(?:on|off|out|false|true)\b",
            r"\b(?:in|at|(?:take|takes|taking)|(?:his|its|their|\w+'s)(?:\snext)?)\sturns?\b",
            # of a conversation
            r"\b(?:a|one|each|every|first|last|next|several|that|another|five|10)\sturns?\b",
            r"\b(?:ends of|are) turns\b",
            r"\bturns (?:of|over|later)\b",
            r"_turns_\w+_on\b|-in-turns\b",
            r"\bend_turn\b",  # a value of Anthropic's API
        ),
        files=(
            "*llm_pipeline*",
            "*chat*",
            "benchmarks/eviction_prompts.py",
            "tests/python/*test_prefix_cach*.py",
            "*call_fuzz.py",
            "*/convert/gguf/vocabulary.py",
            "tests/cpp/*prefix_sharing_test.cpp",
            "src/cpp/src/parsing/families/*gemma*.cpp",
            "tests/python/parsing/*",
        ),
    ),
    OldWord(r"stock", "OpenVINO's; as a backend, openvino"),
    OldWord(r"plugin's", "OpenVINO's", phrases=(r"\b(?:CPU|GPU) plugin's",)),
    OldWord(r"chunks? of 32", "k-block"),
    OldWord(r"prompt chunks?|chunks? of (?:a |the )?prompts?", "prefill chunk"),
)
# What others wrote, what tells the past, and the table above.
_LEFT_OUT = ("tests/data/*", "LICENSE", "CHANGELOG.md", "tests/python/docs/test_words.py")
_BINARY = {".png", ".gz", ".bin"}


def tracked_files() -> list[str]:
    """Of a checkout those that git knows, else all that is there."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    names = listed.stdout.splitlines()
    if listed.returncode != 0:
        folders = ("src", "tests", "docs", "benchmarks", "samples", "scripts")
        paths = [*ROOT.glob("*.*"), *(p for f in folders for p in (ROOT / f).rglob("*.*"))]
        names = [str(path.relative_to(ROOT)) for path in paths]
    return [
        name
        for name in names
        if (ROOT / name).is_file()
        and Path(name).suffix not in _BINARY
        and not any(fnmatch(name, pattern) for pattern in _LEFT_OUT)
    ]


def occurrences(word: OldWord, name: str, text: str) -> Iterator[str]:
    """Where the file `name` says the old word."""
    if any(fnmatch(name, pattern) for pattern in word.files):
        return
    allowed = [m.span() for phrase in word.phrases for m in re.finditer(phrase, text, re.I)]
    pattern = rf"(?<![A-Za-z])(?:{word.pattern})(?![A-Za-z])"
    if re.search(pattern, name, re.I):
        yield f"{name}: the name of the file"
    for found in re.finditer(pattern, text, re.I):
        if not any(begin <= found.start() and found.end() <= end for begin, end in allowed):
            line = text.count("\n", 0, found.start())
            yield f"{name}:{line + 1}: {text.splitlines()[line].strip()[:100]}"


@pytest.mark.parametrize("word", OLD_WORDS, ids=lambda word: word.pattern)
def test_old_words_are_not_used(word: OldWord) -> None:
    found = [
        each
        for name in tracked_files()
        for each in occurrences(word, name, (ROOT / name).read_text(encoding="utf-8"))
    ]
    assert not found, f"say {word.instead}:\n" + "\n".join(found)


def test_words_are_found_whole_and_phrases_are_allowed() -> None:
    turn = OLD_WORDS[0]
    text = (
        "keys return\nkeys turn by 3.\nturns tokens\n/// into text\ndecode_turned_keys\nin turn\n"
    )
    assert list(occurrences(turn, "a.hpp", text)) == [
        "a.hpp:2: keys turn by 3.",
        "a.hpp:5: decode_turned_keys",
    ]
    assert list(occurrences(turn, "decode_turned_keys.hpp", "")) == [
        "decode_turned_keys.hpp: the name of the file"
    ]
    assert not list(occurrences(turn, "src/llm_pipeline.hpp", "keys turn"))
