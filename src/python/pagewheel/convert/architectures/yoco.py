"""Decoders whose layers read the caches of earlier ones.

YOCO (Sun et al., 2024, arXiv 2405.05254), cross-layer attention (Brandon et al., 2024, arXiv
2405.12981) and the like, with Llama's names. Layers that share have no k_proj and no v_proj.
"""

from __future__ import annotations

from ..decoder.architecture import Architecture
from .entry import Family, ModelType
from .reader import ModelConfig, Reader


def _read(reader: Reader) -> Architecture:
    kv_heads = _kv_heads(reader.config)
    windows = reader.windows(reader.same_everywhere(False))
    uniform = {**reader.config.values, "num_key_value_heads": kv_heads[0]}
    arch = Reader(ModelConfig(uniform, reader.config.where), reader.context_length).architecture(
        windows=windows
    )
    owners = _owners(reader.config)
    return arch.with_layers(
        lambda index, layer: layer.with_attention(kv_heads=kv_heads[index], cache_of=owners[index])
    )


def _kv_heads(config: ModelConfig) -> list[int]:
    """Each layer's, given as one number or as a list."""
    if isinstance(config.values.get("num_key_value_heads"), list):
        return config.list_of("num_key_value_heads", int, config.layers) or []
    return [config.positive("num_key_value_heads", config.heads)] * config.layers


def _owners(config: ModelConfig) -> list[int | None]:
    """The layer whose cache each layer reads; None: it has its own.

    `cache_of_layer` says it of every layer. Otherwise the last `num_kv_shared_layers`, half of
    all where nothing is said, read the cache of the layer before them.
    """
    layers = config.layers
    listed = config.values.get("cache_of_layer")
    if listed is None:
        first = layers - config.integer("num_kv_shared_layers", layers // 2)
        if not 0 < first <= layers:
            raise config.fail(f"'num_kv_shared_layers' leaves {first} of {layers} layers")
        return [None] * first + [first - 1] * (layers - first)
    if config.values.get("num_kv_shared_layers") is not None:
        raise config.fail("'cache_of_layer' and 'num_kv_shared_layers' cannot both be given")
    if (
        not isinstance(listed, list)
        or len(listed) != layers
        or not all(each is None or type(each) is int for each in listed)
    ):
        raise config.fail(
            f"'cache_of_layer' must be {layers} numbers of layers or nulls, got {listed!r:.80}"
        )
    return listed


FAMILY = Family(
    (
        # transformers has no such model; the defaults are Llama's.
        ModelType("yoco", _read),
    )
)
