"""Which files of a repository are a model, and which of several models is taken."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from .convert.files.folders import MODEL_FILE
from .convert.files.source_folder import SPLIT_NAME, TOKENIZER_SUFFIXES
from .errors import FetchError, InvalidArgumentError, ModelNotFoundError

_INDEX = "model.safetensors.index.json"
_MAX_SIZE = 1 << 50
_MAX_PARTS = 1000
_QUANTISATION = re.compile(
    r"(?i)(?:^|[-._])((?:UD-)?(?:(?:I?Q|TQ)\d(?:_[0-9A-Z]+)*|BF16|FP?16|FP?32|MXFP4(?:_MOE)?))$"
)
# GGUFs that are no language models.
_OTHERS = ("mmproj", "imatrix", "mtp-")
# Bytes in memory, once converted (docs/gguf.md), for each of the file; the best to run comes first.
# Weights that are not quantised come last: they give the same answers as Q8_0 at half of the speed.
_EXPANSION = {
    **{"Q8": 1.0, "Q6_K": 1.3, "Q5_K": 1.73, "Q5": 1.6, "Q4_K": 1.25, "Q4_1": 1.1, "IQ4": 2.1},
    **{"MXFP4": 1.5, "Q4": 1.0, "Q3": 2.5, "IQ3": 2.9, "Q2": 3.4, "IQ2": 4.3, "TQ2": 4.3},
    **{"TQ1": 5.3, "IQ1": 5.8, "BF16": 1.0, "F16": 1.0, "FP16": 1.0, "F32": 1.0, "FP32": 1.0},
}
_SHARE_OF_MEMORY = 0.8  # the rest is for the cache and for computing


@dataclass(frozen=True)
class RemoteFile:
    """Its size in bytes and its digest: SHA-256, or git's of a small file."""

    size: int
    digest: str

    @classmethod
    def checked(cls, name: object, size: object, digest: object) -> RemoteFile:
        """Raises ValueError for a listing that would lead out of the folder, or is none."""
        if not isinstance(name, str) or not _is_inside(name):
            raise ValueError(f"a file is named {name!r:.100}")
        if type(size) is not int or not 0 <= size < _MAX_SIZE:
            raise ValueError(f"{name} has the size {size!r:.40}")
        if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", digest):
            raise ValueError(f"{name} has the digest {digest!r:.100}")
        return cls(size, digest)


def _is_inside(name: str) -> bool:
    parts = name.split("/")
    return name.isprintable() and "\\" not in name and not {"", ".", ".."} & set(parts)


@dataclass(frozen=True)
class Choice:
    """A model of a repository: its files, in the first of which or around which it is opened.

    `index` is the file that says which of the weights are needed, if there is one.
    """

    form: str
    files: tuple[str, ...]
    index: str = ""
    note: str = ""

    def narrowed(self, index: bytes) -> Choice:
        """Without weights that the index does not name. Raises FetchError where it is damaged."""
        try:
            needed = set(json.loads(index)["weight_map"].values())
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise FetchError(f"{self.index} is damaged: {error}") from error
        missing = needed - set(self.files)
        if missing:
            raise FetchError(
                f"{self.index} names {min(map(str, missing))!r:.100}, which is missing"
            )
        files = [each for each in self.files if not each.endswith(".safetensors") or each in needed]
        return replace(self, files=tuple(files))


def choose(listing: Mapping[str, RemoteFile], repository: str, choice: str) -> Choice:
    """The model that is meant by `choice`, or by the repository alone.

    Raises ModelNotFoundError where there is none, InvalidArgumentError where several are meant.
    """
    ggufs = _ggufs(listing)
    if choice:
        return _chosen(ggufs, repository, choice)
    beside = [
        each
        for each in listing
        if PurePosixPath(each).suffix in TOKENIZER_SUFFIXES and "/" not in each
    ]
    if MODEL_FILE in listing:
        graphs = [each for each in listing if re.fullmatch(r"openvino_\w+\.(xml|bin)", each)]
        return Choice("OpenVINO", (MODEL_FILE, *(set(graphs) - {MODEL_FILE}), *beside))
    weights = [each for each in listing if re.fullmatch(r"[^/]*\.safetensors", each)]
    if "config.json" in listing and weights:
        if _INDEX in listing:
            return Choice("safetensors", (*beside, *weights), index=_INDEX)
        if "model.safetensors" in listing:
            return Choice("safetensors", (*beside, "model.safetensors"))
    if not ggufs:
        raise ModelNotFoundError(
            f"{repository} holds no model that is read here: no .gguf file, no config.json with "
            f"model.safetensors, no {MODEL_FILE}. Pickles (.bin, .pt, .pth) are never read"
        )
    if len(ggufs) == 1:
        ((first, parts),) = ggufs.items()
        return Choice(_form(first), parts)
    return _best(ggufs, listing, repository)


