"""Tiny models with a head that guesses further tokens, which transformers leaves out.

A head reads a token's embedding and the hidden state before it. For further guesses it goes on from
its own hidden states. Positions count from 0; rotation depends on their differences alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from convert import gguf_models, tiny_models
from safetensors.torch import load_file, save_file
from transformers import AutoConfig
from transformers.models.llama.modeling_llama import (
    LlamaDecoderLayer,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
)


class MtpHead(torch.nn.Module):
    """Of Qwen's models, as vLLM's qwen3_next_mtp, and DeepSeek's and GLM's, as SGLang's
    deepseek_nextn. It is right about some of the tokens.

    `fc` makes one vector of a token's embedding and the hidden state, both normed, which goes
    through one layer with full attention and a norm to the model's output matrix.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        text, config = model.model, model.config
        index = _last_with_attention(config)
        hidden = config.hidden_size
        norm = type(text.norm)
        self.fc = torch.nn.Linear(2 * hidden, hidden, bias=False)
        self.layers = torch.nn.ModuleList([type(text.layers[index])(config, index)])
        self.norm = norm(hidden, eps=config.rms_norm_eps)
        self.pre_fc_norm_embedding = norm(hidden, eps=config.rms_norm_eps)
        self.pre_fc_norm_hidden = norm(hidden, eps=config.rms_norm_eps)
        generator = torch.Generator().manual_seed(7)
        for name, parameter in [*self.named_parameters(), *self.named_buffers()]:
            random = torch.randn(parameter.shape, generator=generator)
            scale = 0.3 if "norm" in name else parameter.shape[-1] ** -0.5
            parameter.data = scale * random
            if "norm" in name and not _has_centred_norms(model):
                parameter.data += 1
        self.fc.weight.data *= 0.3
        self.norm.weight.data = text.norm.weight.data + 0.1 * self.norm.weight.data
        self.fc.weight.data[:, :hidden] += 2 * torch.eye(hidden)
        damp(self)

    def forward(self, model: Any, tokens: list[int], states: torch.Tensor) -> torch.Tensor:
        """Hidden states after tokens; `states` [tokens, hidden] are those before each."""
        text, count = model.model, len(tokens)
        embedded = text.embed_tokens(torch.tensor([tokens]))
        normed = (self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(states[None]))
        x = self.fc(torch.cat(normed, -1))
        positions = torch.arange(count)[None]
        mask = torch.full((1, 1, count, count), -torch.inf).triu(1)
        x = self.layers[0](
            x, position_embeddings=text.rotary_emb(x, positions), attention_mask=mask
        )
        result: torch.Tensor = self.norm(x)[0]
        return result

    def states(self, model: Any, tokens: list[int]) -> torch.Tensor:
        """The model's hidden states that the head reads, [tokens, hidden]."""
        result: torch.Tensor = model.model(torch.tensor([tokens])).last_hidden_state[0]
        return result

    def guess(self, model: Any, state: torch.Tensor) -> int:
        return int(model.lm_head(state).argmax())


