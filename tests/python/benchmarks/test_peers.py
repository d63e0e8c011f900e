"""Engines and their settings, as the command line names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.peers import Peer, load_engine, parse_peers


def test_peers_and_settings_are_parsed() -> None:
    peers = parse_peers(
        ["pagewheel", "twin=pagewheel"], ["twin.cache_size=2", "twin.A.B=true", "pagewheel.X=f16"]
    )
    assert peers == [
        Peer("pagewheel", "pagewheel", {"X": "f16"}),
        Peer("twin", "pagewheel", {"cache_size": 2, "A.B": True}),
    ]


@pytest.mark.parametrize(
    ("peers", "settings"),
    [
        (["no-such-engine"], []),
        (["pagewheel", "pagewheel"], []),
        (["bad name=pagewheel"], []),
        (["a.=pagewheel"], []),
        (["pagewheel"], ["pagewheel.key"]),
        (["pagewheel"], ["key=value"]),
        (["pagewheel"], ["other.key=value"]),
    ],
)
def test_wrong_peers_and_settings_are_refused(peers: list[str], settings: list[str]) -> None:
    with pytest.raises(ValueError):
        parse_peers(peers, settings)


def test_what_is_no_engine_is_refused() -> None:
    with pytest.raises(ValueError, match="is no"):
        load_engine("pathlib:Path")


def test_settings_of_eviction_reach_the_engine(tiny_folder: Path) -> None:
    """Past the pool: the cache of 9 blocks holds 288 tokens."""
    sizes = {"recent_size": 32, "max_cache_size": 128}
    (peer,) = parse_peers(
        ["p=pagewheel"],
        [
            *(f"p.eviction.{key}={value}" for key, value in sizes.items()),
            "p.eviction.apply_rotation=true",
            "p.eviction.policy=streaming",
            "p.num_kv_blocks=9",
        ],
    )
    engine = load_engine(peer.engine)(peer.options)
    engine.load(tiny_folder, "CPU")
    assert engine.settings()["eviction.max_cache_size"] == "128"
    assert len(engine.generate([list(range(10, 74))], 400).steps) == 400


def test_unknown_settings_of_eviction_are_refused(tiny_folder: Path) -> None:
    engine = load_engine("pagewheel")({"eviction.max_cache_sise": 128})
    with pytest.raises(TypeError, match="max_cache_sise"):
        engine.load(tiny_folder, "CPU")
