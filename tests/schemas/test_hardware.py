"""The Hardware document refuses what does not hang together."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.hardware import Efficiency, Figure, Hardware
from helmsman.schemas.read import parse_document


@pytest.fixture
def content() -> dict[str, Any]:
    return load_hardware("rtx4060-laptop", None).to_dict()


def refused(content: dict[str, Any]) -> str:
    with pytest.raises(BadInputError) as caught:
        parse_document(Hardware, json.dumps(content).encode(), "hw.json")
    return str(caught.value)


@pytest.mark.parametrize("order", [(2.0, 1.0, 3.0), (1.0, 2.0, 3.0), (4.0, 1.0, 3.0)])
def test_a_figure_is_ordered(order: tuple[float, float, float]) -> None:
    value, low, high = order
    if low <= value <= high:
        assert Figure(value=value, p10=low, p90=high, source="s").value == value
    else:
        with pytest.raises(ValidationError, match="p10 <= value <= p90"):
            Figure(value=value, p10=low, p90=high, source="s")


def test_a_curve_is_strictly_increasing_and_aligned() -> None:
    share = Figure(value=0.5, p10=0.4, p90=0.6, source="s")
    assert Efficiency(bound="memory", at=(1.0, 2.0), share=(share, share)).at == (1.0, 2.0)
    for at in ((2.0, 1.0), (1.0, 1.0), (1.0,)):
        with pytest.raises(ValidationError, match="strictly increasing"):
            Efficiency(bound="memory", at=at, share=(share, share))


def test_unknown_sources_and_memories_are_refused(content: dict[str, Any]) -> None:
    content["devices"][0]["memory"] = "hbm"
    assert "unknown memory 'hbm'" in refused(content)
    content["devices"][0]["memory"] = "dram"
    content["links"][0]["latency"]["source"] = "hearsay"
    assert "unknown source 'hearsay'" in refused(content)


def test_twins_are_refused(content: dict[str, Any]) -> None:
    content["devices"].append(content["devices"][0])
    assert "unique" in refused(content)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("memories", 0, "capacity"), True),
        (("memories", 0, "capacity"), -1),
        (("memories", 0, "capacity"), 2**70),
        (("memories", 0, "kind"), "tape"),
        (("devices", 0, "read", "value"), "fast"),
        (("devices", 0, "cores"), 0),
        (("devices", 1, "kind"), "tpu"),
        (("links", 0, "bandwidth", "p90"), 0.0),
    ],
)
def test_values_out_of_range_name_their_field(
    content: dict[str, Any], path: tuple[str | int, ...], value: object
) -> None:
    node: Any = content
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = value
    assert str(path[1]) in refused(content)


def test_not_a_number_is_refused(content: dict[str, Any]) -> None:
    text = json.dumps(content).replace("45000000000.0", "NaN", 1)
    with pytest.raises(BadInputError, match="NaN is not a number"):
        parse_document(Hardware, text.encode(), "hw.json")


@pytest.mark.parametrize("kind", ["optane", "cxl", "nvme"])
def test_slower_memories_have_kinds_of_their_own(content: dict[str, Any], kind: str) -> None:
    content["memories"].append({**content["memories"][0], "name": kind, "kind": kind})
    machine = parse_document(Hardware, json.dumps(content).encode(), "hw.json")
    assert machine.memory(kind).kind == kind
    assert machine.link("dram", kind) is None
