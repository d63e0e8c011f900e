"""The site builds without a warning, and its API reference has all that is public."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from pages import ROOT

import pagewheel

HEADERS = ROOT / "src/cpp/include/pagewheel"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    result = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


@pytest.fixture(scope="module")
def documented(site: Path) -> set[str]:
    """The names in Sphinx's inventory of the site."""
    content = (site / "objects.inv").read_bytes()
    lines = zlib.decompress(content[content.index(b"zlib.\n") + 6 :]).decode().splitlines()
    return {line.split()[0] for line in lines}


def test_python_reference_has_every_public_name(documented: set[str]) -> None:
    names = set(pagewheel.__all__) - {"__version__"}
    assert {f"pagewheel.{name}" for name in names} <= documented
    functions = ("convert", "resolve_model", "ConversionError")
    assert {f"pagewheel.convert.{name}" for name in functions} <= documented


def test_python_reference_has_every_public_member(documented: set[str]) -> None:
    for name in pagewheel.__all__:
        value = getattr(pagewheel, name)
        if not isinstance(value, type):
            continue
        members = {member for member in vars(value) if not member.startswith("_")}
        missing = {m for m in members if f"pagewheel.{name}.{m}" not in documented}
        assert not missing, name


@pytest.mark.parametrize("header", sorted(HEADERS.glob("*.hpp")), ids=lambda path: path.name)
def test_cpp_reference_has_every_exported_name(site: Path, header: Path) -> None:
    text = header.read_text()
    names = set(
        re.findall(r"^(?:class|struct|enum class)(?: PAGEWHEEL_API)? (\w+)[^;]*$", text, re.M)
    )
    names |= set(re.findall(r"^PAGEWHEEL_API [^;=]*?(\w+)\(", text, re.M))
    page = site / "api/cpp" / header.stem / "index.html"
    if not names and not page.exists():
        assert header.name == "visibility.hpp"
        return
    content = page.read_text()
    headings = set(re.findall(r'<h2 id="([^"]+)"', content))
    assert {name.lower() for name in names} <= headings
    assert "private:" not in content


def test_pages_from_the_root_are_on_the_site(site: Path) -> None:
    for name in ("CONTRIBUTING", "SECURITY", "CHANGELOG"):
        assert (site / name / "index.html").is_file()
    assert 'href="../SECURITY/"' in (site / "design/index.html").read_text()
