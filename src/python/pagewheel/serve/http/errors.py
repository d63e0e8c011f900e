"""Errors as answers: their statuses, and their bodies in OpenAI's form and in Anthropic's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pagewheel.serve.errors import Kind, RequestError

_STATUSES = {
    Kind.INVALID: 400,
    Kind.NOT_FOUND: 404,
    Kind.TOO_LATE: 408,
    Kind.TOO_MANY: 429,
    Kind.FAILED: 500,
    Kind.UNAVAILABLE: 503,
}
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class ApiError(RequestError):
    """An answer that is not 200."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        kind = next((kind for kind, own in _STATUSES.items() if own == status), Kind.INVALID)
        super().__init__(kind, message, code, param)
        self.status = status
        self.headers = dict(headers or {})

    @staticmethod
    def of(error: RequestError) -> ApiError:
        """The answer that tells a client of the error."""
        if isinstance(error, ApiError):
            return error
        retry = error.retry_seconds
        return ApiError(
            _STATUSES[error.kind],
            error.message,
            param=error.param,
            code=error.code,
            headers=None if retry is None else {"Retry-After": str(retry)},
        )

    @property
    def type(self) -> str:
        server = "server_error" if self.status >= 500 else "invalid_request_error"
        return _TYPES.get(self.status, server)


def closing(error: RequestError) -> ApiError:
    """The answer after which the connection is closed."""
    answer = ApiError.of(error)
    answer.headers["Connection"] = "close"
    return answer


def bad_field(param: str, message: str, code: str | None = None) -> ApiError:
    """400 that names the field."""
    return ApiError(400, f"{param}: {message}", param=param, code=code)


def openai_body(error: ApiError) -> dict[str, Any]:
    """As OpenAI's API answers."""
    own = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    return {"error": own}


def anthropic_body(error: ApiError) -> dict[str, Any]:
    """As Anthropic's API answers."""
    kind = "api_error" if error.type == "server_error" else error.type
    return {"type": "error", "error": {"type": kind, "message": error.message}}


@dataclass(frozen=True)
class Protocol:
    """How an API tells errors and the request's id."""

    error_body: Callable[[ApiError], dict[str, Any]]
    id_header: str = "x-request-id"


OPENAI = Protocol(openai_body)
ANTHROPIC = Protocol(anthropic_body, "request-id")
OLLAMA = Protocol(lambda error: {"error": error.message})


def protocol_of(path: str) -> Protocol:
    """The protocol whose clients ask for the path."""
    if path.startswith("/api/"):
        return OLLAMA
    return ANTHROPIC if path.startswith("/v1/messages") else OPENAI
