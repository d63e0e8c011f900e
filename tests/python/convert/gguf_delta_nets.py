"""Tensors of gated delta nets, named and changed as llama.cpp's converter does."""

from __future__ import annotations

from typing import Any

import torch


def delta_net_tensors(
    full: str, values: torch.Tensor, name: str, config: Any
) -> list[tuple[str, torch.Tensor]]:
    if full.endswith(".A_log"):
        values = -torch.exp(values)
    if full.endswith(".conv1d.weight"):
        values = values.squeeze(1)
    if name == "qwen3next":
        return _of_next(full, values, config)
    if config.linear_num_key_heads != config.linear_num_value_heads:
        values = _tiled(full, values, config)
    return [(full.replace(".dt_bias", ".dt_proj.bias"), values)]


def _of_next(full: str, values: torch.Tensor, config: Any) -> list[tuple[str, torch.Tensor]]:
    if not full.endswith("in_proj_qkvz.weight"):
        return [(full.replace(".dt_bias", ".dt_proj.bias"), values)]
    heads, keys = config.linear_num_key_heads, config.linear_key_head_dim
    own = config.linear_num_value_heads // heads * config.linear_value_head_dim
    parts = values.unflatten(0, (heads, -1)).split([keys, keys, own, own], dim=1)
    q, k, v, z = (each.flatten(0, 1) for each in parts)
    stem = full.removesuffix("in_proj_qkvz.weight")
    return [
        (f"{stem}in_proj_qkv.weight", torch.cat([q, k, v])),
        (f"{stem}in_proj_z.weight", z),
    ]


def _tiled(full: str, values: torch.Tensor, config: Any) -> torch.Tensor:
    """Value heads beside those of the same key head: the first of each, then the second ones."""
    heads = config.linear_num_key_heads
    count = config.linear_num_value_heads

    def tiled(rows: torch.Tensor) -> torch.Tensor:
        grouped = rows.unflatten(0, (heads, count // heads, -1))
        return grouped.transpose(0, 1).flatten(0, 2)

    if full.endswith(".norm.weight"):
        return values
    if full.endswith(".out_proj.weight"):
        return tiled(values.T).T
    if full.endswith((".in_proj_qkv.weight", ".conv1d.weight")):
        keys = 2 * heads * config.linear_key_head_dim
        return torch.cat([values[:keys], tiled(values[keys:])])
    return tiled(values)
