"""A run as JSON: raw samples, summaries, and all that is needed to repeat it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gguf import GGUFReader

from benchmarks.machine import Machine
from benchmarks.peers import Peer
from benchmarks.rounds import ScenarioResult, counted, summarise
from benchmarks.scenarios import SCENARIOS
from pagewheel.model_info import read_info

SCHEMA = 1


def installed_packages() -> dict[str, str]:
    """Name and version of every package in this environment."""
    found = {one.name: one.version for one in importlib.metadata.distributions()}
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def checkout() -> dict[str, Any] | None:
    """The commit this harness is run from and whether files differ from it; None without git."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    try:
        commit = git("rev-parse", "--verify", "--quiet", "HEAD")
        return {"commit": commit, "changed": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.CalledProcessError):
        return None


def describe_model(path: Path) -> dict[str, Any]:
    """Name, bytes on disk and, for a single file, its SHA-256."""
    if path.is_dir():
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        return {"name": path.name, "bytes": size, "sha256": None}
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": digest}


def share_of_a_token(model: Path) -> float:
    """The part of the weights' bytes that a token reads: of a layer's experts those that it has."""
    if model.is_dir():
        info = read_info(model)
        total = sum(each.bytes for each in info.weights.values())
        return (info.weight_bytes_per_token or total) / total
    reader = GGUFReader(model)
    numbers = {name.partition(".")[2]: field.contents() for name, field in reader.fields.items()}
    active = numbers.get("expert_used_count", 1) / (numbers.get("expert_count") or 1)
    sizes = {each.name: int(each.n_bytes) for each in reader.tensors}
    read = sum(size * (active if "_exps" in name else 1) for name, size in sizes.items())
    if "output.weight" in sizes:  # else the embedding is the vocabulary head's too
        read -= sizes["token_embd.weight"]
    return read / sum(sizes.values())


def scenario_record(
    result: ScenarioResult, peers: Sequence[str], allow_busy: bool
) -> dict[str, Any]:
    """One scenario: metrics, every round taken, and the summary of those that count."""
    scenario = SCENARIOS[result.name]
    rounds = counted(result.rounds, allow_busy)
    summaries = {
        metric.key: {
            peer: asdict(one) for peer, one in summarise(rounds, peers, metric.key).items()
        }
        for metric in scenario.metrics
    }
    return {
        "name": scenario.name,
        "title": scenario.title,
        "metrics": [asdict(metric) for metric in scenario.metrics],
        "rounds": [asdict(one) for one in result.rounds],
        "counted_rounds": len(rounds),
        "disturbed_rounds": sum(one.disturbed is not None for one in counted(result.rounds, True)),
        "summary": summaries,
    }


def run_record(
    *,
    command: Sequence[str],
    machine: Machine,
    model: Path,
    prompts_sha256: str,
    peers: Sequence[Peer],
    settings: Mapping[str, Mapping[str, str]],
    weight_bytes: Mapping[str, int],
    allow_busy: bool,
    scenarios: Sequence[ScenarioResult],
) -> dict[str, Any]:
    """The whole run."""
    names = [peer.name for peer in peers]
    return {
        "schema": SCHEMA,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": ["python", "-m", "benchmarks", *command],
        "checkout": checkout(),
        "machine": asdict(machine),
        "python": platform.python_version(),
        "packages": installed_packages(),
        "model": describe_model(model),
        "prompts_sha256": prompts_sha256,
        "allow_busy": allow_busy,
        "peers": [
            {
                **asdict(peer),
                "settings": dict(settings[peer.name]),
                "weight_bytes": weight_bytes[peer.name],
            }
            for peer in peers
        ],
        "scenarios": [scenario_record(one, names, allow_busy) for one in scenarios],
    }
