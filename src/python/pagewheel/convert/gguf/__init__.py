"""GGUF files: the container, its blocks of weights, its vocabulary, the model in it."""
