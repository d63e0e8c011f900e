"""What an operator decides: which models are served, to whom, and within which limits.

What `pagewheel serve` takes as it is stands here with its option.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pagewheel.errors import InvalidArgumentError
from pagewheel.options import option, size_option, time_option


@dataclass(frozen=True)
class ModelSettings:
    """One model. `path` is None for the default model, which may be downloaded."""

    name: str
    path: Path | None
    device: str = "CPU"
    properties: Mapping[str, Any] = field(default_factory=dict)
    scheduler: Mapping[str, Any] = field(default_factory=dict)  # members of SchedulerConfig
    # CacheEvictionConfig's; empty: one that fits, for requests that ask for it alone.
    eviction: Mapping[str, Any] = field(default_factory=dict)
    is_pinned: bool = False  # loaded at start, and never unloaded
    is_first: bool = False  # loaded at start, though it may be unloaded

    @property
    def always_evicts(self) -> bool:
        """Whether the caches of all requests are evicted from, not only where one asks for it."""
        return bool(self.eviction or self.scheduler.get("use_cache_eviction"))

    @property
    def is_at_start(self) -> bool:
        """Whether it is loaded before anybody asks for it."""
        return self.is_pinned or self.is_first


@dataclass(frozen=True)
class KeyLimits:
    """What the requests of one API key may take; 0 of a count: what `Limits` says."""

    requests: int = 0  # at once
    queue: int = 0  # of them without a token yet
    priority: int | None = None  # the highest; None: any
    prefixes: str | None = None  # the group of keys that share cached prefixes; None: its own alone
    admin: bool = False  # may load, unload, fetch and remove models


@dataclass(frozen=True)
class Limits:
    """Bounds of what one client can ask for. Seconds and bytes; 0 of a count is no limit."""

    max_tokens: int = option(
        0, "Tokens that one request may generate; 0: the model's context.", min=0
    )
    body_bytes: int = size_option("4M", "Of a request's body.", "--max-body")
    bodies_bytes: int = size_option(
        "256M",
        "Of all bodies of requests being served; one more gets 503. 0: no limit.",
        "--max-bodies",
    )
    concurrency: int = option(4096, "Served at once; one more gets 503.", "--max-requests", min=1)
    concurrency_per_key: int = option(
        0,
        "Requests of one API key at once; one more gets 429. 0: no limit.",
        "--max-requests-per-key",
        min=0,
    )
    queue_per_key: int | None = option(
        None,
        "Requests of one API key without a token yet; one more gets 429. 0: no limit. By default "
        "half of --max-queue where there are several keys.",
        "--max-queue-per-key",
        min=0,
    )
    head_seconds: float = time_option("10s", "For a request's headers to arrive.", "--head-timeout")
    body_seconds: float = time_option("30s", "For a request's body to arrive.", "--body-timeout")
    stall_seconds: float = time_option(
        "60s", "For a client that does not read to take its answer.", "--stall-timeout"
    )
    request_seconds: float = time_option(
        "10m", "A request ends then with what there is.", "--request-timeout"
    )
    shutdown_seconds: float = time_option(
        "30s", "For running requests after SIGTERM or Ctrl-C.", "--shutdown-timeout"
    )
    head_bytes: int = 64 << 10
    keep_alive_seconds: float = 30.0
    max_choices: int = 128  # sequences of one request
    answer_entries: int = 1 << 20  # choices x tokens x (1 + likeliest tokens) of one request
    stored_responses: int = 1000
    stored_bytes: int = 64 << 20


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Settings that an operator gives as they are."""

    # How models are held in memory.
    memory_budget: int = size_option(
        "0", "For weights and caches of all models, e.g. 8G: those not in use make room."
    )
    prefix_cache_dir: Path | None = option(
        None, "Where prefixes that models have computed stay over restarts and unloading."
    )
    prefix_cache_bytes: int = size_option("4G", "Of all files there.", "--prefix-cache-size")
    pulled_bytes: int = size_option(
        "0",
        "For models that /api/pull may fetch, e.g. 50G, with an admin key; 0: it may not.",
        "--pull-space",
    )
    conversion_seconds: float = time_option(
        "1h", "For converting a model at its first use; 0: no limit.", "--conversion-timeout"
    )
    conversion_bytes: int = size_option(
        "0", "For converting a model, e.g. 8G; 0: no limit.", "--conversion-memory"
    )

    # Where the server listens, and to whom it answers.
    host: str = option("127.0.0.1", "The address to listen on; 0.0.0.0 is every one.")
    port: int = option(8000, "0: any that is free.", min=0, max=65535)
    ollama_port: int | None = option(
        None, "Listen there too: programs look for Ollama at 11434.", min=0, max=65535
    )
    is_lenient: bool = option(
        False, "Ignore unknown fields of requests, and name them in a header.", "--lenient"
    )
    shares_prefixes: bool = option(
        False,
        "Let all keys find each other's cached prefixes, but those that are in a group of "
        "the key file (prefixes=NAME). By default each key finds its own alone.",
        "--share-prefixes",
    )
    tls_certificate: Path | None = option(None, "A PEM file; with --tls-key for https.")
    tls_key: Path | None = option(None, "The certificate's key, a PEM file.")

    # What operators see.
    open_metrics: bool = option(False, "/metrics without an API key.", "--open-metrics")
    metrics_prefix: str = option("pagewheel", '"vllm" suits dashboards made for it.')
    log_prompts: bool = option(False, "Write prompts to the log.", "--log-prompts")
    has_page: bool = option(
        True, "The chat page at /, and its view of the cache.", "--page/--no-page"
    )
    traces_endpoint: str | None = option(
        None,
        "Send a trace of each request there, e.g. http://localhost:4318/v1/traces.",
        "--otlp-traces-endpoint",
        metavar="URL",
    )


@dataclass(frozen=True)
class ServerSettings(ServerOptions):
    """All of a server. Raises InvalidArgumentError for a prefix that no metric may have."""

    models: tuple[ModelSettings, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    keys: Collection[str] = ()
    key_limits: Mapping[str, KeyLimits] = field(default_factory=dict)  # of keys that have their own
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()  # of pages in browsers that may ask; "*": of any
    context_overflow: str = "error"  # for requests that do not say: one of CONTEXT_OVERFLOWS
    idle_unload_seconds: float = 0.0  # 0: never
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", self.metrics_prefix):
            raise InvalidArgumentError(
                f"the metrics' prefix is {self.metrics_prefix!r}; allowed: letters, digits and _"
            )
