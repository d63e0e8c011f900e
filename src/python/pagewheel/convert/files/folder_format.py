"""Names in a model folder. Imports nothing: finding a converted model must be quick."""

from __future__ import annotations

# Part of the cache key: raise it whenever the same source gives another folder.
FORMAT_VERSION = 5

# Of the keys of pagewheel.json: a reader that knows only lower ones refuses the folder. Its number
# stands in model/description_version.hpp of the C++ core, which says when it is raised.
DESCRIPTION_VERSION = 1

MODEL_FILE = "openvino_model.xml"
# Written last: a folder that has it is whole.
DESCRIPTION_FILE = "pagewheel.json"
