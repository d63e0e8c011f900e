"""Names in a model folder. Imports next to nothing: finding a converted model must be quick."""

from __future__ import annotations

from ...errors import InvalidArgumentError

# Part of the cache key: raise it whenever the same source gives another folder.
FORMAT_VERSION = 5

# Of the keys of pagewheel.json: a reader that knows only lower ones refuses the folder. Its number
# stands in model/description_version.hpp of the C++ core, which says when it is raised.
DESCRIPTION_VERSION = 1

MODEL_FILE = "openvino_model.xml"
# Written last: a folder that has it is whole.
DESCRIPTION_FILE = "pagewheel.json"


def check_description_version(description: dict[str, object]) -> None:
    """Raises ValueError where pagewheel.json was written for newer code, as the C++ core does."""
    version = description.get("version", 1)
    if type(version) is not int or version < 1 or version > DESCRIPTION_VERSION:
        raise InvalidArgumentError(
            f"pagewheel.json: version is {version!r:.100}; allowed: 1 to {DESCRIPTION_VERSION}. "
            "A newer pagewheel may have written this folder: install that one, or convert the "
            "model again with this one"
        )
