"""Another engine that generates within a callback of one, each in its own kernels' registers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
import pagewheel

def engine():
    return pagewheel.ContinuousBatchingPipeline(
        sys.argv[1], pagewheel.SchedulerConfig(), "CPU", {"KV_CACHE_PRECISION": "u8"})

def generated(pipeline, first, **options):
    config = pagewheel.GenerationConfig(max_new_tokens=12, ignore_eos=True, **options)
    return pipeline.generate([list(range(first, first + 150))], config)[0].m_generation_ids[0]

outer, inner = engine(), engine()
expected = generated(outer, 10), generated(inner, 90)
found = []

def processor(token_ids, logits):
    found.append(generated(inner, 90))

assert generated(outer, 10, logits_processors=[processor]) == expected[0]
assert found == [expected[1]] * 12, found

handle = outer.add_request(0, list(range(10, 160)), pagewheel.GenerationConfig(max_new_tokens=12,
                                                                               ignore_eos=True))
while outer.has_non_finished_requests():
    outer.step()
    assert generated(inner, 90) == expected[1]
assert handle.read_all()[0].generated_ids == expected[0]
operations = pagewheel._pagewheel.describe_operations(sys.argv[1], "CPU", {})
print(operations.linear)
"""


@pytest.mark.parametrize("isa", ["", "amx_model"])
def test_an_engine_within_a_logits_processor_of_another_changes_neither(
    tiny_folder: Path, isa: str
) -> None:
    """With prompts long enough for tiles: by default on a processor with AMX, and on its model."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    if isa == "amx_model" and "avx512_bf16" not in flags:
        pytest.skip("no AVX512_BF16")
    environment = {key: value for key, value in os.environ.items() if key != "PAGEWHEEL_ISA"}
    if isa:
        environment["PAGEWHEEL_ISA"] = isa
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tiny_folder)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if isa:
        assert done.stdout.startswith("amx_model kernels"), done.stdout
