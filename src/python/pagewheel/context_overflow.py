"""Conversations that outgrow a model's context: the cache forgets tokens, or whole turns are left
out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .model_info import ModelInfo

ERROR, EVICT, TRUNCATE = "error", "evict", "truncate"
CONTEXT_OVERFLOWS = (ERROR, EVICT, TRUNCATE)

_BLOCK = 32  # tokens
_FEWEST_BLOCKS = 8
_MEMORY_SHARE = 0.25  # of what is free, for the cache of one conversation
_START_TOKENS = 128  # mostly the system message


def fitting_eviction(
    info: ModelInfo, cache_bytes: int = 0, cache_blocks: int = 0
) -> dict[str, Any]:
    """Arguments of CacheEvictionConfig with which a model goes on beyond its context.

    Sequences shorter than the budget are computed as without eviction. The size of the cache is one
    of two, or 0: not known yet. Empty where the context is not known, or it or the cache too small.
    """
    if info.context is None:
        return {}
    # A prefill chunk is computed at positions behind the budget, which must be in the context too.
    tokens = info.context * 3 // 4
    per_token = max(info.kv_cache_bytes_per_token.values(), default=0)
    if per_token:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        most = cache_bytes // 2 or int(free * _MEMORY_SHARE)
        tokens = min(tokens, most // per_token)
    blocks = tokens // _BLOCK
    if cache_blocks:  # a prefill chunk is beside the budget
        blocks = min(blocks, cache_blocks // 2)
    if blocks < _FEWEST_BLOCKS:
        return {}
    return {
        "start_size": min(_START_TOKENS, blocks // 4 * _BLOCK),
        "recent_size": blocks // 4 * _BLOCK,
        "max_cache_size": blocks * _BLOCK,
        "apply_rotation": True,
        "evict_during_prefill": True,
        "policy": "hybrid",  # what was said is asked for later
    }


Message = Mapping[str, Any]


def without_oldest_turns(
    messages: Sequence[Message], sizes: Sequence[int], too_many: int, room: int
) -> list[Message]:
    """The messages, of so many tokens each, without the oldest turns: `too_many` tokens less.

    A turn is a message of the user and all up to the next one; system messages at the begin and
    the last turn stay. As a conversation grows, the same turns are left out for a while: what is
    left out is rounded up to a quarter of `room`, so that a cached prefix fits again and again.
    """
    begin = next((i for i, each in enumerate(messages) if each["role"] != "system"), 0)
    starts = [i for i, each in enumerate(messages) if i > begin and each["role"] == "user"]
    step = max(1, room // 4)
    wanted = -(-too_many // step) * step
    left_out, end = 0, begin
    for start in starts:
        if left_out >= wanted:
            break
        left_out += sum(sizes[end:start])
        end = start
    return [*messages[:begin], *messages[end:]]
