"""GET /cache: what a model's KV cache holds, and for whom, as JSON for the page."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import pagewheel
from pagewheel.serve.api.service import Context
from pagewheel.serve.http.errors import ApiError
from pagewheel.serve.models.engine import Engine
from pagewheel.serve.security import Tenant

# However many look: a view is taken once in so many seconds. Each waits for a step's end.
_FRESH_SECONDS = 0.25
_MOST_SEQUENCES = 64
# Of which those of one key are told. A view is a copy, made between two steps.
_MOST_OF_ALL_KEYS = 1024


@dataclass(frozen=True)
class _Taken:
    at: float
    request: int | None
    task: asyncio.Task[dict[str, Any]]

    def seconds_left(self) -> float:
        return self.at + _FRESH_SECONDS - time.monotonic()


class CacheViews:
    """The newest view of each model, and of each tenant that asks for a request. On the event loop.

    Those of a model are taken one after the other. A tenant that asks for several of its requests
    waits for its own views alone.
    """

    def __init__(self, has_keys: bool) -> None:
        self._most_sequences = _MOST_OF_ALL_KEYS if has_keys else _MOST_SEQUENCES
        self._taken: dict[tuple[str, str | None], _Taken] = {}

    async def show(self, context: Context) -> None:
        """A model that is not in memory is not loaded for this."""
        # Blocks and sums are of all keys: they tell whether a prompt began as one of a group's.
        if context.service.keys.share_prefixes:
            raise ApiError(
                403, "where keys share cached prefixes, none sees the cache", code="cache_not_shown"
            )
        query = context.request.query_params
        given = query.get("request", "")
        if given and not (given.isascii() and given.isdigit() and len(given) < 19):
            raise ApiError(400, f"request: expected a number, got {given[:40]!r}", param="request")
        registry = context.service.registry
        name = registry.target(query.get("model", registry.names()[0]))
        if name is None:
            raise ApiError(404, "model: no such model", param="model", code="model_not_found")
        engine = next((each for each in registry.loaded() if each.name == name), None)
        if engine is None:
            await context.send_json({"model": name, "loaded": False})
            return
        view = await self.get(engine, int(given) if given else None, context.tenant.id)
        await context.send_json(view, headers={"cache-control": "no-store"})

    async def get(self, engine: Engine, request: int | None, tenant: str) -> dict[str, Any]:
        """Of sequences the tenant's own. Those that ask at the same time get the same view, as do
        all that ask for a request that is not theirs."""
        view = _own(await self._newest(engine, None, None), tenant)
        if request is None:
            return view
        if all(each["request"] != request for each in view["sequences"]):
            return {**view, "kept": None}
        return _own(await self._newest(engine, request, tenant), tenant)

    async def _newest(
        self, engine: Engine, request: int | None, tenant: str | None
    ) -> dict[str, Any]:
        key = (engine.name, tenant)
        while (taken := self._fresh(key)) is not None and taken.request != request:
            await asyncio.wait([taken.task])
            await asyncio.sleep(max(0.0, taken.seconds_left()))
        if taken is None:
            look = engine.in_watch(describe, engine, request, self._most_sequences)
            taken = _Taken(time.monotonic(), request, asyncio.create_task(look))
            self._taken[key] = taken
        # One that leaves does not end what others wait for.
        return await asyncio.shield(taken.task)

    def _fresh(self, key: tuple[str, str | None]) -> _Taken | None:
        self._taken = {
            each: taken
            for each, taken in self._taken.items()
            if not taken.task.done() or taken.seconds_left() > 0
        }
        return self._taken.get(key)


def _own(view: dict[str, Any], tenant: str) -> dict[str, Any]:
    """Without the sequences of other tenants, and without whose the rest are."""
    own = [each for each in view["sequences"] if Tenant.id_of(each["cache_salt"]) == tenant]
    shown = [
        {name: value for name, value in each.items() if name != "cache_salt"}
        for each in own[:_MOST_SEQUENCES]
    ]
    kept = view["kept"]
    if kept is not None and all(each["request"] != kept["request"] for each in shown):
        kept = None
    hidden = len(view["sequences"]) - len(own)
    return {
        **view,
        "num_sequences": view["num_sequences"] - hidden,
        "sequences": shown,
        "kept": kept,
    }


def describe(engine: Engine, request: int | None, most_sequences: int) -> dict[str, Any]:
    """Numbers alone: no text and no token of a request."""
    view = engine.cache_view(most_sequences, request)
    statistics = engine.statistics()
    step, total = statistics.latest_step, statistics.all_steps
    return {
        "model": engine.name,
        "loaded": True,
        "time": time.monotonic(),
        "block_size": view.block_size,
        "block_bytes": statistics.block_bytes,
        "states": ["free", "used", "shared", "cached", "pinned"],
        "blocks": run_lengths(view.block_states),
        "num_sequences": view.num_sequences,
        "sequences": [_sequence(each) for each in view.sequences],
        "kept": _kept(view),
        "queued": statistics.num_queued,
        "running": statistics.num_running,
        "preempted": statistics.num_preempted,
        "steps": statistics.num_steps,
        "step": {
            "sequences": step.num_sequences,
            "tokens": step.num_tokens,
            "microseconds": round(
                step.schedule_time + step.fill_time + step.infer_time + step.sampling_time
            ),
        },
        "generated_tokens": total.num_generated_tokens,
        "computed_tokens": total.num_tokens,
        "prompt_tokens": statistics.num_prompt_tokens,
        "prefix_hit_tokens": statistics.num_prefix_cache_hit_tokens,
    }


def run_lengths(values: npt.ArrayLike) -> list[int]:
    """value, count, value, count...: a large cache is mostly long runs."""
    array = np.asarray(values)
    if not array.size:
        return []
    starts = np.concatenate(([0], np.flatnonzero(np.diff(array)) + 1))
    counts = np.diff(np.concatenate((starts, [array.size])))
    return [int(one) for pair in zip(array[starts], counts, strict=True) for one in pair]


def _sequence(view: pagewheel.SequenceView) -> dict[str, Any]:
    return {
        "request": view.request_id,
        "index": view.index,
        "cache_salt": view.cache_salt,
        "state": view.state.name.lower(),
        "priority": view.priority,
        "prompt_tokens": view.num_prompt_tokens,
        "tokens": view.num_tokens,
        "computed": view.num_computed,
        "evicted": view.num_evicted,
        "prefix_hits": view.num_prefix_hits,
        "blocks": view.blocks.tolist(),
    }


def _kept(view: pagewheel.CacheView) -> dict[str, Any] | None:
    kept = view.kept
    if kept is None:
        return None
    sequence = view.sequences[kept.sequence]
    return {
        "request": sequence.request_id,
        "index": sequence.index,
        "tokens_per_bin": kept.tokens_per_bin,
        "tokens": sequence.num_computed,
        "layers": kept.kept.tolist(),
        "rotated": kept.rotated.tolist(),
    }
