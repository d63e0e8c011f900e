"""JSON schemas of what Python programs describe data with."""

from __future__ import annotations

import json
from typing import Any


def to_json_schema(schema: Any) -> str:
    """A JSON text as it is; the schema of a dict, of a pydantic model, or of another type.

    Types other than models need pydantic too: dataclasses, TypedDict, Literal, list[int]...
    """
    if isinstance(schema, str):
        return schema
    if isinstance(schema, (dict, bool)):
        return json.dumps(schema)
    if hasattr(schema, "model_json_schema"):
        return json.dumps(schema.model_json_schema())
    try:
        from pydantic import TypeAdapter
    except ImportError:
        raise TypeError(
            f"a JSON schema is a JSON text or a dict; of a type like {schema!r} the package "
            "pydantic makes one, which is not installed"
        ) from None
    return json.dumps(TypeAdapter(schema).json_schema())
