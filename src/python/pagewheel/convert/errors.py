"""What conversion raises when a model cannot be converted."""

from __future__ import annotations

from ..errors import InvalidArgumentError


class ConversionError(InvalidArgumentError):
    """The source is damaged, or uses something pagewheel does not support.

    The message names the file, the key or tensor, its value and what is allowed.
    """

    code = "conversion_failed"
