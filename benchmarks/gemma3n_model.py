"""A text model of Gemma 3n's shape with random weights: 16 layers, of which half share caches.

What it says means nothing; what it costs is what such a model of its size costs.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

# Gemma 3n E2B's proportions: an MLP of 8 times the hidden size, heads that add up to it, four
# streams, a full attention layer after four sliding ones, sparse activations at the beginning.
SHAPE: dict[str, Any] = {
    "vocab_size": 32768,
    "vocab_size_per_layer_input": 32768,
    "hidden_size": 768,
    "hidden_size_per_layer_input": 64,
    "intermediate_size": 6144,
    "num_hidden_layers": 16,
    "num_kv_shared_layers": 8,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "laurel_rank": 64,
    "activation_sparsity_pattern": [0.95] * 5 + [0.0] * 11,
    "max_position_embeddings": 32768,
}


def make_gemma3n(folder: Path, **changes: Any) -> int:
    """Writes an OpenVINO folder, weights in 4 and 8 bits, and returns how many there are.

    `changes` are of SHAPE. Needs torch and transformers.
    """
    import torch
    from transformers import AutoModelForCausalLM, Gemma3nTextConfig

    from pagewheel.convert import convert
    from pagewheel.convert.files.source_folder import SourceFolder
    from pagewheel.convert.huggingface.source import HuggingFaceSource

    torch.manual_seed(0)
    config = Gemma3nTextConfig(**{**SHAPE, **changes})
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        model.save_pretrained(source)
        del model
        _byte_tokenizer().save(str(source / "tokenizer.json"))
        convert(source, folder, weight_format="int4", progress=False)
        return HuggingFaceSource(SourceFolder(source)).num_parameters


def _byte_tokenizer() -> Any:
    """A token for each byte, after Gemma's three control tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    controls = ["<pad>", "<eos>", "<bos>"]
    pieces = controls + sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(controls)
    return tokenizer
