"""Models by name: `owner/name` of the Hugging Face hub, or the URL of a .gguf file, as local paths.

huggingface_hub fetches, by its rules of cache, token, endpoint and offline mode. What a hub answers
is checked here before it is believed: names of files, sizes, digests, how much comes. Nothing that
is fetched is executed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from .convert.files.folders import MODEL_FILE, file_sha256, files_sha256
from .errors import FetchError, InvalidArgumentError, ModelNotFoundError
from .hub_files import Choice, RemoteFile, choose, shown_size, split_parts
from .pulled_models import (
    PulledModel,
    downloads_folder,
    find_pulled,
    plain_name,
    pulled_models,
    remove_files,
    save_note,
)

if TYPE_CHECKING:
    import httpx2
    from huggingface_hub.utils import tqdm

Progress = bool | Callable[[str], None]

_OWNER_AND_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_NAME = re.compile(r"([A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9][\w./-]{0,99}", re.ASCII)
# What ends so is a path that is missing, not a name.
_FILE_SUFFIXES = (".gguf", ".xml", ".bin", ".safetensors", ".json")
_MAX_LISTING_BYTES = 64 << 20
_MAX_FILES = 20_000
_SECONDS = 30.0  # without an answer
_CLOCK_SECONDS = 0.1  # by which a file system's clock may be behind
_SLACK = 1 << 20  # free bytes that a download leaves; what an error's text may have


class _UnreachableError(FetchError):
    """The hub does not answer, has no time, or offline mode is on."""


@dataclass(frozen=True)
class HubName:
    """`choice` is a quantisation (Q4_K_M) or a file of the repository; empty: the best one.

    `revision` is a branch, a tag or a commit.
    """

    repository: str
    choice: str = ""
    revision: str = "main"


def parse_name(text: str) -> HubName | None:
    """From `owner/name`, `owner/name@revision:choice`, either behind "hub:"; None: it is no name.

    Raises InvalidArgumentError for what follows "hub:" and is no name.
    """
    address, _, choice = plain_name(text).partition(":")
    repository, at, revision = address.partition("@")
    is_wrong = ".." in address or (at and not _REVISION.fullmatch(revision))
    name = HubName(repository, choice, revision or "main")
    if text.startswith("hub:"):
        if not _NAME.fullmatch(repository) or is_wrong or "--" in repository:
            raise InvalidArgumentError(
                f"{text!r} is no model's name; expected hub:owner/name, hub:owner/name@revision or "
                "hub:owner/name:choice"
            )
        return name
    is_name = _OWNER_AND_NAME.fullmatch(repository) and not repository.endswith(_FILE_SUFFIXES)
    return name if is_name and not is_wrong else None


def is_url(text: str) -> bool:
    """Whether it is a URL: of a .gguf file or a page of the hub."""
    return re.match(r"https?://", text) is not None


def local_model(source: str | os.PathLike[str], *, progress: Progress = True) -> Path:
    """The path of what the user names; a path that exists is itself, and wins over a name.

    What is not here yet is fetched (`progress` as convert() has it). What is neither a path nor a
    name is returned as it is. Raises as pull() does.
    """
    path, text = Path(source), os.fspath(source)
    if path.exists() or not (is_url(text) or parse_name(text)):
        return path
    found = find_pulled(text)
    return (found or pull(text, progress=progress)).path


def pull(text: str, *, progress: Progress = True, most_bytes: int | None = None) -> PulledModel:
    """Fetches a model by name, or what is newer of it, and checks it.

    Without the hub the model is taken from its cache. Raises ModelNotFoundError where there is no
    such model, FetchError where it cannot be fetched or `most_bytes` are less than what the hub
    lists, InvalidArgumentError for what is no name.
    """
    say = _teller(progress)
    is_shown = progress is True
    before = find_pulled(text)
    if is_url(text):
        model = _pull_url(text, say, is_shown)
    else:
        name = parse_name(text)
        if name is None:
            raise InvalidArgumentError(
                f"{text!r} is no model's name; expected owner/name, owner/name:choice or the URL "
                "of a .gguf file"
            )
        model = _pull_repository(name, plain_name(text), say, is_shown, most_bytes)
    save_note(model)
    if before is not None:
        kept = {file for each in pulled_models() for file in each.files}
        remove_files(before, kept)
    return model


def _teller(progress: Progress) -> Callable[[str], None]:
    if callable(progress):
        return progress
    if not progress:
        return lambda _text: None
    return lambda text: print(text, file=sys.stderr)


def _pull_repository(
    name: HubName,
    text: str,
    say: Callable[[str], None],
    is_shown: bool,
    most_bytes: int | None = None,
) -> PulledModel:
    from huggingface_hub import constants, try_to_load_from_cache

    try:
        commit, listing = _listing(name)
    except _UnreachableError as error:
        return _in_hub_cache(name, text, error, say)
    chosen = choose(listing, name.repository, name.choice)
    if chosen.note:
        say(chosen.note)

    def fetched(file: str) -> Path:
        return _fetch(name, file, listing[file], commit, is_shown)

    if chosen.index:
        chosen = chosen.narrowed(fetched(chosen.index).read_bytes())
    missing = [
        listing[each].size
        for each in chosen.files
        if not isinstance(try_to_load_from_cache(name.repository, each, revision=commit), str)
    ]
    if most_bytes is not None and sum(missing) > most_bytes:
        raise FetchError(
            f"{text} needs {shown_size(sum(missing))}, and {shown_size(most_bytes)} are allowed"
        )
    if missing:
        say(f"{text}: {len(missing)} to fetch, {shown_size(sum(missing))}, from {_endpoint()}")
        _check_room(Path(constants.HF_HUB_CACHE), sum(missing))
    return _as_model(text, chosen, {each: fetched(each) for each in chosen.files})


def _as_model(text: str, chosen: Choice, paths: Mapping[str, Path]) -> PulledModel:
    first = paths[chosen.files[0]]
    sha256 = ""
    if chosen.form.startswith("GGUF"):
        sha256, path = files_sha256([paths[each] for each in chosen.files]), first
    else:
        path = first.parent
        if not (path / MODEL_FILE).is_file():
            from .convert.files.source_folder import folder_sha256

            sha256 = folder_sha256(path)
    files = {paths[each]: paths[each].stat().st_size for each in chosen.files}
    return PulledModel(text, path, chosen.form, files, sha256)


def _endpoint() -> str:
    from huggingface_hub import constants

    return constants.ENDPOINT


@contextmanager
def _hub_errors(repository: str) -> Iterator[None]:
    """Makes of what huggingface_hub raises our errors, and of nonsense an error too."""
    import httpx2
    from huggingface_hub import errors, get_token

    where = f"{_endpoint()}/{repository}"
    has_token = "a token is sent" if get_token() else "no token is sent: set HF_TOKEN"
    try:
        yield
    except (FetchError, ModelNotFoundError):
        raise
    except errors.GatedRepoError as error:
        raise FetchError(f"{where} is gated ({has_token}): accept its terms there") from error
    except (errors.OfflineModeIsEnabled, httpx2.TransportError) as error:
        raise _UnreachableError(f"{_endpoint()} was not reached: {_one_line(error)}") from error
    except errors.HfHubHTTPError as error:
        code = error.response.status_code
        # A hub says 401 for what does not exist, too, where nobody is logged in.
        if isinstance(error, errors.RepositoryNotFoundError) or (code == 401 and not get_token()):
            raise ModelNotFoundError(
                f"no model {repository!r}: there is no such file or folder here, and "
                f"{_endpoint()} has no such repository, or a private one ({has_token})"
            ) from error
        if isinstance(error, errors.RevisionNotFoundError):
            raise ModelNotFoundError(f"{where} has no such revision") from error
        kind = _UnreachableError if code == 429 or code >= 500 else FetchError
        raise kind(f"{where}: HTTP status {code} ({has_token}), {_one_line(error)}") from error
    except errors.LocalEntryNotFoundError as error:  # of a file that was listed
        raise FetchError(f"{where}: {_one_line(error.__cause__ or error)}") from error
    except (httpx2.HTTPError, httpx2.InvalidURL, errors.XetDownloadError, OSError) as error:
        raise FetchError(f"{where}: {_one_line(error)}") from error
    except (ValueError, TypeError, LookupError, AttributeError, RuntimeError) as error:
        raise FetchError(f"{where} answers with what no hub says: {_one_line(error)}") from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500] or type(error).__name__


def _listing(name: HubName) -> tuple[str, dict[str, RemoteFile]]:
    """The commit of the revision and its files."""
    from huggingface_hub import HfApi

    repository = name.repository
    # Encoded, a short body may become a long one.
    api = HfApi(library_name="pagewheel", headers={"Accept-Encoding": "identity"})
    with _hub_errors(repository), _guarded(_MAX_LISTING_BYTES):
        info = api.model_info(
            repository, revision=name.revision, files_metadata=True, timeout=_SECONDS
        )
        files = info.siblings or []
        if len(files) > _MAX_FILES:
            raise FetchError(
                f"{repository} lists {len(files)} files; at most {_MAX_FILES} are read"
            )
        listing = {
            each.rfilename: RemoteFile.checked(
                each.rfilename,
                each.size,
                each.lfs.sha256 if each.lfs is not None else each.blob_id,
            )
            for each in files
        }
        if info.sha is None or not re.fullmatch(r"[0-9a-f]{40}", info.sha):
            raise FetchError(f"{repository}: the hub names the commit {info.sha!r:.80}")
        return info.sha, listing


def _check_room(folder: Path, num_bytes: int) -> None:
    """Raises FetchError where there is none."""
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    free = shutil.disk_usage(there).free - _SLACK
    if num_bytes > free:
        raise FetchError(
            f"{shown_size(num_bytes)} are to be fetched to {folder}, where {shown_size(free)} are "
            "free: make room (`pagewheel list`, `pagewheel rm`), or set HF_HOME and "
            "PAGEWHEEL_CACHE to a larger disk"
        )


def _fetch(hub: HubName, name: str, file: RemoteFile, commit: str, is_shown: bool) -> Path:
    """The file in the hub's cache, with the listed size and digest."""
    from huggingface_hub import hf_hub_download

    repository = hub.repository
    begin = time.time()
    with _hub_errors(repository), _guarded(file.size + _SLACK):
        path = Path(
            hf_hub_download(
                repository,
                name,
                revision=hub.revision,
                library_name="pagewheel",
                headers={"Accept-Encoding": "identity"},
                tqdm_class=_bounded_bar(file.size, is_shown),
            )
        )
        if path.relative_to(path.parents[len(PurePosixPath(name).parts)]).parts[0] != commit:
            raise FetchError(f"{repository} was changed while it was fetched: fetch it again")
        found = path.stat().st_size
        if found != file.size or file.digest != _digest(path, file.digest):
            # What was there before came from another answer, which may be the right one.
            if path.stat().st_mtime >= begin - _CLOCK_SECONDS:
                path.resolve().unlink()
                path.unlink(missing_ok=True)
            raise FetchError(
                f"{repository}: {name} has {found} bytes or another digest than the hub lists "
                f"({file.size} bytes, {file.digest}); fetch it again"
            )
    return path


