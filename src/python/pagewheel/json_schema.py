"""JSON schemas of what Python programs describe data with."""

from __future__ import annotations

import json
import warnings
from typing import Any

from pagewheel.schema_dialect import Dialect


def to_json_schema(schema: Any) -> str:
    """A JSON text as it is; the schema of a dict, of a pydantic model, or of another type.

    Types other than models need pydantic too: dataclasses, TypedDict, Literal, list[int]...
    """
    if isinstance(schema, str):
        return schema
    if isinstance(schema, (dict, bool)):
        return json.dumps(schema)
    if hasattr(schema, "model_json_schema"):
        return _text_of(schema.model_json_schema())
    try:
        from pydantic import TypeAdapter
    except ImportError:
        raise TypeError(
            f"a JSON schema is a JSON text or a dict; of a type like {schema!r} the package "
            "pydantic makes one, which is not installed"
        ) from None
    return _text_of(TypeAdapter(schema).json_schema())


def _text_of(schema: Any) -> str:
    """In keywords that a grammar can keep. Warns of formats that are not known."""
    dialect = Dialect(schema)
    if dialect.formats:
        names = ", ".join(sorted(dialect.formats))
        warnings.warn(f"formats of the JSON schema that any text has: {names}", stacklevel=3)
    return json.dumps(dialect.schema)
