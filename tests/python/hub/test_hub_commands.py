"""Names on the command line and in Python: fetched, listed, served and removed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from convert import tiny_llama
from fake_hub import FakeHub
from typer.testing import CliRunner, Result

import pagewheel
from pagewheel.cli.app import app
from pagewheel.serve.models.conversion import Conversion, ConversionLimits
from pagewheel.serve_options import ServeOptions

NAME = "someone/tiny-GGUF"


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return tiny_llama.write_for_many_steps(tmp_path_factory.mktemp("tiny") / "t.gguf").read_bytes()


@pytest.fixture
def tiny(hub: FakeHub, gguf: bytes) -> FakeHub:
    hub.repositories[NAME] = {"tiny-F32.gguf": gguf, "README.md": b"# tiny"}
    return hub


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_a_day_of_a_newcomer(tiny: FakeHub, tmp_path: Path) -> None:
    def pagewheel_command(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from pagewheel.cli import main; main()", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    pulled = pagewheel_command("pull", NAME)
    assert pulled.returncode == 0, pulled.stderr
    assert Path(pulled.stdout.strip()).name == "tiny-F32.gguf"
    asked = len(tiny.requests)
    answered = pagewheel_command("generate", "-m", NAME, "--raw", "-n", "3", "hello")
    assert answered.returncode == 0, answered.stderr
    assert answered.stdout
    assert len(tiny.requests) == asked
    listed = json.loads(pagewheel_command("list", "--json").stdout)
    assert [each["name"] for each in listed] == [NAME]
    assert listed[0]["form"] == "GGUF F32" and listed[0]["converted_bytes"] > 1000
    assert listed[0]["is_whole"] and listed[0]["last_use"] > 0
    removed = pagewheel_command("rm", NAME)
    assert removed.stdout.startswith(f"removed {NAME} (")
    assert json.loads(pagewheel_command("list", "--json").stdout) == []
    assert not list((tmp_path / "cache" / "models").iterdir())


@pytest.mark.parametrize("name", [NAME, f"hub:{NAME}", f"{NAME}:tiny-F32.gguf", f"{NAME}:F32"])
def test_pipelines_and_tokenizers_open_by_name(tiny: FakeHub, name: str) -> None:
    pipeline = pagewheel.LLMPipeline(name, "CPU")
    assert pipeline.generate("hello", max_new_tokens=2, ignore_eos=True)
    assert pagewheel.Tokenizer(name).get_eos_token_id() >= 0


def test_a_name_may_be_converted_and_described(tiny: FakeHub, tmp_path: Path) -> None:
    result = invoke("convert", "--quiet", NAME, str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / "openvino_model.xml").is_file()
    assert "tiny-F32.gguf" in invoke("info", NAME).stdout


def test_models_are_served_by_their_names(tiny: FakeHub, tmp_path: Path) -> None:
    tiny.repositories["someone/other"] = tiny.repositories[NAME]
    given = [NAME, "short=someone/other", f"hub:{NAME}:F32"]
    models = ServeOptions().server_settings(given).models
    assert [each.name for each in models] == [NAME, "short", f"{NAME}:F32"]
    assert all(each.path is not None and each.path.is_file() for each in models)


def test_list_and_cache_say_what_there_is(tiny: FakeHub, gguf: bytes) -> None:
    assert "no models yet" in invoke("list").stderr
    assert invoke("pull", "--quiet", NAME).exit_code == 0
    header, row = invoke("list").stdout.splitlines()
    assert header.split() == ["NAME", "FORM", "SIZE", "LAST", "USE", "CONVERTED"]
    assert row.split()[:3] == [NAME, "GGUF", "F32"] and row.split()[-1] == "-"
    Path(invoke("convert", "--quiet", NAME).stdout.strip()).resolve(strict=True)
    assert invoke("list").stdout.split()[-1] in ("KB", "MB")
    lines = invoke("cache").stdout.splitlines()
    assert [each.split("  ")[0] for each in lines] == [
        *("converted models", "downloads", "fetched from the hub")
    ]
    assert invoke("cache", "--clear").stdout.startswith("removed 1 converted models, ")
    assert invoke("list").stdout.split()[-1] == "-"


def test_folders_of_the_user_are_never_removed(tiny: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "model.gguf").write_bytes(b"GGUF")
    for path in (tmp_path / "mine", tmp_path / "mine" / "model.gguf"):
        result = invoke("rm", str(path))
        assert result.exit_code == 2 and path.exists()
    assert invoke("rm", "someone/unknown").exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("pull", "no name"),
        ("pull", "hub:"),
        ("pull", "./here"),
        ("generate", "-m", "hub:../x", "a"),
    ],
)
def test_what_is_no_name_is_one_line(hub: FakeHub, arguments: tuple[str, ...]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ") and "owner/name" in result.stderr
    assert hub.requests == []


def test_an_unknown_name_is_one_line(hub: FakeHub) -> None:
    result = invoke("generate", "-m", "someone/unknown", "hello")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1 and hub.url in result.stderr


def test_a_hugging_face_folder_opens_by_name(hub: FakeHub, tmp_path: Path) -> None:
    from convert import tiny_models

    model = tiny_models.make("llama")
    folder = tiny_models.save(model, tmp_path / "folder")
    hub.repositories["someone/tiny"] = {
        each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()
    } | {"pytorch_model.bin": b"pickle", "modeling_tiny.py": b"raise SystemExit"}
    result = invoke("info", "--json", "someone/tiny")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["architecture"] == "LlamaForCausalLM"
    assert "pytorch_model.bin" not in hub.downloads()


def test_a_server_converts_a_split_gguf_of_the_hubs_cache(
    hub: FakeHub, gguf: bytes, tmp_path: Path
) -> None:
    # A link of the cache: behind it is a name without the part's number.
    hub.repositories[NAME] = {"m-00001-of-00001.gguf": gguf}
    path = Path(invoke("pull", "--quiet", NAME).stdout.strip())
    assert path.is_symlink()
    folder = Conversion("tiny", path, ConversionLimits()).run()
    description = json.loads((folder / "pagewheel.json").read_bytes())
    assert description["source"]["file"] == "m-00001-of-00001.gguf"
