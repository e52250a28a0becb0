"""Reading a document: bounded in bytes and depth, then strict validation with one clear error."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from math import isfinite, isinf
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from helmsman.schemas.base import Document
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.near_names import did_you_mean
from helmsman.schemas.repeated_names import first_repeated

JSON_LIMIT = Document.byte_limit
CONFIG_LIMIT = 2**20
MAX_DEPTH = 64
EARLIER_MODEL = b'"helm.model/1"'
"""Text without which a document has nothing of an earlier version."""
_SHOWN = 200
"""Characters of a key that an error shows."""

DocumentT = TypeVar("DocumentT", bound=Document)


def read_document(cls: type[DocumentT], path: Path) -> DocumentT:
    """Read and validate the document at `path`.

    Raises BadInputError naming file, field, value and remedy."""
    return parse_document(cls, read_bytes(path, cls.byte_limit), str(path))


def parse_document(cls: type[DocumentT], data: bytes, file: str) -> DocumentT:
    """Validate `data` as a `cls`, after what it has of earlier versions is brought up to date; `file` names it in
    errors."""
    content = parse_json(data, file)
    if not isinstance(content, dict):
        remedy = "write one object in braces"
        raise BadInputError("a JSON object is expected", file=file, value=content, remedy=remedy)
    if EARLIER_MODEL in data:
        from helmsman.schemas.upgrade import upgraded

        data = json.dumps(upgraded(content, file)).encode()
    return validated(cls, data, file)


def validated(cls: type[DocumentT], data: bytes, file: str) -> DocumentT:
    """Validate JSON of this version as a `cls`; `file` names it in errors."""
    try:
        return cls.model_validate_json(data, strict=True)
    except ValidationError as error:
        raise _first_problem(error, file) from None


def parse_mapping(
    cls: type[DocumentT], content: object, name: str, example: str, default: Callable[[object], object]
) -> DocumentT:
    """Validate a mapping, as JSON has it, as a `cls`; `name` names it in errors, `example` shows one, `default` makes
    something that JSON has of other values, or raises TypeError.

    Raises UsageError for what is no such mapping, BadInputError for a document that is none."""
    remedy = f"give a mapping as JSON has it: {example}"
    if not isinstance(content, Mapping):
        raise UsageError(f"not a {name}", value=content, remedy=remedy)
    try:
        text = json.dumps(dict(content), default=default)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"not a {name}: {error}", remedy=remedy) from None
    return parse_document(cls, text.encode(), name)


def read_bytes(path: Path, limit: int) -> bytes:
    """Return the content of `path`, at most `limit` bytes."""
    try:
        with path.open("rb") as stream:
            data = stream.read(limit + 1)
    except OSError as error:
        remedy = "check the path and its permissions"
        raise BadInputError(f"cannot be read: {error.strerror}", file=str(path), remedy=remedy) from None
    if len(data) > limit:
        remedy = "name the right file, or remove what is not needed"
        raise BadInputError(f"larger than the limit of {limit} bytes", file=str(path), remedy=remedy)
    return data


def check_regular(path: Path, remedy: str = "check the path and its permissions") -> None:
    """Raise BadInputError where `path` is a pipe, a device or a folder: of these the beginning can be read once, or the
    end never comes. Raises OSError for a name that no file system takes."""
    if path.exists() and not path.is_file():
        raise BadInputError("cannot be read: it is not a file", file=str(path), remedy=remedy)


def parse_json(data: bytes, file: str, endless_keys: frozenset[str] = frozenset()) -> Any:
    """JSON text to Python values; refuses NaN, duplicate keys, deep nesting, infinities but under `endless_keys`."""
    endless: list[str] = []

    def number(text: str) -> float:
        value = float(text)
        if not isfinite(value):
            endless.append(text)
        return value

    try:
        content = json.loads(data.decode("utf-8"), parse_constant=number, parse_float=number, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        remedy = "correct the file, or write it again with the command that made it"
        raise BadInputError(f"not valid JSON: {error}", file=file, remedy=remedy) from None
    _check_depth(content, file)
    field = next(_not_finite(content, endless_keys), None) if endless else None
    if endless and (field is not None or not endless_keys):
        message = f"{endless[0]} is not a number that can be used"
        raise BadInputError(message, file=file, field=field, value=endless[0], remedy="write a finite number")
    return content


def digest(document: Document) -> str:
    """SHA-256 of the canonical compact JSON."""
    return _sha256(document.to_json(indent=None))


def is_digest(stated: str, document: Document) -> bool:
    """Whether `stated` is the digest of `document`, or was when its type lacked optional fields that it does not use.

    Files spell every field out, so one that is not there was not known to whoever wrote them. Written again
    they spell everything out: copy such a file, do not rewrite it."""
    if stated == digest(document):
        return True
    return stated == _sha256(document.model_dump_json(by_alias=True, exclude_none=True, exclude_unset=True))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _not_finite(content: Any, endless_keys: frozenset[str], place: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the places of NaN and infinities in a document, in order, as in `rows.3.host.value`; infinities under
    `endless_keys` not."""
    allowed = isinf(content) and not endless_keys.isdisjoint(place) if isinstance(content, float) else True
    if isinstance(content, float) and not isfinite(content) and not allowed:
        yield ".".join(place)
    pairs = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, child in pairs:
        yield from _not_finite(child, endless_keys, (*place, str(key)))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        key = first_repeated(key for key, _ in pairs)
        raise ValueError(f"duplicate key {key!r:.{_SHOWN}}")
    return content


