"""The quality that eviction leaves, written down, tabulated and drawn."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.eviction_quality import Setting, measure
from benchmarks.eviction_report import draw, table


def test_quality_of_eviction_is_written_down_setting_by_setting(
    tiny_folder: Path, tmp_path: Path
) -> None:
    arguments = argparse.Namespace(
        out=tmp_path / "q.json",
        only=["passkey", "agreement", "stream"],
        threads=1,
        exact=True,
        window=8,
        prompt=256,
        passkeys=2,
        conversations=1,
        prose=3,
        new_tokens=4,
        context=1100,
        beyond=100,
        stream_budget=128,
    )
    chosen = [Setting("pagewheel", "full", 1), Setting("pagewheel", "norm_sum", 0.5, "token")]
    results = measure(tiny_folder, chosen, arguments).results
    assert json.loads(arguments.out.read_text()) == results
    assert results["agreement"]["pagewheel full block rotation 1"] == [1.0] * 3
    assert len(results["agreement"]["pagewheel norm_sum token rotation 0.5"]) == 3
    streamed = results["stream"]["pagewheel norm_sum token rotation 0.5"]
    assert streamed["inside"] > 1 and streamed["beyond"] > 1
    assert "| pagewheel norm_sum token rotation |" in table(results)
    draw(results, tmp_path / "q.png")
    assert (tmp_path / "q.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