def _digest(path: Path, like: str) -> str:
    """SHA-256, or where `like` is shorter the one that git gives to small files."""
    if len(like) == 64:
        return file_sha256(path)
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _in_hub_cache(
    name: HubName, text: str, why: Exception, say: Callable[[str], None]
) -> PulledModel:
    """What any program has fetched of it. Raises ModelNotFoundError."""
    from huggingface_hub import CacheNotFound, constants, scan_cache_dir

    try:
        repositories = scan_cache_dir(constants.HF_HUB_CACHE).repos
    except CacheNotFound:
        repositories = frozenset()
    revisions = [
        revision
        for each in repositories
        if each.repo_id == name.repository and each.repo_type == "model"
        for revision in each.revisions
        if name.revision in ("main", revision.commit_hash, *revision.refs)
    ]
    for revision in sorted(revisions, key=lambda each: each.last_modified, reverse=True):
        paths = {
            file.file_path.relative_to(revision.snapshot_path).as_posix(): file.file_path
            for file in revision.files
        }
        listing = {file: RemoteFile(path.stat().st_size, "") for file, path in paths.items()}
        try:
            chosen = choose(listing, name.repository, name.choice)
            if chosen.index:
                chosen = chosen.narrowed(paths[chosen.index].read_bytes())
        except (ModelNotFoundError, FetchError, InvalidArgumentError):
            continue
        say(f"{text}: taken from the hub's cache, since {why}")
        return _as_model(text, chosen, paths)
    here = [each.name for each in pulled_models() if each.name.startswith(name.repository)]
    raise ModelNotFoundError(
        f"no model {text!r}: there is no such file or folder here, {why}, and nothing of it is in "
        f"the hub's cache {constants.HF_HUB_CACHE}. "
        + (f"Fetched are: {', '.join(here)}. " if here else "")
        + f"Where there is a network, `pagewheel pull {text}` fetches it; HF_ENDPOINT names a "
        "mirror; a .gguf file or a model folder needs no network"
    ) from why


