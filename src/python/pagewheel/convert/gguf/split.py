"""Names of split models. Imports nothing heavy: finding a converted model must be quick."""

from __future__ import annotations

import re
from pathlib import Path

_SPLIT_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


def shard_paths(path: Path) -> list[Path]:
    """The files of a model, first to last, given any of them; [path] where it is one file.

    Goes by the name alone; raises FileNotFoundError naming the first that is missing.
    """
    match = _SPLIT_NAME.fullmatch(path.name)
    if match is None:
        return [path]
    count = int(match["count"])
    paths = []
    for number in range(1, count + 1):
        shard = path.with_name(f"{match['stem']}-{number:05}-of-{match['count']}.gguf")
        if not shard.is_file():
            raise FileNotFoundError(f"no such file: {shard}, part {number} of {count} of a model")
        paths.append(shard)
    return paths or [path]
