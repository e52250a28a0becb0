"""Whether a checkpoint is that of a plan's model."""

from math import isclose
from typing import Any

from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model

_DESCRIBED = {"schema_id", "name", "source", "native_format", "eos", "drafts"}
"""The fields that a model has about itself and does not compute with, and heads that draft tokens, which files may
lack."""

_ALIKE = {"mistral": "llama", **dict.fromkeys(("granite", "granitemoe", "granitemoeshared"), "granitemoehybrid")}
"""The family of the same operations, as which some are read from files."""

_SAME = 1e-6
"""Relative: files keep real numbers in f32."""


def check_agreement(file_model: Model, model: Model, file: str) -> None:
    """Compare the model that a checkpoint's `file` describes with the plan's.

    Raises BadInputError naming the first field that differs, and for a model of which facts are unknown."""
    if model.unknown:
        message, remedy = "no source states what it needs to run", "plan with `model` a checkpoint that states them"
        raise BadInputError(message, file=file, field="model.unknown", value=", ".join(model.unknown), remedy=remedy)
    stored, planned = _facts(file_model), _facts(model)
    for field, expected in planned.items():
        got = stored.get(field)
        if field not in _DESCRIBED and not _alike(expected, got) and not _same_family(field, expected, got):
            message = f"the plan's model has {field} {expected!r}"
            remedy = f"use a checkpoint of {model.name}, or plan with `model` {file}"
            raise BadInputError(message, file=file, field=field, value=got, remedy=remedy)


def _facts(model: Model) -> dict[str, Any]:
    """Return the fields that are compared: of a model of equal dense blocks their dimensions, of others their whole
    description."""
    try:
        return model.dense.model_dump()
    except BadInputError:
        return model.model_dump()


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return isclose(one, other, rel_tol=_SAME)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    return bool(one == other)


def _same_family(field: str, expected: object, got: object) -> bool:
    """Whether operations are the same: GGUF files call Mistral's models llama, those of Granite are hybrids without
    state spaces, and files of text alone have a family of their own."""
    return field == "family" and _operations(expected) == _operations(got)


def _operations(family: object) -> str:
    plain = str(family).removesuffix("_text")
    return _ALIKE.get(plain, plain)
