"""A server of OpenAI's API, as commands ask it: with the standard library alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from pagewheel.errors import InvalidArgumentError

# Between two pieces of an answer; a long prompt on a busy server takes minutes.
_TIMEOUT_SECONDS = 600.0
_LONGEST_MESSAGE = 300


def api_base(url: str) -> str:
    """Puts /v1 at the end. Raises InvalidArgumentError for what is no address of a server."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InvalidArgumentError(
            f"the server is {url!r}; expected an address such as http://127.0.0.1:8000"
        )
    base = url.rstrip("/")
    return base if base.endswith("/v1") else f"{base}/v1"


class RefusedRequestError(RuntimeError):
    """A server refuses a request; `code` is OpenAI's, "" where the server says none."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def opened(url: str, api_key: str, body: Mapping[str, Any] | None = None) -> Iterator[HTTPResponse]:
    """Gives the answer to a GET, or to a POST of `body`. Raises RuntimeError."""
    headers = {"Content-Type": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    data = None if body is None else json.dumps(body).encode()
    try:
        with urlopen(Request(url, data, headers), timeout=_TIMEOUT_SECONDS) as response:
            yield response
    except HTTPError as error:
        reason, code = _reason(error.read())
        raise RefusedRequestError(f"{url} answers {error.code}: {reason}", code) from None
    except URLError as error:
        raise RuntimeError(f"{url}: {error.reason}") from None
    except (OSError, HTTPException) as error:
        raise RuntimeError(f"{url}: the connection broke: {error!r}") from None


def _reason(body: bytes) -> tuple[str, str]:
    """What the server says, in OpenAI's form or another, and its code."""
    text, code = body.decode("utf-8", "replace"), ""
    with suppress(ValueError, TypeError, LookupError):
        error = json.loads(text)["error"]
        text, code = str(error["message"]), str(error.get("code") or "")
    return text[:_LONGEST_MESSAGE], code


def first_model(base: str, api_key: str) -> str:
    """The first one that the server names. Raises RuntimeError."""
    with opened(f"{base}/models", api_key) as response:
        try:
            return str(json.load(response)["data"][0]["id"])
        except (ValueError, TypeError, LookupError):
            raise RuntimeError(f"{base}/models names no model: give --model") from None
