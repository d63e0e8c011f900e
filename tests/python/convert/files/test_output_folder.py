"""A folder that the user names for the result keeps all that the conversion has not made itself."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from convert import tiny_llama

from pagewheel.convert import convert
from pagewheel.convert.files import folders

# Waits where everything but the last file is written, then fails or goes on as it is told.
SLOW = (
    # Under nohup the tests have SIGHUP ignored, and what they start.
    "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
    "import sys; from pagewheel.convert import folder\n"
    "describe = folder._description\n"
    "def wait(sources):\n"
    "    print('here', flush=True)\n"
    "    if sys.stdin.readline() == 'fail\\n': raise ValueError('as told')\n"
    "    return describe(sources)\n"
    "folder._description = wait\n"
    "from pagewheel.cli import main; main()"
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tiny_llama.write(tmp_path / "tiny.gguf")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


def start(source: Path, output: Path) -> subprocess.Popen[str]:
    """A conversion that has written nearly all."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, "convert", "--quiet", str(source), str(output)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "here\n"
    return process


def tree(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*"))


def test_old_folders_beside_the_output_stay(source: Path, home: Path) -> None:
    thesis = home / ".tmp-thesis"
    thesis.mkdir()
    (thesis / "chapter").write_text("one")
    os.utime(thesis, (0, 0))
    convert(source, home / "out")
    assert (thesis / "chapter").read_text() == "one"
    assert folders.is_whole(home / "out")
    assert not list((home / "out").glob(".*"))


def test_an_empty_folder_is_filled_even_the_current_one(
    source: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = home.stat().st_ino
    monkeypatch.chdir(home)
    assert convert(source.resolve(), ".") == Path()
    assert folders.is_whole(home) and home.stat().st_ino == identity


def test_a_link_to_an_empty_folder_stays_a_link(source: Path, home: Path) -> None:
    (home / "real").mkdir()
    (home / "link").symlink_to("real")
    convert(source, home / "link")
    assert (home / "link").is_symlink()
    assert folders.is_whole(home / "real")


def test_parents_are_made(source: Path, home: Path) -> None:
    convert(source, home / "a/b/c")
    assert folders.is_whole(home / "a/b/c")


def occupied(home: Path) -> Path:
    (home / "full").mkdir()
    (home / "full/mine").write_text("mine")
    return home / "full"


def a_file(home: Path) -> Path:
    (home / "file").write_text("mine")
    return home / "file"


def link_to_occupied(home: Path) -> Path:
    (home / "link").symlink_to(occupied(home))
    return home / "link"


def dangling_link(home: Path) -> Path:
    (home / "link").symlink_to("nowhere")
    return home / "link"


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (occupied, FileExistsError, "not empty"),
        (link_to_occupied, FileExistsError, "not empty"),
        (a_file, FileExistsError, "is a file"),
        (dangling_link, FileExistsError, "link to nothing"),
        (lambda home: a_file(home) / "out", NotADirectoryError, "parent is a file"),
        # Where nobody may make a folder, root neither.
        (lambda _home: Path("/proc/out"), OSError, "cannot make the folder"),
    ],
)
def test_an_output_that_cannot_be_is_refused_before_the_work(
    make: Any, error: type[OSError], words: str, home: Path
) -> None:
    # The work would find that this is no GGUF file.
    source = home / "no.gguf"
    source.write_text("no model")
    output = make(home)
    before = tree(home)
    with pytest.raises(error, match=words):
        convert(source, output)
    assert tree(home) == before


@pytest.mark.parametrize("output", ["a/b", "empty"])
@pytest.mark.parametrize("end", ["fail", signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_conversion_that_does_not_end_leaves_nothing_and_takes_nothing(
    source: Path, home: Path, output: str, end: str | signal.Signals
) -> None:
    (home / "empty").mkdir()
    (home / "mine").write_text("mine")
    before = tree(home)
    process = start(source, home / output)
    if isinstance(end, str):
        process.communicate("fail\n", timeout=60)
        assert process.returncode == 1
    else:
        process.send_signal(end)
        process.communicate(timeout=60)
        assert process.returncode == 130
    assert tree(home) == before


@pytest.mark.parametrize("end", ["fail", "go on"])
def test_files_put_into_the_output_meanwhile_survive(source: Path, home: Path, end: str) -> None:
    process = start(source, home / "out")
    (home / "out/notes").write_text("mine")
    process.communicate(f"{end}\n", timeout=60)
    assert (home / "out/notes").read_text() == "mine"
    made = [name for name in tree(home / "out") if name != "notes"]
    assert folders.is_whole(home / "out") if end == "go on" else made == []


def test_a_name_that_is_taken_meanwhile_ends_the_conversion(source: Path, home: Path) -> None:
    process = start(source, home / "out")
    (home / "out/config.json").write_text("mine")
    _, errors = process.communicate("go on\n", timeout=60)
    assert process.returncode == 1 and "config.json" in errors
    assert tree(home) == ["out", "out/config.json"]
    assert (home / "out/config.json").read_text() == "mine"


def test_files_appear_whole_and_go_again_when_ctrl_c_comes_right_after(
    source: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link
    appeared = []

    def link_then_ctrl_c(file: Path, target: Path) -> None:
        assert not target.exists()
        link(file, target)
        appeared.append(target.name)
        if target.name == "openvino_model.xml":
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", link_then_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        convert(source, home / "out")
    assert len(appeared) > 1
    assert tree(home) == []


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_without_links_files_are_renamed(
    source: Path, home: Path, monkeypatch: pytest.MonkeyPatch, is_interrupted: bool
) -> None:
    def no_links(_file: Path, target: Path) -> None:
        if is_interrupted and target.name == "openvino_model.xml":
            (target.parent / "config.json").unlink()  # by another: nothing to be told
            raise KeyboardInterrupt
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    if is_interrupted:
        with pytest.raises(KeyboardInterrupt):
            convert(source, home / "out")
        assert tree(home) == []
    else:
        convert(source, home / "out")
        assert folders.is_whole(home / "out")
        assert not list((home / "out").glob(".*"))


def test_a_wrong_option_makes_no_folder(source: Path, home: Path) -> None:
    with pytest.raises(ValueError, match="weight_format"):
        convert(source, home / "a/out", weight_format="int4")
    assert tree(home) == []


def test_a_cache_that_cannot_be_written_does_not_matter_with_an_output(
    source: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "file").write_text("")
    monkeypatch.setenv("PAGEWHEEL_CACHE", str(home / "file/cache"))
    os.utime(source, (0, 0))  # old enough for its hash to be noted
    convert(source, home / "out")
    assert folders.is_whole(home / "out")


def test_a_pipe_is_no_model(home: Path) -> None:
    os.mkfifo(home / "pipe.gguf")
    with pytest.raises(ValueError, match="pipe"):
        convert(home / "pipe.gguf", home / "out")
    assert tree(home) == ["pipe.gguf"]
