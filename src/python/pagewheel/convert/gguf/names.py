"""llama.cpp's names of tensors, by Hugging Face's names of weights."""

from __future__ import annotations

from collections.abc import Mapping

from ..decoder.architecture import NormPlacement

OUTSIDE_LAYERS = {
    "embed_tokens": "token_embd.weight",
    "norm": "output_norm.weight",
    "lm_head": "output.weight",
    "embed_tokens_per_layer": "per_layer_token_embd.weight",
    "per_layer_model_projection": "per_layer_model_proj.weight",
    "per_layer_projection_norm": "per_layer_proj_norm.weight",
}
# One tensor for several matrices, whose names end with a point and their number.
STACKED = {
    "altup_projections": "altup_proj.weight",
    "altup_unembed_projections": "altup_unembd_proj.weight",
}
# What only one architecture has is named in its file.
_IN_LAYERS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.sinks": "attn_sinks",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
    "layer_scalar": "layer_output_scale",
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
}
_NORMS: Mapping[NormPlacement, Mapping[str, str]] = {
    NormPlacement.PRE: {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    },
    NormPlacement.POST: {
        "post_attention_layernorm": "post_attention_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    },
    NormPlacement.SANDWICH: {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    },
}
# They are read into the rotary embedding and are no weights of the graph.
ROTARY_TENSORS = frozenset(
    {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}
)
KEYS_AND_VALUES = ("attn_k", "attn_v", "attn_k_norm")


def in_layers(norms: NormPlacement, own: Mapping[str, str]) -> dict[str, str]:
    """Names of a layer's tensors; `own` are the architecture's."""
    return {**_IN_LAYERS, **_NORMS[norms], **own}
