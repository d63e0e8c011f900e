"""A hub of this machine, in whose place and with whose cache huggingface_hub works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fake_hub
import pytest
from huggingface_hub import constants
from huggingface_hub.utils import _http


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[fake_hub.FakeHub]:
    with fake_hub.running() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        # What it has read of these when it was imported.
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        template = running.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "hf" / "token"))
        monkeypatch.setattr(_http.time, "sleep", lambda _seconds: None)
        yield running
