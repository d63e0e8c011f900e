"""A trace as a picture or as a page with a slider; nothing but numpy and zlib is needed."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pagewheel.trace.record import Trace

_ABSENT, _KEPT, _GONE = (255, 255, 255), (47, 109, 179), (222, 222, 226)
_PROMPT = (27, 62, 104)


def _write_png(pixels: NDArray[np.uint8], path: Path) -> None:
    """pixels u8 [height, width, 3]."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + pixels[y].tobytes() for y in range(height))

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def presence(trace: Trace, layer: int) -> NDArray[np.uint8]:
    """u8 [decisions + 1, tokens]: 0 not computed yet, 1 held, 2 evicted; the last row is the end.
    A row is what is held after the decision."""
    decisions = trace.of_layer(layer)
    tokens = len(trace.texts) - 1  # the last token was never computed
    rows = np.zeros((len(decisions) + 1, tokens), np.uint8)
    gone = np.zeros(tokens, bool)
    for row, decision in enumerate(decisions):
        gone[decision.dropped] = True
        rows[row, : decision.processed] = 1
        rows[row, gone] = 2
    rows[-1] = np.where(gone, 2, 1)
    return rows


def draw_picture(trace: Trace, layer: int, path: Path) -> None:
    """A PNG: a column per token of the sequence, time runs down, a band per decision.

    Dark: held and of the prompt; blue: held and generated; grey: evicted.
    """
    rows = presence(trace, layer)
    colours = np.array([_ABSENT, _KEPT, _GONE], np.uint8)
    pixels = colours[rows]
    prompt = len(trace.prompt)
    pixels[:, :prompt][rows[:, :prompt] == 1] = _PROMPT
    across = max(1, 1200 // pixels.shape[1])
    down = max(1, 600 // pixels.shape[0])
    _write_png(np.repeat(np.repeat(pixels, down, 0), across, 1), path)


def write_page(trace: Trace, path: Path) -> None:
    """An HTML page without dependencies: choose a layer, move through the decisions, and read what
    was held, what went, the scores and by how much keys are turned."""
    content = {
        "config": trace.config,
        "prompt": len(trace.prompt),
        "texts": trace.texts,
        "layers": {
            str(layer): [
                {
                    "positions": decision.positions,
                    "deltas": decision.deltas,
                    "scores": decision.scores,
                    "dropped": decision.dropped,
                }
                for decision in trace.of_layer(layer)
            ]
            for layer in trace.layers
        },
    }
    data = json.dumps(content).replace("</", "<\\/")
    path.write_text(_PAGE.replace("/*DATA*/", data), encoding="utf-8")


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>pagewheel trace</title>
<style>
body { font: 14px system-ui, sans-serif; margin: 2em; max-width: 75em }
#tokens span { padding: 1px 0; white-space: pre-wrap; border-radius: 2px }
#tokens .gone { text-decoration: line-through; color: #b00; background: #fdd }
#tokens .gap { color: #999; margin: 0 .4em }
input[type=range] { width: 40em; vertical-align: middle }
</style>
<h1>What the cache holds</h1>
<p id="config"></p>
<p>Layer <select id="layer"></select>
decision <input type="range" id="step" min="0" value="0"> <output id="at"></output></p>
<p>Shade: score. Struck: goes now. Numbers in grey: tokens evicted there before. Hover for a token's
position, score and turn.</p>
<div id="tokens"></div>
<script>
const data = /*DATA*/;
const by = id => document.getElementById(id);
by("config").textContent = data.config;
for (const layer of Object.keys(data.layers)) by("layer").add(new Option(layer));
function show() {
  const decisions = data.layers[by("layer").value];
  by("step").max = decisions.length - 1;
  const d = decisions[by("step").value];
  by("at").textContent = `${+by("step").value + 1} of ${decisions.length}: ` +
    `${d.positions.length} tokens held of ${d.positions.at(-1) + 1}, ${d.dropped.length} go`;
  const gone = new Set(d.dropped), top = Math.max(...d.scores, 1e-9);
  const tokens = by("tokens");
  tokens.replaceChildren();
  let next = 0;
  d.positions.forEach((p, i) => {
    if (p > next) {
      const gap = document.createElement("span");
      gap.className = "gap";
      gap.textContent = `[${p - next}]`;
      tokens.append(gap);
    }
    next = p + 1;
    const span = document.createElement("span");
    span.textContent = data.texts[p];
    span.title = `token ${p}${p < data.prompt ? " (prompt)" : ""}, score ${d.scores[i]}, ` +
      `turned back by ${d.deltas[i]}`;
    if (gone.has(p)) span.className = "gone";
    else span.style.background = `rgba(47,109,179,${0.7 * Math.sqrt(d.scores[i] / top)})`;
    tokens.append(span);
  });
}
by("layer").onchange = () => { by("step").value = 0; show(); };
by("step").oninput = show;
if (Object.keys(data.layers).length) show();
</script>
</html>
"""