def _pull_url(url: str, say: Callable[[str], None], is_shown: bool) -> PulledModel:
    page = re.fullmatch(
        rf"{re.escape(_endpoint())}/(?P<repository>{_OWNER_AND_NAME.pattern})"
        r"(/tree/(?P<tree>[^/?#]+))?/?(/(resolve|blob)/(?P<revision>[^/?#]+)/(?P<file>[^?#]+))?"
        r"([?#].*)?",
        url,
        re.ASCII,
    )
    if page:  # a page of the hub
        revision = unquote(page["tree"] or page["revision"] or "main")
        if not _REVISION.fullmatch(revision) or ".." in revision:
            raise InvalidArgumentError(f"{url!r} has no revision's name")
        name = HubName(page["repository"], unquote(page["file"] or ""), revision)
        return _pull_repository(name, url, say, is_shown)
    parts = urlsplit(url)
    file = PurePosixPath(unquote(parts.path)).name
    if not file.endswith(".gguf") or not parts.hostname:
        raise InvalidArgumentError(f"{url!r} is not the URL of a .gguf file")
    folder = downloads_folder() / hashlib.sha256(url.encode()).hexdigest()[:32]
    paths = []
    for part in split_parts(file):
        say(f"fetching {part} from {parts.hostname}")
        address = parts._replace(path=str(PurePosixPath(parts.path).with_name(part)))
        paths.append(folder / part)
        if part == file:
            address = parts
        fetch_file(address.geturl(), folder / part, is_shown=is_shown)
        with (folder / part).open("rb") as opened:
            if opened.read(4) == b"GGUF":
                continue
        (folder / part).unlink()
        raise FetchError(f"what {url} gives is no GGUF file")
    sizes = {path: path.stat().st_size for path in paths}
    return PulledModel(url, paths[0], "GGUF", sizes, files_sha256(paths))


