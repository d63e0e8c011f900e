"""Recording what eviction kept, and drawing it."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import pagewheel
from pagewheel.cli.app import app
from pagewheel.trace import Trace, draw_picture, record, write_page
from pagewheel.trace.draw import presence


@pytest.fixture(scope="module")
def trace(smollm2_folder: Path) -> Trace:
    config = pagewheel.CacheEvictionConfig(
        32, 32, 128, apply_rotation=True, policy="tova", granularity="token"
    )
    return record(smollm2_folder, "A list of animals: ", config, 180)


def test_a_trace_says_what_was_held_and_what_went(trace: Trace) -> None:
    assert trace.layers == list(range(30))
    assert len(trace.generated) == 180
    for layer in (0, 29):
        decisions = trace.of_layer(layer)
        assert [len(decision.positions) for decision in decisions] == [128] * len(decisions)
        assert len(decisions) == 2
        first, second = decisions
        assert first.positions == list(range(128)) and set(first.deltas) == {0}
        assert first.processed == 128 and second.processed == 160
        assert not set(second.positions) & set(first.dropped)
        # A key rotated back by as many tokens as went before it.
        gone = np.array(first.dropped)
        for token, delta in zip(second.positions, second.deltas, strict=True):
            assert delta == (np.sum(gone < token) if token < 128 else 0)
    assert trace.of_layer(0)[0].dropped != trace.of_layer(29)[0].dropped


def test_a_trace_is_read_as_it_was_written(trace: Trace, tmp_path: Path) -> None:
    trace.write(tmp_path / "trace.json.gz")
    assert Trace.read(tmp_path / "trace.json.gz") == trace
    (tmp_path / "other").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="other is no trace"):
        Trace.read(tmp_path / "other")


def test_the_picture_has_a_pixel_for_every_token_and_decision(trace: Trace, tmp_path: Path) -> None:
    rows = presence(trace, 3)
    assert rows.shape == (3, len(trace.texts) - 1)
    assert (rows[0, 128:] == 0).all() and (rows[-1] > 0).all()
    assert [(row == 2).sum() for row in rows] == [32, 64, 64]
    draw_picture(trace, 3, tmp_path / "layer.png")
    content = (tmp_path / "layer.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", content[16:24])
    (length,) = struct.unpack(">I", content[33:37])
    pixels = zlib.decompress(content[41 : 41 + length])
    assert len(pixels) == height * (1 + 3 * width)


def test_the_page_holds_the_trace_and_nothing_from_elsewhere(trace: Trace, tmp_path: Path) -> None:
    write_page(trace, tmp_path / "trace.html")
    page = (tmp_path / "trace.html").read_text()
    assert "http" not in page.replace("https://", "").split("const data")[0]
    assert page.count("</script>") == 1
    assert '"layers"' in page


def test_the_command_writes_trace_page_and_pictures(smollm2_folder: Path, tmp_path: Path) -> None:
    sizes = ["--start-size", "32", "--recent-size", "32", "--max-cache-size", "128"]
    options = ["-o", str(tmp_path), "--model", str(smollm2_folder), "-n", "128", *sizes]
    result = CliRunner().invoke(app, ["trace", *options, "Count: one, two, three"])
    assert result.exit_code == 0, result.output
    assert "30 layers, 30 decisions" in result.output
    assert len(list(tmp_path.glob("layer-*.png"))) == 30
    assert Trace.read(tmp_path / "trace.json.gz").layers == list(range(30))
    wrong = CliRunner().invoke(app, ["trace", *options, "--policy", "best", "x"])
    assert wrong.exit_code == 1 and "policy is 'best'" in wrong.output
