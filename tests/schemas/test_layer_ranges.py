"""The blocks that a rule names, one range or a list of them: what is wrong has its place, its value and a remedy."""

import json

import pytest
from plans import make_plan
from shapes import small_model
from together import together

from helmsman.planner.checks.accept import accept
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import parse_document


def read(layers: object) -> Plan:
    """A plan of three blocks whose second residence rule is about `layers`."""
    content = make_plan(small_model("llama")).to_dict()
    rule = {**content["residence"][0], "select": {"names": "q.weight", "layers": layers}}
    content["residence"] = [content["residence"][0], rule, *content["residence"][1:]]
    return parse_document(Plan, json.dumps(content).encode(), "plan.json")


def of(*ranges: tuple[int, int]) -> list[dict[str, int]]:
    return [{"start": start, "stop": stop} for start, stop in ranges]


@together(
    ("layers", "field", "value", "remedy"),
    [
        ("0:4", "", "0:4", 'write {"start": .., "stop": ..}, or a list of such ranges'),
        (5, "", 5, 'write {"start": .., "stop": ..}, or a list of such ranges'),
        (True, "", True, 'write {"start": .., "stop": ..}, or a list of such ranges'),
        ([], "", [], "give at least 1"),
        ({"start": 0}, ".stop", None, "add the field"),
        ({"start": 0, "stop": "4"}, ".stop", "4", "write a whole number"),
        ({"start": -1, "stop": 4}, ".start", -1, "use at least 0"),
        ({"start": 0, "stop": 1, "step": 2}, ".step", 2, "remove the field or correct its name"),
        ([5], ".0", 5, "write an object in braces"),
        ([[0, 1]], ".0", [0, 1], "write an object in braces"),
        ([*of((0, 1)), {"start": 1}], ".1.stop", None, "add the field"),
        (of((0, 1), (-1, 2)), ".1.start", -1, "use at least 0"),
        ([*of((0, 1)), {"start": 1, "stop": 2.5}], ".1.stop", 2.5, "write a whole number"),
        (of((0, 1), (1, 2), (1, 3)), ".2.start", 1, "start at 2 or later"),
        (of((2, 3), (0, 1)), ".1.start", 0, "start at 3 or later"),
    ],
)
def test_what_cannot_be_read(layers, field, value, remedy):
    with pytest.raises(BadInputError) as caught:
        read(layers)
    error = caught.value
    assert (error.file, error.field) == ("plan.json", f"residence.1.select.layers{field}")
    assert (error.value, error.remedy) == (value, remedy)


@pytest.mark.parametrize(
    ("layers", "field", "value"),
    [
        ({"start": 1, "stop": 1}, "", [1, 1]),
        ({"start": 2, "stop": 4}, "", [2, 4]),
        (of((0, 1), (2, 1)), ".1", [2, 1]),
        (of((0, 1), (2, 4)), ".1", [2, 4]),
    ],
)
def test_what_the_model_lacks(layers, field, value):
    with pytest.raises(BadInputError, match=r"needs start < stop <= 3") as caught:
        accept(read(layers))
    assert (caught.value.field, caught.value.value) == (f"residence.1.select.layers{field}", value)


@pytest.mark.parametrize("layers", [{"start": 0, "stop": 2}, of((0, 2)), of((0, 1), (2, 3))])
def test_both_forms_are_written_as_they_were_read(layers):
    plan = read(layers)
    assert plan.to_dict()["residence"][1]["select"]["layers"] == layers
    assert Plan.model_validate(plan.model_dump(by_alias=True)) == plan