class Eagle3Head(torch.nn.Module):
    """Of the EAGLE-3 paper (arXiv 2503.01840), as its authors' code has it.

    `fc` makes a state of what three of the model's layers read. Queries, keys and values are of the
    embedding and the state, both normed, beside each other; the layer adds to the state, which goes
    through a norm to an output matrix for some of the model's tokens.
    """

    def __init__(self, model: Any, tokens: list[int], layers: tuple[int, ...]) -> None:
        super().__init__()
        hidden, size = model.config.hidden_size, 32
        self.config = AutoConfig.for_model(
            "llama",
            hidden_size=hidden,
            intermediate_size=52,
            num_hidden_layers=1,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=size,
            vocab_size=model.config.vocab_size,
            rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
            max_position_embeddings=64,
            attn_implementation="eager",
        )
        self.tokens, self.layers = tokens, layers
        layer: Any = LlamaDecoderLayer(self.config, 0)
        for name, heads in (("q_proj", 4), ("k_proj", 2), ("v_proj", 2)):
            projection = torch.nn.Linear(2 * hidden, heads * size, bias=False)
            setattr(layer.self_attn, name, projection)
        layer.hidden_norm = LlamaRMSNorm(hidden, self.config.rms_norm_eps)
        self.midlayer: Any = layer
        self.fc = torch.nn.Linear(3 * hidden, hidden, bias=False)
        self.norm = LlamaRMSNorm(hidden, self.config.rms_norm_eps)
        self.lm_head = torch.nn.Linear(hidden, len(tokens), bias=False)
        self.rotary: Any = LlamaRotaryEmbedding(self.config)
        generator = torch.Generator().manual_seed(8)
        for name, parameter in self.named_parameters():
            random = torch.randn(parameter.shape, generator=generator)
            parameter.data = 1 + 0.1 * random if "norm" in name else random / hidden**0.5
        damp(self)
        # The state is of what layers between those that are read have added.
        first, second, _ = self.fc.weight.data.chunk(3, -1)
        scale = 0.5 if "gemma" in model.config.model_type else 2
        self.fc.weight.data = scale * torch.cat((first, second - first, -second), -1)
        # A token attends to itself. Its embedding comes from there, and that of the token before,
        # which is in the head's own states, goes.
        attention = layer.self_attn
        same = 2 * torch.randn(size, hidden, generator=generator) / hidden**0.5
        for projection, heads in ((attention.q_proj, 4), (attention.k_proj, 2)):
            projection.weight.data *= 0.1
            projection.weight.data[:, :hidden] = same.repeat(heads, 1)
        attention.v_proj.weight.data *= 0.1
        values = torch.eye(2 * size, hidden)
        attention.v_proj.weight.data += torch.cat((values, -values), -1)
        for head in range(2):
            part = slice(2 * head * size, (2 * head + 1) * size)
            rows = values[head * size : (head + 1) * size]
            attention.o_proj.weight.data[:, part] += 6 * rows.T
        # The model's own norm and output matrix, nearly.
        norm = model.model.norm.weight.data
        self.norm.weight.data *= norm + 1 if "gemma" in model.config.model_type else norm
        self.lm_head.weight.data = model.lm_head.weight.data[tokens].clone()

    def forward(self, model: Any, tokens: list[int], states: torch.Tensor) -> torch.Tensor:
        """Hidden states after tokens; `states` [tokens, hidden] are those before each."""
        layer, count, x = self.midlayer, len(tokens), states[None]
        embedded = model.model.embed_tokens.weight[tokens][None]
        both = torch.cat((layer.input_layernorm(embedded), layer.hidden_norm(x)), -1)
        mask = torch.full((1, 1, count, count), -torch.inf).triu(1)
        rotary = self.rotary(x, torch.arange(count)[None])
        x = x + layer.self_attn(both, position_embeddings=rotary, attention_mask=mask)[0]
        result: torch.Tensor = (x + layer.mlp(layer.post_attention_layernorm(x)))[0]
        return result

    def states(self, model: Any, tokens: list[int]) -> torch.Tensor:
        found = model.model(torch.tensor([tokens]), output_hidden_states=True).hidden_states
        result: torch.Tensor = self.fc(torch.cat([found[each][0] for each in self.layers], -1))
        return result

    def guess(self, _model: Any, state: torch.Tensor) -> int:
        return self.tokens[int(self.lm_head(self.norm(state)).argmax())]


def _last_with_attention(config: Any) -> int:
    types = getattr(config, "layer_types", None) or []
    return types.index("full_attention") if types else config.num_hidden_layers - 1


def _has_centred_norms(model: Any) -> bool:
    """Whether checkpoints hold norms' weights less one."""
    return model.config.model_type.startswith(("qwen3_5", "qwen3_next", "gemma"))


def damp(module: torch.nn.Module) -> None:
    """Layers add little to the residual stream, so that tokens are mostly a matter of the last."""
    for name, parameter in module.named_parameters():
        if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight", "down_proj")):
            parameter.data *= 0.3


@torch.no_grad()
def make_model(name: str, **others: Any) -> Any:
    model = tiny_models.make(name, **others)
    damp(model)
    model.model.embed_tokens.weight.data *= 8
    if _has_centred_norms(model):
        # Channels change their signs, else tied embeddings would repeat each token.
        norm = model.model.norm.weight.data
        norm.copy_(torch.sign(norm) - 1)
    return model


@torch.no_grad()
def make(name: str, **others: Any) -> tuple[Any, MtpHead]:
    model = make_model(name, **others)
    head = MtpHead(model)
    head.layers[0].self_attn.config = model.config
    return model, head.eval()


