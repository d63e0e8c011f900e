"""Models by name: what is fetched, what is chosen, and what a hostile hub cannot do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from fake_hub import FakeHub, git_digest
from huggingface_hub import constants

from pagewheel import InvalidArgumentError, ModelNotFoundError, hub as module, hub_files
from pagewheel.errors import FetchError
from pagewheel.hub import local_model, parse_name, pull
from pagewheel.pulled_models import find_pulled, pulled_models, remove_pulled

GGUF = b"GGUF" + bytes(range(256)) * 8


def quiet_pull(name: str) -> Path:
    return pull(name, progress=False).path


def said(name: str) -> list[str]:
    texts: list[str] = []
    pull(name, progress=texts.append)
    return texts


def outside(tmp_path: Path) -> list[Path]:
    """Files in the test's folder that are in neither cache."""
    caches = (tmp_path / "hf", tmp_path / "cache")
    files = [each for each in tmp_path.rglob("*") if each.is_file()]
    return [each for each in files if not any(each.is_relative_to(cache) for cache in caches)]


def leftovers(tmp_path: Path) -> list[Path]:
    return [*tmp_path.rglob("*.incomplete"), *tmp_path.rglob(".tmp-*")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Qwen/Qwen3-0.6B", ("Qwen/Qwen3-0.6B", "", "main")),
        ("hub:Qwen/Qwen3-0.6B", ("Qwen/Qwen3-0.6B", "", "main")),
        ("hub:gpt2", ("gpt2", "", "main")),
        ("a/b-GGUF:Q4_K_M", ("a/b-GGUF", "Q4_K_M", "main")),
        ("a/b:sub/file.gguf", ("a/b", "sub/file.gguf", "main")),
        ("a/b@v1.0", ("a/b", "", "v1.0")),
        ("hub:b@refs/pr/1:Q8_0", ("b", "Q8_0", "refs/pr/1")),
    ],
)
def test_names_are_read(text: str, expected: tuple[str, str, str]) -> None:
    name = parse_name(text)
    assert name is not None and (name.repository, name.choice, name.revision) == expected


@pytest.mark.parametrize(
    "text",
    [
        "model.gguf",
        "folder",
        "folder/",
        "./a/b",
        "../a",
        "/a/b",
        "a/b/c",
        "a/b.gguf",
        "a/..b",
        "~/b",
        "a/b@",
        "a/b@..",
        "a/b@v1/../../c",
        "a/b@-x",
        "a/b@v 1",
    ],
)
def test_paths_are_no_names(text: str) -> None:
    assert parse_name(text) is None


@pytest.mark.parametrize(
    "text", ["hub:", "hub:../x", "hub:a/b/c", "hub:/a", "hub:a/b--c", "hub:é/b"]
)
def test_what_follows_hub_must_be_a_name(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="expected hub:owner/name"):
        parse_name(text)


def test_an_existing_path_wins_over_a_name(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "owner").mkdir()
    (tmp_path / "owner" / "name").write_bytes(GGUF)
    hub.repositories["owner/name"] = {"model.gguf": GGUF}
    monkeypatch.chdir(tmp_path)
    assert local_model("owner/name") == Path("owner/name")
    assert hub.requests == []


def test_a_folder_is_fetched_without_pickles_and_code(hub: FakeHub) -> None:
    hub.repositories["o/m"] = {
        "config.json": b"{}",
        "tokenizer.json": b"{}",
        "model.safetensors": b"weights",
        "consolidated.safetensors": b"again",
        "pytorch_model.bin": b"pickle",
        "modeling.py": b"code",
        "README.md": b"text",
        "onnx/model.onnx": b"graph",
    }
    folder = quiet_pull("o/m")
    names = {each.name for each in folder.iterdir()}
    assert names == {"config.json", "tokenizer.json", "model.safetensors"}
    assert folder.is_relative_to(constants.HF_HUB_CACHE)


