"""Names and shapes of all weights an architecture has: what a source is checked against."""

from __future__ import annotations

from .architecture import (
    AltUp,
    Architecture,
    Attention,
    Experts,
    LatentKeys,
    Mlp,
    QueryKeyNorm,
    Routing,
)

Shapes = dict[str, tuple[int, ...]]


def weight_shapes(arch: Architecture) -> Shapes:
    """In the order in which the graph asks for them."""
    hidden = arch.hidden_size
    shapes: Shapes = {"embed_tokens": (arch.vocab_size, hidden)}
    for index, layer in enumerate(arch.layers):
        prefix = f"layers.{index}"
        for norm in arch.norms.value:
            if norm is not None:
                shapes[f"{prefix}.{norm}"] = (hidden,)
        _add_attention(shapes, layer.attention, f"{prefix}.self_attn", hidden)
        if isinstance(layer.mlp, Mlp):
            _add_mlp(shapes, layer.mlp, f"{prefix}.mlp", hidden)
        else:
            _add_experts(shapes, layer.mlp, f"{prefix}.mlp", hidden)
        if layer.scaled:
            shapes[f"{prefix}.layer_scalar"] = (1,)
        if arch.per_layer_inputs is not None:
            size = arch.per_layer_inputs.size
            shapes[f"{prefix}.per_layer_input_gate"] = (size, hidden)
            shapes[f"{prefix}.per_layer_projection"] = (hidden, size)
            shapes[f"{prefix}.post_per_layer_input_norm"] = (hidden,)
        if arch.altup is not None:
            _add_altup(shapes, arch.altup, prefix, hidden)
    if arch.per_layer_inputs is not None:
        size, table = arch.per_layer_inputs.size, arch.per_layer_inputs.vocab_size
        shapes["embed_tokens_per_layer"] = (table, len(arch.layers) * size)
        shapes["per_layer_model_projection"] = (len(arch.layers) * size, hidden)
        shapes["per_layer_projection_norm"] = (size,)
    if arch.altup is not None:
        for stream in range(arch.altup.streams - 1):
            shapes[f"altup_projections.{stream}"] = (hidden, hidden)
            shapes[f"altup_unembed_projections.{stream}"] = (hidden, hidden)
    shapes["norm"] = (hidden,)
    if not arch.tied_embeddings:
        shapes["lm_head"] = (arch.vocab_size, hidden)
    if arch.lm_head_bias:
        shapes["lm_head.bias"] = (arch.vocab_size,)
    return shapes


def _add_altup(shapes: Shapes, altup: AltUp, prefix: str, hidden: int) -> None:
    streams, rank = altup.streams, altup.laurel_rank
    shapes[f"{prefix}.altup.modality_router"] = (streams, hidden)
    shapes[f"{prefix}.altup.router_norm"] = (hidden,)
    shapes[f"{prefix}.altup.prediction_coefs"] = (streams * streams, streams)
    shapes[f"{prefix}.altup.correction_coefs"] = (streams, streams)
    shapes[f"{prefix}.altup.correct_output_scale"] = (hidden,)
    shapes[f"{prefix}.laurel.linear_left"] = (rank, hidden)
    shapes[f"{prefix}.laurel.linear_right"] = (hidden, rank)
    shapes[f"{prefix}.laurel.post_laurel_norm"] = (hidden,)


def _add_linear(shapes: Shapes, name: str, rows: int, columns: int, bias: bool) -> None:
    shapes[name] = (rows, columns)
    if bias:
        shapes[f"{name}.bias"] = (rows,)


def _add_attention(shapes: Shapes, attention: Attention, prefix: str, hidden: int) -> None:
    query = attention.heads * attention.head_size
    kv = attention.kv_heads * attention.head_size
    own_cache = attention.cache_of is None
    if attention.latent is not None:
        _add_latent(shapes, attention, attention.latent, prefix, hidden)
        return
    _add_linear(shapes, f"{prefix}.q_proj", query, hidden, attention.bias)
    if own_cache:
        _add_linear(shapes, f"{prefix}.k_proj", kv, hidden, attention.bias)
    if own_cache and not attention.values_are_keys:
        _add_linear(shapes, f"{prefix}.v_proj", kv, hidden, attention.bias)
    _add_linear(shapes, f"{prefix}.o_proj", hidden, query, attention.output_bias)
    if attention.query_key_norm is not QueryKeyNorm.NONE:
        whole = attention.query_key_norm is QueryKeyNorm.WHOLE
        shapes[f"{prefix}.q_norm"] = (query if whole else attention.head_size,)
        if own_cache:
            shapes[f"{prefix}.k_norm"] = (kv if whole else attention.head_size,)
    if attention.sinks:
        shapes[f"{prefix}.sinks"] = (attention.heads,)


def _add_latent(
    shapes: Shapes, attention: Attention, latent: LatentKeys, prefix: str, hidden: int
) -> None:
    query = attention.heads * attention.head_size
    values = attention.heads * attention.value_size
    columns, name = hidden, "q_proj"
    if latent.query_rank:
        columns, name = latent.query_rank, "q_b_proj"
        _add_linear(shapes, f"{prefix}.q_a_proj", columns, hidden, attention.bias)
        shapes[f"{prefix}.q_a_layernorm"] = (columns,)
    _add_linear(shapes, f"{prefix}.{name}", query, columns, False)
    _add_linear(shapes, f"{prefix}.k_rope_proj", latent.rotated, hidden, attention.bias)
    _add_linear(shapes, f"{prefix}.kv_a_proj", latent.rank, hidden, attention.bias)
    shapes[f"{prefix}.kv_a_layernorm"] = (latent.rank,)
    kept = attention.heads * (attention.head_size - latent.rotated)
    _add_linear(shapes, f"{prefix}.k_b_proj", kept, latent.rank, False)
    _add_linear(shapes, f"{prefix}.v_b_proj", values, latent.rank, False)
    _add_linear(shapes, f"{prefix}.o_proj", hidden, values, attention.output_bias)


def _add_mlp(shapes: Shapes, mlp: Mlp, prefix: str, hidden: int) -> None:
    inner = mlp.intermediate_size
    _add_linear(shapes, f"{prefix}.gate_proj", inner, hidden, mlp.bias)
    _add_linear(shapes, f"{prefix}.up_proj", inner, hidden, mlp.bias)
    _add_linear(shapes, f"{prefix}.down_proj", hidden, inner, mlp.bias)


def _add_experts(shapes: Shapes, experts: Experts, prefix: str, hidden: int) -> None:
    _add_linear(shapes, f"{prefix}.gate", experts.count, hidden, experts.router_bias)
    if experts.routing is Routing.SIGMOID:
        shapes[f"{prefix}.gate.e_score_correction_bias"] = (experts.count,)
    one: Shapes = {}
    _add_mlp(one, experts.mlp, f"{prefix}.experts", hidden)
    shapes.update({name: (experts.count, *shape) for name, shape in one.items()})
    if experts.shared is not None:
        _add_mlp(shapes, experts.shared, f"{prefix}.shared_experts", hidden)
