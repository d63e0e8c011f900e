"""Links within the repository lead somewhere, as GitHub reads them. No network is used."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from pages import ROOT, markdown_files, plain_lines

LINK = re.compile(r"\]\((?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]*))?\)")


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    found: set[str] = set()
    for line in plain_lines(page):
        if not re.match(r"#{1,6} ", line):
            continue
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip().lower())
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        number = next(i for i in range(100) if (f"{slug}-{i}" if i else slug) not in found)
        found.add(f"{slug}-{number}" if number else slug)
    return found


def broken_links(page: Path, lines: Iterable[str]) -> list[str]:
    """Those of `lines`, which stand in `page`."""
    broken = []
    for line in lines:
        for link in LINK.finditer(re.sub(r"`[^`]*`", "", line)):
            if re.match(r"[a-z]+:", link["path"]):
                continue
            target = (page.parent / link["path"]) if link["path"] else page
            lost = link["anchor"] and target.is_file() and link["anchor"] not in anchors(target)
            outside = ROOT not in target.resolve().parents and target.resolve() != ROOT
            if lost or outside or not target.exists():
                broken.append(link[0])
    return broken


@pytest.mark.parametrize("page", markdown_files(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    assert broken_links(page, plain_lines(page)) == []


def test_a_broken_link_is_found() -> None:
    page = ROOT / "docs" / "index.md"
    assert {"what-stays-as-it-is", "deprecation"} <= anchors(ROOT / "docs" / "stability.md")
    line = "[a](index.md) [b](nowhere.md) [c](index.md#nowhere) `[d](nowhere.md)`"
    assert broken_links(page, [line]) == ["](nowhere.md)", "](index.md#nowhere)"]
