"""The conversion cache never shows a broken entry, and never converts the same content twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from convert import tiny_llama

from pagewheel.convert import convert
from pagewheel.convert.files import folders

CONVERT = "import sys; from pagewheel.convert import convert; print(convert(sys.argv[1]))"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tiny_llama.write(tmp_path / "tiny.gguf")


def models() -> list[str]:
    return sorted(path.name for path in (folders.cache_root() / "models").iterdir())


def test_second_conversion_takes_the_entry(source: Path) -> None:
    first = convert(source)
    made = first.stat().st_mtime_ns
    assert convert(source) == first
    assert first.stat().st_mtime_ns == made


def test_same_content_elsewhere_takes_the_same_entry(source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "other name.gguf"
    copy.write_bytes(source.read_bytes())
    assert convert(copy) == convert(source)


def test_changed_content_gives_another_entry(source: Path) -> None:
    first = convert(source)
    stat = source.stat()
    tiny_llama.write(source, metadata={"llama.rope.freq_base": 20000.0})
    os.utime(source, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # same path, size and mtime
    assert source.stat().st_size == stat.st_size
    assert convert(source) != first


def test_hash_is_remembered_until_the_file_changes(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.utime(source, (0, time.time() - 100))
    digest = folders.file_sha256(source)
    with monkeypatch.context() as patch:
        patch.setattr(folders, "_hash", lambda _: pytest.fail("hashed again"))
        assert folders.file_sha256(source) == digest
    source.write_bytes(source.read_bytes() + b"\0")
    assert folders.file_sha256(source) != digest


def test_damaged_hash_note_is_ignored(source: Path) -> None:
    os.utime(source, (0, time.time() - 100))
    digest = folders.file_sha256(source)
    for note in (folders.cache_root() / "sources").iterdir():
        note.write_bytes(b'{"path": ')
    assert folders.file_sha256(source) == digest


def test_two_processes_at_once_both_get_a_whole_entry(source: Path) -> None:
    command = [sys.executable, "-c", CONVERT, str(source)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    results = [process.communicate(timeout=60)[0].strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert results[0] == results[1]
    assert folders.is_whole(Path(results[0]))
    assert models() == [Path(results[0]).name]


def test_kill_in_the_middle_leaves_no_entry(source: Path) -> None:
    # Stops where everything but the last file is written, the worst moment.
    stuck = (
        "import signal, sys; from pagewheel.convert import convert, folder\n"
        "def stop(*_):\n    print('here', flush=True); signal.pause()\n"
        "folder._description = stop; convert(sys.argv[1])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", stuck, str(source)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "here\n"
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=30)
    process.stdout.close()
    assert [name[:5] for name in models()] == [".tmp-"]
    entry = convert(source)
    assert folders.is_whole(entry)


def test_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    broken = tiny_llama.write(tmp_path / "a.gguf", metadata={"tokenizer.ggml.pre": "klingon"})
    with pytest.raises(ValueError, match="klingon"):
        convert(broken)
    assert models() == []


def test_entry_that_lost_files_is_made_again(source: Path) -> None:
    entry = convert(source)
    (entry / "openvino_model.xml").unlink()
    assert convert(source) == entry
    assert folders.is_whole(entry)
    assert models() == [entry.name]


def test_temporary_folders_older_than_a_day_are_removed(source: Path) -> None:
    folder = folders.cache_root() / "models"
    for name, age in ((".tmp-old", 25 * 3600), (".tmp-young", 3600)):
        (folder / name).mkdir(parents=True)
        os.utime(folder / name, (time.time() - age,) * 2)
    entry = convert(source)
    assert models() == sorted([".tmp-young", entry.name])


def test_entry_is_readable_for_others(source: Path) -> None:
    assert convert(source).stat().st_mode & 0o555 == 0o555


def test_cache_folder_follows_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert folders.cache_root() == tmp_path / "cache"
    monkeypatch.delenv("PAGEWHEEL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert folders.cache_root() == tmp_path / "xdg" / "pagewheel"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folders.cache_root() == tmp_path / ".cache" / "pagewheel"