def test_only_the_shards_of_the_index_are_fetched(hub: FakeHub) -> None:
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    hub.repositories["o/m"] = {
        "model-1.safetensors": b"1",
        "model-2.safetensors": b"2",
        "consolidated.safetensors": b"again",
        "model.safetensors.index.json": json.dumps(index).encode(),
        "config.json": b"{}",
    }
    quiet_pull("o/m")
    assert sorted(hub.downloads()) == ["model-1.safetensors", "model-2.safetensors"]


@pytest.mark.parametrize(
    "index", [b"{", b"[]", b'{"weight_map": [[]]}', b'{"weight_map": {"a": "../x.safetensors"}}']
)
def test_a_damaged_index_is_refused(hub: FakeHub, index: bytes) -> None:
    hub.repositories["o/m"] = {
        "model-1.safetensors": b"1",
        "model.safetensors.index.json": index,
        "config.json": b"{}",
    }
    with pytest.raises(FetchError, match=r"index\.json"):
        quiet_pull("o/m")
    assert hub.downloads() == []


def test_an_openvino_folder_is_fetched_with_its_bin_files(hub: FakeHub) -> None:
    hub.repositories["o/m"] = {
        "openvino_model.xml": b"<net/>",
        "openvino_model.bin": b"weights",
        "openvino_tokenizer.xml": b"<net/>",
        "config.json": b"{}",
        "pytorch_model.bin": b"pickle",
    }
    folder = quiet_pull("o/m")
    assert (folder / "openvino_model.bin").is_file()
    assert not (folder / "pytorch_model.bin").exists()
    assert pulled_models()[0].form == "OpenVINO"


def ggufs(*names: str) -> dict[str, bytes]:
    return {name: GGUF + name.encode() for name in names}


def test_a_quantisation_or_a_file_chooses_a_gguf(hub: FakeHub) -> None:
    hub.repositories["o/m-GGUF"] = ggufs(
        "m-Q4_K_M.gguf", "m-Q8_0.gguf", "m-f16.gguf", "mmproj-Q8_0.gguf"
    )
    assert quiet_pull("o/m-GGUF:Q4_K_M").name == "m-Q4_K_M.gguf"
    assert quiet_pull("o/m-GGUF:q8_0").name == "m-Q8_0.gguf"
    assert quiet_pull("o/m-GGUF:m-f16.gguf").name == "m-f16.gguf"
    with pytest.raises(ModelNotFoundError, match=r"has no 'Q2_K'; GGUF files: m-Q4_K_M\.gguf, "):
        quiet_pull("o/m-GGUF:Q2_K")


