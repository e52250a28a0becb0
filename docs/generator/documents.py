"""Makes a page for each document, field by field, from the JSON Schemas that Helm publishes."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docs.generator.markdown import code, escaped, page, section, table

Schema = Mapping[str, Any]

HEAD = ("field", "type", "default", "meaning")
"""The columns of a table of fields."""
LONGEST_DEFAULT = 40
"""Letters of a default that a table has room for."""
_CLAUSE = re.compile(r"(?:^|(?<=[.;]) )((?:`\w+`, )*`\w+`): ")
"""The names of fields before what is said of them."""
_SENTENCE = re.compile(r"(?<=[.;]) ")
"""Where that ends."""
_ABOUT = (
    "Every document that Helm reads or writes is JSON of a published schema (`schemas/json` in the repository, JSON "
    "Schema 2020-12), but for tables, which are Parquet. Keys that a schema does not have are refused, with the "
    "nearest one that it has."
)


def document_pages(schemas: Path) -> dict[str, str]:
    """Return a page for each schema of a folder, and one that lists them."""
    published = {
        path.name.removesuffix(".schema.json"): json.loads(path.read_text()) for path in sorted(schemas.glob("*.json"))
    }
    rows = [(f"[{name}]({name}.md)", code(_version(schema)), _first(schema)) for name, schema in published.items()]
    pages = {f"documents/{name}.md": _page(name, schema) for name, schema in published.items()}
    return {"documents/index.md": page("Documents", _ABOUT, table(("document", "schema", "what it is"), rows)), **pages}


def fields_of(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the fields of an object's schema."""
    yield from schema.get("properties", {}).items()


def _page(name: str, schema: Schema) -> str:
    parts = [_object(part_name, part) for part_name, part in sorted(schema.get("$defs", {}).items())]
    version = f"Schema `{_version(schema)}`." if _version(schema) else ""
    return page(name, version, _described(schema), _fields(schema), *parts)


def _object(name: str, schema: Schema) -> str:
    if "properties" not in schema:
        return section(name, _described(schema), f"One of: {_type(schema)}." if "enum" in schema else "")
    return section(name, _described(schema), _fields(schema))


def _fields(schema: Schema) -> str:
    required, told = set(schema.get("required", ())), told_fields(str(schema.get("description", "")))
    rows = [
        (
            code(name),
            _type(field),
            _default(field, name in required),
            escaped(field.get("description") or told.get(name, "")),
        )
        for name, field in fields_of(schema)
    ]
    return table(HEAD, rows)


def told_fields(description: str) -> dict[str, str]:
    """Return by field what an object's description says of it, as in "`a`, `b`: meaning; `c`: meaning."."""
    _, *parts = _CLAUSE.split(" ".join(description.split()))
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return {name: _SENTENCE.split(text)[0].rstrip(".;") for names, text in pairs for name in re.findall(r"\w+", names)}


def _default(field: Schema, required: bool) -> str:
    if required:
        return "required"
    if "default" not in field or field["default"] is None:
        return ""
    text = json.dumps(field["default"], ensure_ascii=False)
    return code(text) if len(text) <= LONGEST_DEFAULT else "as its fields'"


def _type(field: Schema) -> str:
    """Return a field's type in words, with links to the parts of the page."""
    if "$ref" in field:
        name = str(field["$ref"]).rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if "const" in field:
        return code(json.dumps(field["const"]))
    if "enum" in field:
        return " or ".join(code(json.dumps(value)) for value in field["enum"])
    options = field.get("anyOf") or field.get("oneOf")
    if options:
        return " or ".join(dict.fromkeys(_type(option) for option in options))
    return _plain(field)


def _plain(field: Schema) -> str:
    kind = field.get("type")
    if kind == "array":
        items = field.get("prefixItems")
        inside = ", ".join(_type(item) for item in items) if items else _type(field.get("items", {}))
        return f"list of {inside}" if inside else "list"
    if kind == "object":
        values = [*field.get("patternProperties", {}).values(), *_extra(field)]
        return f"object of {_type(values[0])}" if values else "object"
    names = {"integer": "whole number", "string": "text", "boolean": "true or false", "null": "null"}
    return names.get(str(kind), str(kind or "anything")) + _limits(field)


def _extra(field: Schema) -> list[Schema]:
    extra = field.get("additionalProperties")
    return [extra] if isinstance(extra, dict) else []


def _limits(field: Schema) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    told = [f"{sign} {field[name]:g}" for name, sign in signs.items() if name in field]
    return f" {', '.join(told)}" if told else ""


def _described(schema: Schema) -> str:
    return escaped(str(schema.get("description", "")))


def _first(schema: Schema) -> str:
    """Return the first sentence of a document's description."""
    return escaped(" ".join(str(schema.get("description", "")).split()).split(". ")[0].rstrip("."))


def _version(schema: Schema) -> str:
    return str(schema.get("properties", {}).get("schema", {}).get("const", ""))