def _check_depth(content: Any, file: str) -> None:
    level = [content]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in _children(node)]
        if not level:
            return
    raise BadInputError(
        f"nested deeper than {MAX_DEPTH} levels", file=file, remedy="flatten it, or name the right file"
    )


def _children(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(node.values())
    return node if isinstance(node, list) else []


def _first_problem(error: ValidationError, file: str) -> BadInputError:
    """Return the first problem; a part of its place that is in parentheses says in which form a field was read."""
    problem = error.errors(include_url=False)[0]
    context = problem.get("ctx", {})
    place = (str(part) for part in (*problem["loc"], context.get("field")) if part is not None)
    field = ".".join(part for part in place if not _is_form(part)) or None
    shown = context.get("value", problem["input"])
    value = None if problem["type"] == "missing" or isinstance(shown, dict) else shown
    remedy = _REMEDIES.get(problem["type"], "write what the published schema allows").format(**context)
    choices = _QUOTED.findall(context["expected"]) if problem["type"] == "literal_error" else []
    if len(choices) > _LISTED and isinstance(value, str):
        remedy = did_you_mean(value, choices)
    message = _MESSAGES.get(problem["type"], problem["msg"])
    return BadInputError(message, file=file, field=field, value=value, remedy=remedy)


def _is_form(part: str) -> bool:
    """Whether a part of a place is no name of a document but the form in which a field was read: pydantic calls its own
    so (`constrained-str`, `function-after[...]`, `list[...]`), ours are in parentheses."""
    return part.startswith(("(", "constrained-", "function-")) or part.endswith("]")


_QUOTED = re.compile(r"'([^']*)'")
"""A choice, as pydantic lists them."""

_LISTED = 8
"""The number of choices that are all listed."""

_MESSAGES = {
    "literal_error": "no such choice",
    "too_short": "too few entries",
    "too_long": "too many entries",
}
"""What is wrong, where pydantic's own words are those of Python or repeat the remedy."""

_REMEDIES = {
    "mistake": "{remedy}",
    "missing": "add the field",
    "extra_forbidden": "remove the field or correct its name",
    "int_type": "write a whole number",
    "float_type": "write a number",
    "finite_number": "write a finite number",
    "bool_type": "write true or false",
    "string_type": "write a text in quotes",
    "string_too_short": "write at least {min_length} characters",
    "string_too_long": "write at most {max_length} characters",
    "string_pattern_mismatch": "write a text that matches {pattern}",
    "string_unicode": "write valid Unicode",
    "tuple_type": "write a list",
    "ranges_type": 'write {{"start": .., "stop": ..}}, or a list of such ranges',
    "dict_type": "write an object in braces",
    "model_type": "write an object in braces",
    "model_attributes_type": "write an object in braces",
    "too_short": "give at least {min_length}",
    "too_long": "give at most {max_length}",
    "greater_than": "use more than {gt}",
    "greater_than_equal": "use at least {ge}",
    "less_than_equal": "use at most {le}",
    "literal_error": "use one of {expected}",
    "union_tag_invalid": "use one of {expected_tags}",
    "union_tag_not_found": "add the field {discriminator}",
}
"""The remedy for each of pydantic's error types that a document can meet; braces name parts of its context."""
