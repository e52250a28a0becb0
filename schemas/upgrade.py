"""Brings documents of earlier versions up to date: models of version 1, wherever a document has one inside."""

import json
from typing import Any

from helmsman.schemas.dense_model import DenseModel
from helmsman.schemas.described import described
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.read import digest, is_digest, validated

_VERSION = "helm.model/1"


def upgraded(content: Any, file: str, place: str = "") -> Any:
    """Return a document's content with every model of version 1 described as version 2 does; `place`: of the content in
    its document, with a dot at its end.

    A digest beside a model that was right stays right. Raises BadInputError for a model that is none."""
    if isinstance(content, list):
        return [upgraded(item, file, f"{place}{number}.") for number, item in enumerate(content)]
    if not isinstance(content, dict):
        return content
    if content.get("schema") == _VERSION:
        return described(_dense(content, file, place)).to_dict()
    current = {key: upgraded(value, file, f"{place}{key}.") for key, value in content.items()}
    model = content.get("model")
    if isinstance(model, dict) and model.get("schema") == _VERSION and "model_sha256" in content:
        dense = _dense(model, file, f"{place}model.")
        if isinstance(content["model_sha256"], str) and is_digest(content["model_sha256"], dense):
            current["model_sha256"] = digest(described(dense))
    return current


def _dense(content: dict[str, Any], file: str, place: str) -> DenseModel:
    try:
        return validated(DenseModel, json.dumps(content).encode(), file)
    except BadInputError as error:
        error.field = f"{place}{error.field}" if error.field else place.removesuffix(".") or None
        raise