@torch.no_grad()
def make_eagle3(name: str) -> tuple[Any, Eagle3Head]:
    """A Llama's head drafts some of its tokens, Gemma's all. f16 holds all weights of the head."""
    model, head = _make_eagle3(name)
    for each in head.parameters():
        each.data = each.data.half().float()
    return model, head


def _make_eagle3(name: str) -> tuple[Any, Eagle3Head]:
    if name == "llama-even":
        model = make_model(name, num_hidden_layers=9)
        model.model.embed_tokens.weight.data *= 4  # which so many layers change less
        order = torch.randperm(297, generator=torch.Generator().manual_seed(2)) + 3
        return model, Eagle3Head(model, sorted(order[:250].tolist()), (2, 4, 6)).eval()
    types = ["sliding_attention", "full_attention"] * 2
    model = make_model(name, num_hidden_layers=4, layer_types=types)
    model.model.embed_tokens.weight.data *= 4
    return model, Eagle3Head(model, list(range(300)), (3, 1, 2)).eval()


def save_eagle3(head: Eagle3Head, folder: Path) -> Path:
    """As the authors and SpecForge write heads; of all tokens, as others do."""
    tensors = {name: value.clone() for name, value in head.state_dict().items()}
    config = {**head.config.to_dict(), "architectures": ["LlamaForCausalLMEagle3"]}
    if len(head.tokens) < head.config.vocab_size:
        tokens = torch.tensor(head.tokens)
        tensors["d2t"] = tokens - torch.arange(len(tokens))
        tensors["t2d"] = torch.zeros(head.config.vocab_size, dtype=torch.bool)
        tensors["t2d"][tokens] = True
        config["draft_vocab_size"] = len(tokens)
    else:
        tensors = {name.replace("midlayer", "layers.0"): each for name, each in tensors.items()}
        tensors["embed_tokens.weight"] = torch.ones(head.config.vocab_size, head.config.hidden_size)
        outputs = [layer - 1 for layer in head.layers]
        config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": outputs}
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def save(model: Any, head: MtpHead, folder: Path) -> Path:
    """Checkpoints of Qwen3.5 have a tensor for all experts, the others' one for each."""
    tiny_models.save(model, folder)
    tensors = load_file(folder / "model.safetensors")
    values = {f"mtp.{name}": value for name, value in head.state_dict().items()}
    if not model.config.model_type.startswith("qwen"):
        layers = model.config.num_hidden_layers
        values = gguf_models.in_head_block(head, layers)
        values[f"model.layers.{layers}.shared_head.head.weight"] = model.lm_head.weight
    for name, value in values.items():
        stored = value.detach().clone()
        before, experts, kind = name.partition(".experts.")
        if model.config.model_type.startswith("qwen3_5") or not experts:
            tensors[name] = stored
            continue
        parts = ["gate_proj", "up_proj"] if kind == "gate_up_proj" else ["down_proj"]
        for index, expert in enumerate(stored):
            for part, rows in zip(parts, expert.chunk(len(parts)), strict=True):
                tensors[f"{before}.experts.{index}.{part}.weight"] = rows.contiguous()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


@torch.no_grad()
def count_accepted(
    model: Any, head: MtpHead | Eagle3Head, tokens: list[int], prompt_length: int, most: int
) -> tuple[int, int]:
    """Drafts of a chain, and those that are right, where each step has `most` of them.

    After a wrong draft the state of a model with states is that before the drafts, and the right
    ones are computed again in the next step, whose span has 16 tokens at most.
    """
    keeps_states = "linear_attention" in (getattr(model.config, "layer_types", None) or ())
    states = head.states(model, tokens)
    known, drafted, accepted, uncached = prompt_length + 1, 0, 0, 1
    while known < len(tokens):
        count = min(most, len(tokens) - known - 1, 16 - min(uncached, 16))
        drafts: list[int] = []
        own = states[: known - 1]
        for _ in range(count):
            result = head(model, tokens[1:known] + drafts, own)
            drafts.append(head.guess(model, result[-1]))
            own = torch.cat([own, result[-1:]])
        right = 0
        while right < count and drafts[right] == tokens[known + right]:
            right += 1
        drafted += count
        accepted += right
        known += right + 1
        uncached = right + 1 if keeps_states and right < count else 1
    return drafted, accepted
