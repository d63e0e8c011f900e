"""What a decoder is: its description, its rotary embeddings, the shapes of its weights."""
