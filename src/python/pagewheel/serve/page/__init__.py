"""The page at /: its files, which the package brings, and what its view of the cache asks for."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from pagewheel.serve.http.errors import ApiError
from pagewheel.serve.http.request_context import Handler, RequestContext

_FOLDER = Path(__file__).parent
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Nothing comes from elsewhere, nothing goes elsewhere, and no text of a model can be a script.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types dompurify"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


def paths() -> dict[str, Path]:
    """The page's files by the path they are served at: no other file can be asked for."""
    files = [each for each in _FOLDER.rglob("*") if each.suffix in _KINDS]
    found = {f"/page/{each.relative_to(_FOLDER).as_posix()}": each for each in files}
    return {"/": _FOLDER / "index.html", **found}


def sender(file: Path) -> Handler:
    async def send(context: RequestContext[Any]) -> None:
        # What a browser asks by the wrong name is refused, as the API is.
        host = context.request.headers.get("host", "")
        if not context.service.hosts.allows(host):
            raise ApiError(403, "this server does not answer to this host", code="host_not_allowed")
        await context.send_bytes(_read(file), _KINDS[file.suffix], headers=_HEADERS)

    return send


@cache
def _read(file: Path) -> bytes:
    return file.read_bytes()
