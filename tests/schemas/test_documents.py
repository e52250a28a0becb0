"""The published JSON Schemas match the documents, and documents match the schemas."""

import json

import jsonschema
import pytest
from pydantic import BaseModel, ValidationError
from random_cases import random_split
from together import together

from helmsman.planner.strategies.layer_search import build_plan
from helmsman.schemas.generate import DOCUMENTS, FOLDER, schema_text
from helmsman.schemas.plan import Plan
from helmsman.schemas.predicted import Interval, MemoryUse
from helmsman.schemas.read import parse_document


@pytest.mark.parametrize("name", DOCUMENTS)
def test_published_schemas_do_not_drift(name):
    path = FOLDER / f"{name}.schema.json"
    assert path.read_text() == schema_text(name), "run `make schemas`"


def test_published_schemas_are_schemas():
    """Every part of a document once, however many documents have it."""
    parts = dict[str, object]()
    for name in DOCUMENTS:
        document = json.loads((FOLDER / f"{name}.schema.json").read_text())
        for part in (*document.pop("$defs", {}).values(), document):
            parts[json.dumps(part)] = part
    jsonschema.Draft202012Validator.check_schema({"$defs": {str(n): part for n, part in enumerate(parts.values())}})


def test_no_schema_file_without_a_document():
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.schema.json" for name in DOCUMENTS}


@pytest.fixture(scope="module")
def plan_schema():
    return jsonschema.Draft202012Validator(json.loads((FOLDER / "plan.schema.json").read_text()))


@pytest.mark.parametrize("seed", range(8))
def test_plans_round_trip_and_satisfy_their_published_schema(plan_schema, seed):
    split = random_split(seed)
    for k in (0, 1, split.model.units):
        plan = build_plan(split, k, {"objective": "latency"})
        text = plan.to_json()
        assert parse_document(Plan, text.encode(), "plan.json") == plan
        plan_schema.validate(json.loads(text))


def every_model(cls, seen):
    for field in cls.model_fields.values():
        for part in _classes(field.annotation):
            if part not in seen:
                seen.add(part)
                every_model(part, seen)
    return seen


def _classes(annotation):
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in getattr(annotation, "__args__", ()) for found in _classes(part)]


@together("name", DOCUMENTS)
def test_every_part_is_frozen_strict_closed_and_finite(name):
    for cls in every_model(DOCUMENTS[name], {DOCUMENTS[name]}):
        config = cls.model_config
        assert config["frozen"], cls
        assert config["strict"], cls
        assert config["extra"] == "forbid", cls
        assert config["allow_inf_nan"] is False, cls


@pytest.mark.parametrize("numbers", [(9.0, 1.0, 0.0), (1.0, 3.0, 2.0), (2.0, 1.0, 3.0)])
def test_a_prediction_is_ordered(numbers):
    low, mid, high = numbers
    with pytest.raises(ValidationError, match="out of order"):
        Interval(low=low, mid=mid, high=high)
    low, mid, high = sorted(numbers)
    assert Interval(low=low, mid=mid, high=high).high == high


def test_what_a_plan_needs_has_no_upper_bound():
    """So that a plan beyond any machine is refused with its bytes."""
    use = MemoryUse(memory="dram", weights=2**61, kv=10**30, buffers=10**30, available=1)
    assert use.used == 2**61 + 2 * 10**30
    with pytest.raises(ValidationError):
        MemoryUse(memory="dram", weights=-1, kv=0, buffers=0, available=1)


def test_documents_cannot_be_changed():
    plan = build_plan(random_split(0), 1, {})
    with pytest.raises(ValidationError):
        plan.label = "other"
