"""docs/glossary.md explains each word once, and only words that the project uses."""

from __future__ import annotations

import re
from collections import Counter

from pages import ROOT

GLOSSARY = ROOT / "docs/glossary.md"
WORDS = [
    word.strip()
    for row in re.findall(r"^\| (.+?) \| .+ \|$", GLOSSARY.read_text(), re.M)
    for word in re.sub(r" \(\w+\)| and | area\b", ", ", row).split(",")
    if word.strip() not in ("", "word", "---")
]


def words_in_use() -> set[str]:
    """Of all code and docs but the glossary, parts of identifiers among them."""
    suffixes = {".py", ".cpp", ".hpp", ".def", ".md"}
    folders = [ROOT / "src", ROOT / "docs"]
    paths = [path for folder in folders for path in folder.rglob("*") if path.suffix in suffixes]
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths if path != GLOSSARY)
    return set(re.findall(r"[a-z0-9]+", text.lower()))


def test_a_word_is_explained_once() -> None:
    assert len(WORDS) > 50
    assert not [word for word, count in Counter(WORDS).items() if count > 1]


def test_words_of_the_glossary_are_used() -> None:
    used = words_in_use()
    assert not [word for word in WORDS if not set(re.findall(r"[a-z0-9]+", word.lower())) <= used]