def fetch_file(url: str, target: Path, *, is_shown: bool) -> None:
    """Puts what a URL gives at `target`, by one rename. No token is sent. Raises FetchError."""
    import httpx2
    from huggingface_hub import errors
    from huggingface_hub.file_download import http_get

    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".tmp-{os.getpid()}-{target.name}")
    most = max(0, shutil.disk_usage(target.parent).free - _SLACK)
    try:
        with temporary.open("wb") as file, _guarded(most, has_length=True):
            http_get(
                url, file, displayed_filename=target.name, tqdm_class=_bounded_bar(most, is_shown)
            )
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except (httpx2.HTTPError, httpx2.InvalidURL, errors.OfflineModeIsEnabled, OSError) as error:
        raise FetchError(f"{url} could not be fetched: {_one_line(error)}") from error
    finally:
        temporary.unlink(missing_ok=True)


def fetch_json(url: str, accept: str) -> Any:
    """A JSON document of a URL. Raises FetchError."""
    import httpx2
    from huggingface_hub import errors, get_session

    headers = {"Accept": accept, "Accept-Encoding": "identity"}
    try:
        with _guarded(_MAX_LISTING_BYTES):
            response = get_session().get(url, headers=headers, timeout=_SECONDS)
            response.raise_for_status()
            return response.json()
    except (
        *(httpx2.HTTPError, httpx2.InvalidURL, errors.OfflineModeIsEnabled),
        *(ValueError, RecursionError),
    ) as error:
        raise FetchError(f"{url} gives no JSON: {_one_line(error)}") from error