def split_parts(name: str) -> tuple[str, ...]:
    """The names of all parts of a split file, or the name alone."""
    match = SPLIT_NAME.fullmatch(name)
    count = int(match["count"]) if match else 0
    if match is None or not 1 <= count <= _MAX_PARTS:
        return (name,)
    return tuple(f"{match['stem']}-{i:05}-of-{count:05}.gguf" for i in range(1, count + 1))


def _ggufs(listing: Mapping[str, RemoteFile]) -> dict[str, tuple[str, ...]]:
    """The parts of each model, by the first; those of which one is missing are left out."""
    models = {}
    for name in sorted(listing):
        parts = split_parts(name)
        is_model = not any(each in PurePosixPath(name).name.lower() for each in _OTHERS)
        if (
            name.endswith(".gguf")
            and is_model
            and parts[0] == name
            and listing.keys() >= set(parts)
        ):
            models[name] = parts
    return models


def quantisation(name: str) -> str:
    """What a file's name says of it, e.g. Q4_K_M; empty where it says nothing."""
    match = SPLIT_NAME.fullmatch(name)
    found = _QUANTISATION.search(match["stem"] if match else name.removesuffix(".gguf"))
    return found[1].upper() if found else ""


def _form(name: str) -> str:
    return f"GGUF {quantisation(name)}".strip()


def _chosen(ggufs: Mapping[str, tuple[str, ...]], repository: str, choice: str) -> Choice:
    wanted = choice.upper().removeprefix("UD-")
    for meant in (
        [first for first, parts in ggufs.items() if choice in parts],
        [first for first, parts in ggufs.items() if choice in {Path(each).name for each in parts}],
        [each for each in ggufs if quantisation(each) == choice.upper()],
        [each for each in ggufs if quantisation(each).removeprefix("UD-") == wanted],
    ):
        if len(meant) == 1:
            return Choice(_form(meant[0]), ggufs[meant[0]])
        if meant:
            raise InvalidArgumentError(
                f"{repository}:{choice} is one of several files: {', '.join(meant)}; give the "
                "file's name"
            )
    raise ModelNotFoundError(
        f"{repository} has no {choice!r}; "
        + (f"GGUF files: {', '.join(ggufs)}" if ggufs else "it has no GGUF file to choose from")
    )


def _best(
    ggufs: Mapping[str, tuple[str, ...]], listing: Mapping[str, RemoteFile], repository: str
) -> Choice:
    """The best that fits into free memory."""
    free = free_memory()
    kinds = list(_EXPANSION)
    candidates = []
    for first, parts in ggufs.items():
        label = quantisation(first).removeprefix("UD-")
        kind = next((each for each in kinds if label.startswith(each)), "Q3")
        size = sum(listing[part].size for part in parts)
        needed = size * _EXPANSION[kind]
        candidates.append((kinds.index(kind), -size, needed, first))
    fitting = [each for each in sorted(candidates) if each[2] <= free * _SHARE_OF_MEMORY]
    if not fitting:
        smallest = min(candidates, key=lambda each: each[2])
        raise InvalidArgumentError(
            f"{repository} has {len(ggufs)} GGUF files, of which none fits into the "
            f"{shown_size(free)} of memory that are free; {smallest[3]} needs least, "
            f"{shown_size(smallest[2])}. {repository}:{quantisation(smallest[3]) or smallest[3]} "
            "takes it all the same"
        )
    _, size, _, first = fitting[0]
    note = (
        f"{repository}: {first} ({shown_size(-size)}) of {len(ggufs)} GGUF files is the best that "
        f"fits into {shown_size(free)} of free memory; {repository}:NAME takes another"
    )
    return Choice(_form(first), ggufs[first], note=note)


def free_memory() -> int:
    """Bytes that this process may still allocate, by the system and its control group."""
    text = Path("/proc/meminfo").read_text(encoding="ascii")
    found = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    free = int(found[1]) * 1024 if found else _MAX_SIZE
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        used = int((group / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such file, or "max"
        return free
    return min(free, max(0, limit - used))


def shown_size(count: float) -> str:
    """1 KB is 1000 bytes."""
    for unit in ("bytes", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"
