"""Reading a document: bounded in bytes and depth, then strict validation with one clear error."""

import hashlib
import json
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import ValidationError

from helmsman.schemas.base import Document
from helmsman.schemas.errors import BadInputError

PLAN_LIMIT = 16 * 2**20
JSON_LIMIT = 4 * 2**20
CONFIG_LIMIT = 2**20
MAX_DEPTH = 64

DocumentT = TypeVar("DocumentT", bound=Document)


def read_document(cls: type[DocumentT], path: Path) -> DocumentT:
    """Read and validate the document at `path`.

    Raises BadInputError naming file, field, value and remedy."""
    limit = PLAN_LIMIT if cls.__name__ == "Plan" else JSON_LIMIT
    return parse_document(cls, read_bytes(path, limit), str(path))


def parse_document(cls: type[DocumentT], data: bytes, file: str) -> DocumentT:
    """Validate `data` as a `cls`; `file` names it in errors."""
    content = parse_json(data, file)
    if not isinstance(content, dict):
        raise BadInputError("a JSON object is expected", file=file, value=content)
    try:
        return cls.model_validate_json(data, strict=True)
    except ValidationError as error:
        raise _first_problem(error, file) from None


def read_bytes(path: Path, limit: int) -> bytes:
    """The content of `path`, at most `limit` bytes."""
    try:
        with path.open("rb") as stream:
            data = stream.read(limit + 1)
    except OSError as error:
        raise BadInputError(f"cannot be read: {error.strerror}", file=str(path)) from None
    if len(data) > limit:
        raise BadInputError(f"larger than the limit of {limit} bytes", file=str(path))
    return data


def parse_json(data: bytes, file: str) -> Any:
    """JSON text to Python values; refuses NaN, infinities, duplicate keys and deep nesting."""
    try:
        content = json.loads(
            data.decode("utf-8"),
            parse_constant=_refuse_constant,
            parse_float=_finite,
            object_pairs_hook=_unique,
        )
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"not valid JSON: {error}", file=file) from None
    _check_depth(content, file)
    return content


def digest(document: Document) -> str:
    """SHA-256 of the canonical compact JSON."""
    return hashlib.sha256(document.to_json(indent=None).encode()).hexdigest()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text} is too large for a number")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"duplicate key {next(k for k in keys if keys.count(k) > 1)!r}")
    return content


def _check_depth(content: Any, file: str) -> None:
    level = [content]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in _children(node)]
        if not level:
            return
    raise BadInputError(f"nested deeper than {MAX_DEPTH} levels", file=file)


def _children(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(node.values())
    return node if isinstance(node, list) else []


def _first_problem(error: ValidationError, file: str) -> BadInputError:
    problem = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(str(part) for part in problem["loc"]) or None
    missing = problem["type"] == "missing"
    value = None if missing or isinstance(problem["input"], dict) else problem["input"]
    remedy = {
        "missing": "add the field",
        "extra_forbidden": "remove the field or correct its name",
    }.get(problem["type"])
    return BadInputError(problem["msg"], file=file, field=field, value=value, remedy=remedy)
