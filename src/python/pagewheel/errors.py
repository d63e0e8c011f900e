"""What pagewheel raises. openvino_genai's programs catch RuntimeError for all of it."""

from __future__ import annotations


class PagewheelError(RuntimeError):
    """What the engine raises has this type, or one that is derived from it.

    code: what went wrong, for programs; docs/stability.md lists the codes.
    parameter: the name of the argument, parameter or property that was refused, or None.
    """

    code: str = "failed"
    parameter: str | None = None

    def __init__(
        self, *args: object, code: str | None = None, parameter: str | None = None
    ) -> None:
        super().__init__(*args)
        if code is not None:
            self.code = code
        if parameter:
            self.parameter = parameter


class InvalidArgumentError(PagewheelError, ValueError):
    """An argument is not allowed. The message names it, its value and what is allowed."""

    code = "invalid_parameter"


class ModelNotFoundError(PagewheelError, FileNotFoundError):
    """There is no such model file or folder."""

    code = "model_not_found"


class FetchError(PagewheelError):
    """A model could not be fetched. The message says why, and how to go on."""

    code = "fetch_failed"


class OutOfRangeError(PagewheelError, IndexError):
    """A token id is outside of the vocabulary, or a list is empty that something is taken from."""

    code = "out_of_range"


class QueueFullError(PagewheelError):
    """A request is refused because `max_queue` others wait."""

    code = "queue_full"


class PipelineFailedError(PagewheelError):
    """The pipeline has failed as a whole and serves no more."""

    code = "engine_failed"


class ConversionError(InvalidArgumentError):
    """The source is damaged, or uses something pagewheel does not support.

    The message names the file, the key or tensor, its value and what is allowed.
    """

    code = "conversion_failed"
