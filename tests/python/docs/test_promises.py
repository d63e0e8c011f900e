"""Numbers and names that stand in several files agree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pages import ROOT, markdown_files

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml"))


def test_reader_and_writer_of_pagewheel_json_know_the_same_version() -> None:
    reader = (ROOT / "src/cpp/src/model/json_file.hpp").read_text()
    (writer,) = (ROOT / "src/python/pagewheel/convert").rglob("folders.py")
    newest = re.findall(r"newest_description_version = (\d+);", reader)
    assert newest == re.findall(r"^DESCRIPTION_VERSION = (\d+)$", writer.read_text(), re.M)
    stability = (ROOT / "docs/stability.md").read_text()
    assert f"what the keys mean. {newest[0]} today" in stability


def test_what_is_compiled_runs_with_the_openvino_it_was_compiled_with() -> None:
    """libopenvino's name has the whole version in it."""
    compiled, run = (
        [each for each in requirements if each.startswith("openvino==")]
        for requirements in (
            PROJECT["build-system"]["requires"],
            PROJECT["project"]["dependencies"],
        )
    )
    assert compiled == run
    assert re.fullmatch(r"openvino==\d+\.\d+\.\d+", run[0])


def test_wheels_are_built_for_every_python_from_the_lowest_on() -> None:
    lowest = int(PROJECT["project"]["requires-python"].removeprefix(">=3."))
    pythons = [f"cp3{minor}" for minor in range(lowest, 15)]
    assert PROJECT["tool"]["cibuildwheel"]["build"].split() == [f"{p}-*" for p in pythons]
    wheels = yaml.safe_load((ROOT / ".github/workflows/wheels.yml").read_text())
    assert wheels["jobs"]["wheels"]["strategy"]["matrix"]["python"] == pythons


@pytest.mark.parametrize(
    ("schema", "files"), [("github-workflows", WORKFLOWS), ("github-issue-forms", FORMS)]
)
def test_github_would_take_the_file(schema: str, files: list[Path]) -> None:
    assert files
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    result = subprocess.run([*command, *files], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_scripts_that_are_named_exist_and_can_be_run() -> None:
    named: set[str] = set()
    for path in [*markdown_files(), *WORKFLOWS, ROOT / "pyproject.toml", ROOT / ".ci/run"]:
        named |= set(re.findall(r"(?<![\w/])scripts/\w+(?:\.py)?(?![\w/])", path.read_text()))
    assert "scripts/run_tests" in named
    for name in named - {"scripts/docs"}:
        path = ROOT / name
        assert path.is_file(), name
        assert path.suffix == ".py" or os.access(path, os.X_OK), name


def test_the_changelog_has_the_sections_of_keep_a_changelog() -> None:
    sections = re.findall(r"^### (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    order = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
    assert set(sections) <= set(order)
    assert sections[: len(order)] == [name for name in order if name in sections[: len(order)]]


@pytest.mark.parametrize("page", markdown_files(), ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    named = set(re.findall(r"`((?:src|tests|scripts|benchmarks)/[\w./]+)`", page.read_text()))
    missing = {name for name in named if "NAME" not in name and not (ROOT / name).exists()}
    assert not missing


def test_every_error_of_the_library_is_openvinos() -> None:
    """`catch (const ov::Exception&)` has what pagewheel/errors.hpp says."""
    others = re.compile(
        r"throw std::(?:invalid_argument|out_of_range|runtime_error)\(|"
        r"catch \((?:const )?std::(?:invalid_argument|out_of_range)&"
    )
    sources = [*(ROOT / "src/cpp").rglob("*.cpp"), *(ROOT / "src/cpp").rglob("*.hpp")]
    assert sources
    assert not [path for path in sources if others.search(path.read_text())]


def test_every_code_of_an_error_is_documented() -> None:
    """In the order in which the enum has them."""
    section = (ROOT / "docs/stability.md").read_text().split("## Codes of errors")[1]
    documented = re.findall(r"^\| `(\w+)` \|", section.split("\n## ")[0], re.M)
    header = (ROOT / "src/cpp/include/pagewheel/errors.hpp").read_text()
    assert documented == re.findall(r"^ +CODE\((\w+)\)", header, re.M)
