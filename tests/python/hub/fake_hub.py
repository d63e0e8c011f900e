"""A server that speaks the Hugging Face hub's HTTP, as far as huggingface_hub asks for files."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

LARGE = (".gguf", ".safetensors", ".bin")  # kept as Git LFS does, behind a redirect


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def git_digest(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass
class FakeHub:
    """Repositories by name, of files by name. What it does wrong is set by tests.

    A revision that is not main is a repository of its own here: owner/name@revision.
    """

    url: str = ""
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    token: str = ""  # asked for, if any
    requests: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)  # that were sent, with the path
    listing: Callable[[dict[str, Any]], object] = lambda info: None  # changes it
    headers: dict[str, str] = field(default_factory=dict)  # of answers about files, instead
    content: dict[str, bytes] = field(default_factory=dict)  # given instead, by path's end
    statuses: list[int] = field(default_factory=list)  # of the next requests for content
    breaks_off_after: int = 0  # bytes, once
    pages: dict[str, bytes] = field(default_factory=dict)  # other files, by path
    held: threading.Event | None = None  # content comes when it is set
    endless: str = ""  # end of the path for which a body does not end

    def commit(self, repository: str) -> str:
        files = self.repositories[repository]
        digests = "".join(name + sha256(data) for name, data in sorted(files.items()))
        return hashlib.sha1(digests.encode()).hexdigest()

    def info(self, repository: str) -> dict[str, Any]:
        siblings = []
        for name, data in self.repositories[repository].items():
            sibling: dict[str, Any] = {"rfilename": name, "size": len(data)}
            sibling["blobId"] = git_digest(data)
            if name.endswith(LARGE):
                sibling["lfs"] = {"size": len(data), "sha256": sha256(data), "pointerSize": 130}
            siblings.append(sibling)
        info = {"id": repository, "sha": self.commit(repository), "siblings": siblings}
        self.listing(info)
        return info

    def downloads(self) -> list[str]:
        """Names of files whose content was asked for."""
        return [each.rpartition("/")[2] for each in self.requests if each.startswith("GET /cdn")]


def _at(repository: str, revision: str) -> str:
    return repository if revision == "main" else f"{repository}@{unquote(revision)}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub = self.hub
        path = self.path.partition("?")[0]
        hub.requests.append(f"{self.command} {path}")
        if "Authorization" in self.headers:
            hub.tokens.append(f"{path} {self.headers['Authorization']}")
        if hub.endless and path.endswith(hub.endless):
            return self._go_on_forever()
        if path in hub.pages:
            return self._answer(200, hub.pages[path])
        cdn = re.fullmatch(r"/cdn/(?P<repository>[^/]+/[^/]+)/(?P<name>.+)", path)
        if cdn:
            return self._content(cdn["repository"], cdn["name"])
        if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self._answer(401, b"{}")
        listed = re.fullmatch(r"/api/models/(.+)/revision/(.+)", path)
        if listed:
            repository = _at(listed[1], listed[2])
            if repository not in hub.repositories:
                missing = "Revision" if listed[1] in hub.repositories else "Repo"
                return self._answer(404, b"{}", {"X-Error-Code": f"{missing}NotFound"})
            return self._answer(200, json.dumps(hub.info(repository)).encode())
        asked = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        repository = _at(asked[1], asked[2]) if asked else ""
        if not asked or asked[3] not in hub.repositories.get(repository, {}):
            return self._answer(404, b"{}", {"X-Error-Code": "EntryNotFound"})
        return self._resolve(repository, asked[3])

    def _resolve(self, repository: str, name: str) -> None:
        data = self.hub.repositories[repository][name]
        headers = {"X-Repo-Commit": self.hub.commit(repository), "ETag": f'"{git_digest(data)}"'}
        if name.endswith(LARGE):
            elsewhere = self.hub.url.replace("127.0.0.1", "localhost")
            headers |= {
                "X-Linked-ETag": f'"{sha256(data)}"',
                "X-Linked-Size": str(len(data)),
                # Another host, to which no token may go.
                "Location": f"{elsewhere}/cdn/{repository}/{name}",
            }
            return self._answer(302, b"", headers | self.hub.headers)
        return self._answer(200, self._given(name, data), headers | self.hub.headers)

    def _given(self, name: str, data: bytes) -> bytes:
        return self.hub.content.get(name, data)

    def _content(self, repository: str, name: str) -> None:
        hub = self.hub
        if hub.held is not None:
            hub.held.wait(60)
        if hub.statuses:
            return self._answer(hub.statuses.pop(0), b"{}", {"Retry-After": "0"})
        data = self._given(name, hub.repositories[repository][name])
        begin = int(self.headers.get("Range", "bytes=0-")[6:].partition("-")[0])
        headers = {"Content-Length": str(len(data) - begin)}
        if begin:
            headers["Content-Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        if hub.breaks_off_after:
            part, hub.breaks_off_after = data[begin : begin + hub.breaks_off_after], 0
            self._answer(206 if begin else 200, part, headers)
            self.close_connection = True
            return
        self._answer(206 if begin else 200, data[begin:], headers)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _go_on_forever(self) -> None:
        self.send_response(200)
        self.send_header("X-Repo-Commit", "0" * 40)
        self.send_header("ETag", '"endless"')
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            while self.command != "HEAD":
                self.wfile.write(b"100000\r\n" + b" " * 0x100000 + b"\r\n")
        except OSError:
            self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        pass  # a client that leaves


@contextmanager
def running() -> Iterator[FakeHub]:
    hub = FakeHub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = _Server(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
