"""Tiny models of Qwen's with a head that guesses further tokens, which transformers leaves out.

The head is that of vLLM's qwen3_next_mtp: of a token's embedding and the hidden state before it,
both normed, `fc` makes one vector, which goes through one layer with full attention and a norm to
the model's output matrix. Positions count from 0; rotation depends on their differences alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from convert import tiny_models
from safetensors.torch import load_file, save_file


class Head(torch.nn.Module):
    """Not quite the model: it is right about some of the tokens."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        text, config = model.model, model.config
        index = config.layer_types.index("full_attention")
        hidden = config.hidden_size
        norm = type(text.norm)
        self.fc = torch.nn.Linear(2 * hidden, hidden, bias=False)
        self.layers = torch.nn.ModuleList([type(text.layers[index])(config, index)])
        self.norm = norm(hidden, eps=config.rms_norm_eps)
        self.pre_fc_norm_embedding = norm(hidden, eps=config.rms_norm_eps)
        self.pre_fc_norm_hidden = norm(hidden, eps=config.rms_norm_eps)
        generator = torch.Generator().manual_seed(7)
        for name, parameter in self.named_parameters():
            random = torch.randn(parameter.shape, generator=generator)
            scale = 0.3 if "norm" in name else parameter.shape[-1] ** -0.5
            parameter.data = scale * random
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


def damp(module: torch.nn.Module) -> None:
    """Layers add little to the residual stream, so that tokens are mostly a matter of the last."""
    for name, parameter in module.named_parameters():
        if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight", "down_proj")):
            parameter.data *= 0.3


@torch.no_grad()
def make(name: str) -> tuple[Any, Head]:
    model = tiny_models.make(name)
    damp(model)
    model.model.embed_tokens.weight.data *= 8
    # Channels change their signs, else tied embeddings would repeat each token.
    norm = model.model.norm.weight.data
    norm.copy_(torch.sign(norm) - 1)
    head = Head(model)
    head.layers[0].self_attn.config = model.config
    return model, head.eval()


def save(model: Any, head: Head, folder: Path) -> Path:
    """Qwen3-Next's checkpoints have a tensor for each expert, the others' one for all."""
    tiny_models.save(model, folder)
    tensors = load_file(folder / "model.safetensors")
    for name, value in head.state_dict().items():
        stored = value.clone()
        experts = name.partition(".experts.")
        if model.config.model_type != "qwen3_next" or not experts[1]:
            tensors["mtp." + name] = stored
            continue
        parts = ["gate_proj", "up_proj"] if experts[2] == "gate_up_proj" else ["down_proj"]
        for index, expert in enumerate(stored):
            for part, rows in zip(parts, expert.chunk(len(parts)), strict=True):
                tensors[f"mtp.{experts[0]}.experts.{index}.{part}.weight"] = rows.contiguous()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


@torch.no_grad()
def count_accepted(
    model: Any, head: Head, tokens: list[int], prompt_length: int, most: int
) -> tuple[int, int]:
    """Drafts of a chain, and those that are right, where each step has `most` of them.

    After a wrong draft the model's state is that of before, and the tokens since then are computed
    again in the next step, whose span has 16 tokens at most."""
    states = model.model(torch.tensor([tokens])).last_hidden_state[0]
    known, drafted, accepted, uncached = prompt_length + 1, 0, 0, 1
    while known < len(tokens):
        count = min(most, len(tokens) - known - 1, 16 - min(uncached, 16))
        drafts: list[int] = []
        own = states[: known - 1]
        for _ in range(count):
            result = head(model, tokens[1:known] + drafts, own)
            drafts.append(int(model.lm_head(result[-1]).argmax()))
            own = torch.cat([own, result[-1:]])
        right = 0
        while right < count and drafts[right] == tokens[known + right]:
            right += 1
        drafted += count
        accepted += right
        known += right + 1
        uncached = 1 if right == count else uncached + right + 1
    return drafted, accepted
