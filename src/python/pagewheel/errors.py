"""What pagewheel raises for bad input. openvino_genai's programs catch RuntimeError for it."""

from __future__ import annotations


class InvalidArgumentError(ValueError, RuntimeError):
    """An argument is not allowed. The message names it, its value and what is allowed."""


class ModelNotFoundError(FileNotFoundError, RuntimeError):
    """There is no such model file or folder."""


class OutOfRangeError(IndexError, RuntimeError):
    """A token id is outside of the vocabulary, or a list is empty that something is taken from."""
