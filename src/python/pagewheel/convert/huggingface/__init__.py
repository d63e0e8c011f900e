"""Hugging Face folders: config.json, safetensors, tokenizer.json, the model in them."""