def test_a_revision_is_fetched_beside_the_newest(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories["o/m"] = {"m.gguf": GGUF + b"new"}
    hub.repositories["o/m@v1"] = {"m.gguf": GGUF + b"old"}
    assert quiet_pull("o/m@v1").read_bytes() == GGUF + b"old"
    assert quiet_pull("o/m").read_bytes() == GGUF + b"new"
    assert quiet_pull(f"{hub.url}/o/m/blob/v1/m.gguf").read_bytes() == GGUF + b"old"
    with pytest.raises(ModelNotFoundError, match="no such revision"):
        quiet_pull("o/m@v2")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for name, end in (("o/m@v1", b"old"), ("o/m", b"new")):
        assert local_model(name, progress=False).read_bytes() == GGUF + end


def test_several_files_of_a_quantisation_are_not_guessed(hub: FakeHub) -> None:
    hub.repositories["o/m"] = ggufs("a-Q4_0.gguf", "b-Q4_0.gguf")
    with pytest.raises(InvalidArgumentError, match=r"several files: a-Q4_0\.gguf, b-Q4_0\.gguf"):
        quiet_pull("o/m:Q4_0")


def test_all_parts_of_a_split_gguf_are_fetched(hub: FakeHub) -> None:
    parts = [f"Q4_0/m-Q4_0-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    hub.repositories["o/m"] = ggufs(*parts, "m-Q8_0.gguf", "half-Q2_K-00001-of-00002.gguf")
    path = quiet_pull("o/m:Q4_0")
    assert path.name == "m-Q4_0-00001-of-00003.gguf"
    assert len(list(path.parent.iterdir())) == 3
    assert quiet_pull("o/m:m-Q4_0-00002-of-00003.gguf") == path
    with pytest.raises(ModelNotFoundError):  # a part of it is missing
        quiet_pull("o/m:Q2_K")


@pytest.mark.parametrize(
    ("free", "expected"),
    [(1 << 40, "m-Q8_0.gguf"), (1_000, "m-Q4_K_M.gguf"), (700, "m-Q4_0.gguf")],
)
def test_the_best_gguf_that_fits_memory_is_taken_and_named(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, free: int, expected: str
) -> None:
    sizes = {
        "F16": 1600,
        "Q8_0": 850,
        "Q6_K": 656,
        "Q5_K_M": 550,
        "Q4_K_M": 480,
        "Q4_0": 450,
        "Q2_K": 262,
    }
    hub.repositories["o/m"] = {
        f"m-{name}.gguf": b"GGUF" + bytes(size - 4) for name, size in sizes.items()
    }
    monkeypatch.setattr(hub_files, "free_memory", lambda: free)
    texts = said("o/m")
    assert f"{expected} " in texts[0] and "is the best that fits into" in texts[0]
    assert hub.downloads() == [expected]


def test_where_none_fits_the_smallest_is_named(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories["o/m"] = ggufs("m-Q8_0.gguf", "m-Q4_0.gguf")
    monkeypatch.setattr(hub_files, "free_memory", lambda: 100)
    with pytest.raises(InvalidArgumentError, match=r"none fits .* o/m:Q4_0 takes it all the same"):
        quiet_pull("o/m")
    assert quiet_pull("o/m:Q4_0").name == "m-Q4_0.gguf"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Qwen3-0.6B-Q8_0.gguf", "Q8_0"),
        ("model.Q4_K_M.gguf", "Q4_K_M"),
        ("m-UD-Q4_K_XL-00001-of-00002.gguf", "UD-Q4_K_XL"),
        ("m-IQ2_XXS.gguf", "IQ2_XXS"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("model-f16.gguf", "F16"),
        ("m-BF16.gguf", "BF16"),
        ("model.gguf", ""),
        ("qwen2.gguf", ""),
    ],
)
def test_the_quantisation_is_read_off_a_name(name: str, expected: str) -> None:
    assert hub_files.quantisation(name) == expected


def test_a_repository_of_pickles_is_refused(hub: FakeHub) -> None:
    hub.repositories["o/m"] = {"config.json": b"{}", "pytorch_model.bin": b"pickle"}
    with pytest.raises(ModelNotFoundError, match=r"Pickles .* are never read"):
        quiet_pull("o/m")
    assert hub.downloads() == []


def test_a_model_is_fetched_once_and_then_opens_without_the_hub(hub: FakeHub) -> None:
    hub.repositories["o/m"] = {"m.gguf": GGUF}
    first = local_model("o/m", progress=False)
    asked = len(hub.requests)
    assert local_model("hub:o/m", progress=False) == first
    assert len(hub.requests) == asked


def test_pull_fetches_what_is_newer_and_removes_what_was_there(hub: FakeHub) -> None:
    hub.repositories["o/m"] = {"m.gguf": GGUF}
    first = quiet_pull("o/m")
    hub.repositories["o/m"] = {"m.gguf": GGUF + b"newer"}
    second = quiet_pull("o/m")
    assert second.read_bytes() == GGUF + b"newer"
    assert not first.exists()
    assert local_model("o/m") == second


def test_a_file_that_is_missing_is_fetched_again(hub: FakeHub) -> None:
    hub.repositories["o/m"] = {"m.gguf": GGUF}
    quiet_pull("o/m").resolve().unlink()
    assert find_pulled("o/m") is None
    assert local_model("o/m", progress=False).read_bytes() == GGUF


def test_a_download_that_breaks_off_goes_on_where_it_was(hub: FakeHub) -> None:
    hub.repositories["o/m"] = {"m.gguf": GGUF}
    hub.breaks_off_after = 1000
    assert quiet_pull("o/m").read_bytes() == GGUF
    assert hub.downloads() == ["m.gguf", "m.gguf"]


def test_too_many_requests_are_tried_again(hub: FakeHub) -> None:
    hub.repositories["o/m"] = {"m.gguf": GGUF}
    hub.statuses = [429, 429]
    assert quiet_pull("o/m").read_bytes() == GGUF


def test_errors_of_the_server_are_told(hub: FakeHub, tmp_path: Path) -> None:
    hub.repositories["o/m"] = {"m.gguf": GGUF}
    hub.statuses = [500]
    with pytest.raises(FetchError, match="HTTP status 500"):
        quiet_pull("o/m")
    assert leftovers(tmp_path) == [] and pulled_models() == []


def test_an_unknown_name_says_what_was_tried(hub: FakeHub) -> None:
    with pytest.raises(ModelNotFoundError) as error:
        quiet_pull("o/unknown")
    for text in ("no such file or folder here", hub.url, "no token is sent: set HF_TOKEN"):
        assert text in str(error.value)


def test_a_token_goes_to_the_hub_and_to_no_other_host(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories["o/m"] = {"m.gguf": GGUF, "config.json": b"{}"}
    hub.token = "hf_secret"
    with pytest.raises(ModelNotFoundError, match="or a private one"):
        quiet_pull("o/m")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert quiet_pull("o/m").read_bytes() == GGUF
    assert hub.tokens and not any(each.startswith("/cdn") for each in hub.tokens)


def test_without_a_network_it_says_how_to_go_on(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelNotFoundError) as error:
        quiet_pull("o/m")
    for text in (
        "offline mode is enabled",
        "pagewheel pull o/m",
        "HF_ENDPOINT",
        constants.HF_HUB_CACHE,
    ):
        assert text in str(error.value)
    assert hub.requests == []


def test_a_hub_that_is_down_is_told(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelNotFoundError, match=r"http://127\.0\.0\.1:9 was not reached"):
        quiet_pull("o/m")


def test_without_a_network_the_hubs_cache_is_used(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub.repositories["o/m"] = ggufs("m-Q8_0.gguf", "m-Q4_0.gguf")
    path = quiet_pull("o/m:Q4_0")
    for note in (tmp_path / "cache" / "pulled").iterdir():  # as if another program had fetched it
        note.unlink()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert quiet_pull("o/m") == path
    with pytest.raises(ModelNotFoundError):
        quiet_pull("o/m:Q8_0")


def test_the_free_space_is_looked_at_first(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repositories["o/m"] = {"m.gguf": GGUF}
    free = type("Usage", (), {"free": 100})
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _path: free)
    with pytest.raises(FetchError, match=r"2\.1 KB are to be fetched .* make room"):
        quiet_pull("o/m")
    assert hub.downloads() == []


# What a hub may say to do harm. None of it may leave a file, least of all outside of the caches.


@pytest.mark.parametrize(
    "change",
    [
        {"rfilename": "../../../../evil.gguf"},
        {"rfilename": "/tmp/evil.gguf"},
        {"rfilename": "a/../../evil.gguf"},
        {"rfilename": "a\\..\\evil.gguf"},
        {"rfilename": "evil\n.gguf"},
        {"rfilename": 5},
        {"size": -1},
        {"size": "1"},
        {"size": None},
        {"size": 1 << 60},
        {"lfs": {"size": 5, "sha256": "../../evil", "pointerSize": 1}},
        {"lfs": "evil"},
    ],
)
def test_a_hostile_listing_is_refused(hub: FakeHub, tmp_path: Path, change: dict[str, Any]) -> None:
    hub.repositories["o/m"] = {"m.gguf": GGUF, "config.json": b"{}"}
    hub.listing = lambda info: info["siblings"][0].update(change)
    with pytest.raises(FetchError, match="answers with what no hub says"):
        quiet_pull("o/m")
    assert hub.downloads() == [] and outside(tmp_path) == []


@pytest.mark.parametrize(
    "change",
    [
        {"sha": "../../evil"},
        {"sha": None},
        {"siblings": 3},
        {"siblings": [None]},
        {"siblings": [{}]},
    ],
)
def test_a_listing_that_is_none_is_refused(
    hub: FakeHub, tmp_path: Path, change: dict[str, Any]
) -> None:
    hub.repositories["o/m"] = {"m.gguf": GGUF}
    hub.listing = lambda info: info.update(change)
    with pytest.raises(FetchError):
        quiet_pull("o/m")
    assert outside(tmp_path) == [] and hub.downloads() == []


def test_a_listing_without_end_is_refused(hub: FakeHub) -> None:
    hub.repositories["o/m"] = {"m.gguf": GGUF}
    hub.endless = "/revision/main"
    with pytest.raises(FetchError, match="goes on after 67108864 bytes"):
        quiet_pull("o/m")


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Linked-ETag": '"../../../../../evil"'},
        {"ETag": '"../../evil"', "X-Linked-ETag": ""},
        {"X-Linked-ETag": '"/tmp/evil"'},
        {"X-Repo-Commit": "../../../evil"},
        {"X-Repo-Commit": "0" * 40},
    ],
)
def test_headers_lead_nowhere(hub: FakeHub, tmp_path: Path, headers: dict[str, str]) -> None:
    hub.repositories["o/m"] = {"m.gguf": GGUF}
    hub.headers = headers
    with pytest.raises(FetchError):
        quiet_pull("o/m")
    assert outside(tmp_path) == [] and pulled_models() == []


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
@pytest.mark.parametrize("content", [b"other", GGUF + b"longer", bytes(len(GGUF)), b""])
def test_other_content_than_listed_is_not_kept(
    hub: FakeHub, tmp_path: Path, name: str, content: bytes
) -> None:
    hub.repositories["o/m"] = {"model.safetensors": GGUF, "config.json": GGUF}
    hub.content[name] = content
    with pytest.raises(FetchError):
        quiet_pull("o/m")
    assert leftovers(tmp_path) == [] and pulled_models() == []
    assert not list(tmp_path.rglob(f"snapshots/*/{name}"))
    hub.content.clear()
    assert (quiet_pull("o/m") / name).read_bytes() == GGUF


def test_a_hub_that_changes_its_mind_removes_no_file(hub: FakeHub) -> None:
    hub.repositories["o/m"] = {"m.gguf": GGUF}
    path = quiet_pull("o/m")
    os.utime(path, (0, 0))
    hub.listing = lambda info: info["siblings"][0]["lfs"].update(sha256="0" * 64)
    with pytest.raises(FetchError, match="another digest"):
        quiet_pull("o/m")
    assert path.read_bytes() == GGUF
    assert local_model("o/m") == path


def test_a_body_without_end_is_cut(hub: FakeHub, tmp_path: Path) -> None:
    hub.repositories["o/m"] = {"m.gguf": GGUF}
    hub.endless = "/cdn/o/m/m.gguf"
    with pytest.raises(FetchError, match=r"more than the expected|goes on after"):
        quiet_pull("o/m")
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("target", ["/elsewhere", "file:///etc/passwd", "/o/m/resolve/main/m.gguf"])
def test_redirects_elsewhere_give_nothing(hub: FakeHub, tmp_path: Path, target: str) -> None:
    hub.repositories["o/m"] = {"m.gguf": GGUF}
    hub.headers = {"Location": target}
    with pytest.raises(FetchError):
        quiet_pull("o/m")
    assert leftovers(tmp_path) == [] and pulled_models() == []


def test_other_uses_of_huggingface_hub_are_left_alone(hub: FakeHub) -> None:
    from huggingface_hub import hf_hub_download

    hub.repositories["o/m"] = {"m.gguf": GGUF}
    quiet_pull("o/m")
    hub.headers = {"X-Linked-ETag": '"an etag of (another) kind"'}
    assert Path(hf_hub_download("o/m", "m.gguf", force_download=True)).read_bytes() == GGUF


@pytest.mark.parametrize(
    "page", ["", "/", "/tree/main", "/blob/main/m.gguf", "/resolve/main/m.gguf?download=true"]
)
def test_a_page_of_the_hub_is_a_name(hub: FakeHub, page: str) -> None:
    hub.repositories["o/m"] = {"m.gguf": GGUF}
    assert quiet_pull(f"{hub.url}/o/m{page}").is_relative_to(constants.HF_HUB_CACHE)


def test_a_url_is_fetched_once(hub: FakeHub) -> None:
    hub.repositories["o/m"] = ggufs("m-00001-of-00002.gguf", "m-00002-of-00002.gguf")
    url = f"{hub.url}/cdn/o/m/m-00001-of-00002.gguf"
    path = local_model(url, progress=False)
    assert path.read_bytes().startswith(b"GGUF") and len(list(path.parent.iterdir())) == 2
    assert local_model(url, progress=False) == path
    assert len(hub.downloads()) == 2
    remove_pulled(url)
    assert not path.parent.exists()


@pytest.mark.parametrize("path", ["m.bin", "", "..%2F..%2Fm"])
def test_other_urls_are_refused(hub: FakeHub, path: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"not the URL of a \.gguf file"):
        quiet_pull(f"{hub.url}/{path}")


def test_a_url_of_something_else_leaves_nothing(hub: FakeHub, tmp_path: Path) -> None:
    hub.repositories["o/m"] = {"m.gguf": b"<html>"}
    with pytest.raises(FetchError, match="no GGUF file"):
        quiet_pull(f"{hub.url}/cdn/o/m/m.gguf")
    hub.endless = "/cdn/o/m/m.gguf"
    with pytest.raises(FetchError, match="does not say how many bytes"):
        quiet_pull(f"{hub.url}/cdn/o/m/m.gguf")
    with pytest.raises(FetchError, match="could not be fetched"):
        quiet_pull(f"{hub.url}/cdn/o/m/other.gguf")
    assert leftovers(tmp_path) == [] and list(tmp_path.rglob("*.gguf")) == []


def test_what_is_removed_is_gone_and_what_others_use_stays(hub: FakeHub) -> None:
    hub.repositories["o/m"] = ggufs("m-Q8_0.gguf", "m-Q4_0.gguf")
    kept, gone = quiet_pull("o/m:Q8_0"), quiet_pull("o/m:Q4_0")
    same = quiet_pull("o/m:m-Q8_0.gguf")
    assert same == kept
    target = gone.resolve()
    remove_pulled("o/m:Q4_0")
    assert not gone.exists() and not target.exists()
    remove_pulled("o/m:Q8_0")
    assert kept.exists()
    remove_pulled("o/m:m-Q8_0.gguf")
    assert not any(each.is_file() for each in Path(constants.HF_HUB_CACHE).glob("models--*/**/*"))
    with pytest.raises(KeyError):
        remove_pulled("o/m:Q8_0")


def test_a_note_that_names_other_files_removes_none(hub: FakeHub, tmp_path: Path) -> None:
    hub.repositories["o/m"] = {"m.gguf": GGUF}
    quiet_pull("o/m")
    mine = tmp_path / "models--o--m" / "snapshots" / "c" / "mine.gguf"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(GGUF)
    (note,) = (tmp_path / "cache" / "pulled").iterdir()
    values = json.loads(note.read_bytes())
    values["files"] = {str(tmp_path / "mine.gguf"): 4, str(tmp_path / "hf" / "x"): 3}
    (tmp_path / "mine.gguf").write_bytes(GGUF)
    note.write_text(json.dumps(values), encoding="utf-8")
    remove_pulled("o/m")
    assert (tmp_path / "mine.gguf").exists() and mine.exists()


@pytest.mark.parametrize("text", [b"", b"[]", b'{"name": 1}', b"[" * 100_000])
def test_a_damaged_note_is_none(hub: FakeHub, tmp_path: Path, text: bytes) -> None:
    hub.repositories["o/m"] = {"m.gguf": GGUF}
    path = quiet_pull("o/m")
    (note,) = (tmp_path / "cache" / "pulled").iterdir()
    note.write_bytes(text)
    assert pulled_models() == []
    assert local_model("o/m", progress=False) == path


def test_git_digests_are_gits() -> None:
    assert git_digest(b"hello\n") == "ce013625030ba8dba906f756967f9e9ca394464a"