def _bounded_bar(most: int, is_shown: bool) -> type[tqdm]:
    """A progress bar that raises FetchError where more bytes come than are expected."""
    from huggingface_hub.utils import tqdm

    class Bar(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **(kwargs if is_shown else {**kwargs, "disable": True}))
            self._received = 0

        def update(self, n: float | None = 1) -> bool | None:
            self._received += int(n or 0)
            if self._received > most:
                raise FetchError(f"more than the expected {most} bytes came")
            updated: bool | None = super().update(n)
            return updated

    return Bar


@dataclass(frozen=True)
class _Limits:
    """Of the answers to one call: bytes of a body, and whether it must say how many it has."""

    most: int
    has_length: bool


# In other threads and outside of our calls huggingface_hub works for others: nothing is changed.
_limits: ContextVar[_Limits | None] = ContextVar("pagewheel_hub_limits", default=None)
# Where files go in the cache depends on them.
_PATH_HEADERS = {
    "ETag": r'(W/)?"?[\w.:+=-]{1,128}"?',
    "X-Linked-ETag": r'(W/)?"?[\w.:+=-]{1,128}"?',
    "X-Repo-Commit": "[0-9a-f]{40}",
}


@contextmanager
def _guarded(most: int, has_length: bool = False) -> Iterator[None]:
    """Checks all that huggingface_hub is answered in this block. FetchError goes through it."""
    from huggingface_hub import get_session, set_client_factory
    from huggingface_hub.utils import _http

    if _check_response not in get_session().event_hooks["response"]:
        make = _http._GLOBAL_CLIENT_FACTORY  # it makes a new client after errors, too

        def make_guarded() -> httpx2.Client:
            client = make()
            hooks = client.event_hooks
            client.event_hooks = {**hooks, "response": [*hooks["response"], _check_response]}
            return client

        set_client_factory(make_guarded)
    token = _limits.set(_Limits(most, has_length))
    try:
        yield
    finally:
        _limits.reset(token)


def _check_response(response: httpx2.Response) -> None:
    """Raises FetchError for an answer that would do harm."""
    limits = _limits.get()
    if limits is None:
        return
    for header, pattern in _PATH_HEADERS.items():
        value = response.headers.get(header)
        if value is not None and not re.fullmatch(pattern, value, re.ASCII):
            raise FetchError(f"{response.url} answers with {header}: {value!r:.100}")
    length = response.headers.get("Content-Length", "")
    has_body = response.request.method != "HEAD"
    if has_body and response.is_success:
        if limits.has_length and not length.isdecimal():
            raise FetchError(f"{response.url} does not say how many bytes it sends")
        if length.isdecimal() and int(length) > limits.most:
            raise FetchError(
                f"{response.url} sends {shown_size(int(length))}, where {shown_size(limits.most)} "
                "are allowed"
            )
    if has_body:
        response.stream = _bounded(response.stream, limits.most)


def _bounded(stream: Any, most: int) -> httpx2.SyncByteStream:
    """A body that raises FetchError where it goes on for more bytes."""
    import httpx2

    class Bounded(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            received = 0
            for chunk in stream:
                received += len(chunk)
                if received > most:
                    raise FetchError(f"a body goes on after {most} bytes")
                yield chunk

        def close(self) -> None:
            stream.close()

    return Bounded()
