"""Whether a text is JSON of a schema, as the package jsonschema says."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
from jsonschema_specifications import REGISTRY

VALID = "valid"
UNKNOWN = "not validated"  # the begin of a result: the validator cannot read the schema
REPEATED = "repeated keys"  # the begin of a result

_DRAFTS = {
    "3": jsonschema.Draft3Validator,
    "4": jsonschema.Draft4Validator,
    "6": jsonschema.Draft6Validator,
    "7": jsonschema.Draft7Validator,
    "2019-09": jsonschema.Draft201909Validator,
    "2020-12": jsonschema.Draft202012Validator,
}


def validator_of(schema: Any) -> Any:
    """Of the draft that the schema names, in whatever spelling. It fetches nothing."""
    named = schema.get("$schema", "") if isinstance(schema, dict) else ""
    draft = re.search(r"draft[-/]0?(3|4|6|7|2019-09|2020-12)/", named)
    chosen = _DRAFTS[draft[1] if draft else "2020-12"]
    return chosen(schema, registry=REGISTRY, format_checker=chosen.FORMAT_CHECKER)


def has_repeated_keys(text: str) -> bool:
    """JSON leaves open what they mean; a grammar cannot forbid them where any key may come."""
    found = []

    def check(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found.append(len(pairs) != len({key for key, _ in pairs}))
        return dict(pairs)

    json.loads(text, object_pairs_hook=check)
    return any(found)


def validity(text: str, schema: Any) -> str:
    """VALID, or what is wrong. Of repeated keys the last one counts."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        return f"invalid: no JSON: {error}"
    try:
        error = next(validator_of(schema).iter_errors(value), None)
    except Exception as failure:  # a $ref to elsewhere, a pattern of another dialect
        return f"{UNKNOWN}: {type(failure).__name__}: {str(failure)[:80]}"
    if error is None:
        return VALID
    begin = REPEATED if has_repeated_keys(text) else "invalid"
    return f"{begin}: {error.json_path}: {error.message[:120]}"
