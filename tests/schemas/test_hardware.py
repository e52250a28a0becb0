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
    assert "devices.0.memory: unknown memory (got 'hbm'); use one of dram, vram" in refused(content)
    content["devices"][0]["memory"] = "dram"
    content["links"][0]["latency"]["source"] = "hearsay"
    assert "links.0.latency.source: unknown source (got 'hearsay'); use one of " in refused(content)


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


def put(content: dict[str, Any], path: str, value: Any) -> None:
    *parts, last = (int(part) if part.isdigit() else part for part in path.split("."))
    node: Any = content
    for part in parts:
        node = node[part]
    node[last] = value


def flat(value: float) -> dict[str, Any]:
    return {"value": value, "p10": value, "p90": value, "source": "cpu"}


RATES = [
    "memories.0.bandwidth",
    "devices.0.read",
    "devices.0.elementwise",
    "devices.0.cache_read",
    "devices.0.compute.0.flops",
    "links.0.bandwidth",
]


@pytest.mark.parametrize("field", RATES)
def test_no_rate_is_zero_or_nearly(content: dict[str, Any], field: str) -> None:
    for value in (0.0, 5e-324, 999.0):
        put(content, field, {**flat(1e9), "p10": value})
        assert f"hw.json: {field}.p10: slower than" in refused(content)
    put(content, field, flat(1e3))
    assert parse_document(Hardware, json.dumps(content).encode(), "hw.json")


@pytest.mark.parametrize(
    ("value", "says"), [(0.0, "p10: too small for a share"), (1e-7, "p10: too small"), (101.0, "p90: too large")]
)
def test_no_share_is_zero_or_absurd(content: dict[str, Any], value: float, says: str) -> None:
    curve = {"bound": "memory", "at": [1.0]}
    put(content, "devices.0.efficiency", [{**curve, "share": [flat(value)]}])
    assert f"devices.0.efficiency.0.share.0.{says}" in refused(content)
    put(content, "devices.0.efficiency", [{**curve, "share": [flat(1.3)]}])
    assert parse_document(Hardware, json.dumps(content).encode(), "hw.json")


@pytest.mark.parametrize("field", ["devices.1.launch", "devices.1.overhead", "links.0.latency"])
def test_seconds_may_be_none_but_not_endless(content: dict[str, Any], field: str) -> None:
    put(content, field, flat(0.0))
    assert parse_document(Hardware, json.dumps(content).encode(), "hw.json")
    put(content, field, {**flat(0.0), "p90": 1e7})
    assert f"{field}.p90: longer than any operation (got 10000000.0); use at most 1e6 seconds" in refused(content)


def test_no_more_is_available_than_there_is(content: dict[str, Any]) -> None:
    capacity = content["memories"][1]["capacity"]
    put(content, "memories.1.available", capacity + 1)
    assert f"memories.1.available: more than the memory holds (got {capacity + 1}); use at most" in refused(content)
    put(content, "memories.1.available", capacity)
    assert parse_document(Hardware, json.dumps(content).encode(), "hw.json")


def test_sharing_ends_at_a_physical_memory(content: dict[str, Any]) -> None:
    put(content, "memories.1.shares", "vram")
    assert "memories.1.shares: this memory shares itself (got 'vram')" in refused(content)
    put(content, "memories.1.shares", "dram")
    assert parse_document(Hardware, json.dumps(content).encode(), "hw.json")
    put(content, "memories.0.shares", "vram")
    assert "shares itself" in refused(content)


@pytest.mark.parametrize("name", ["h2d", "cpu"])
def test_a_link_has_a_lane_of_its_own(content: dict[str, Any], name: str) -> None:
    put(content, "links.1.name", name)
    assert f"devices and links: must be unique (got '{name}')" in refused(content)


def test_one_link_joins_two_memories(content: dict[str, Any]) -> None:
    content["links"].append({**content["links"][0], "name": "second"})
    assert "links: must be unique (got 'dram to vram')" in refused(content)


@pytest.mark.parametrize("kind", ["optane", "cxl", "nvme"])
def test_slower_memories_have_kinds_of_their_own(content: dict[str, Any], kind: str) -> None:
    content["memories"].append({**content["memories"][0], "name": kind, "kind": kind})
    machine = parse_document(Hardware, json.dumps(content).encode(), "hw.json")
    assert machine.memory(kind).kind == kind
    assert machine.link("dram", kind) is None


def test_lanes_carry_what_a_link_reaches_and_belong_to_one(content: dict[str, Any]) -> None:
    first, second = content["links"][:2]
    first["carries"] = flat(1e9)
    assert "links.0.carries: less than the link reaches alone" in refused(content)
    del first["carries"]
    content["links"][1] = second | {"shares": first["name"], "carries": flat(1e12)}
    assert f"write it on {first['name']}" in refused(content)


def test_a_link_says_whose_work_it_slows(content: dict[str, Any]) -> None:
    """Optional: a record without it is written as it ever was, so digests stay."""
    plain = parse_document(Hardware, json.dumps(content).encode(), "hw.json")
    assert "slows" not in plain.to_json() and "carries" not in plain.to_json()
    content["links"][0] |= {"slows": {"cuda": flat(0.4)}, "carries": flat(30e9)}
    found = parse_document(Hardware, json.dumps(content).encode(), "hw.json")
    assert found.links[0].slows is not None and found.links[0].slows["cuda"].value == 0.4
    assert parse_document(Hardware, found.to_json().encode(), "hw.json") == found


@pytest.mark.parametrize(
    ("slows", "says"),
    [
        ({"cuda": -0.1}, "links.0.slows.cuda.value: Input should be greater than or equal to 0 (got -0.1)"),
        ({"cuda": 101.0}, "links.0.slows.cuda.p90: too much: a hundred times as long (got 101.0); write 0.4"),
        ({"gpu": 0.4}, "links.0.slows: unknown device (got 'gpu'); use one of cpu, cuda"),
        ({"h2d": 0.4}, "links.0.slows: unknown device (got 'h2d')"),
    ],
)
def test_slowing_that_cannot_be_is_refused(content: dict[str, Any], slows: dict[str, float], says: str) -> None:
    content["links"][0]["slows"] = {device: flat(extra) for device, extra in slows.items()}
    assert says in refused(content)


def test_slowing_has_a_source(content: dict[str, Any]) -> None:
    content["links"][0]["slows"] = {"cuda": {**flat(0.4), "source": "hearsay"}}
    assert "links.0.slows.cuda.source: unknown source (got 'hearsay')" in refused(content)


def test_the_time_between_passes_is_by_device(content: dict[str, Any]) -> None:
    """Profiles had one figure once; and every device named is one of the record."""
    figure = content["links"][0]["latency"]
    content["between_passes"] = {"begin": figure, "submission": figure}
    said = refused(content)
    assert "between_passes.begin: one figure, where every device" in said and "run helm-profile again" in said
    content["between_passes"]["begin"] = {"gpu": figure}
    assert "between_passes.begin: unknown device (got 'gpu'); use one of cpu, cuda" in refused(content)
    content["between_passes"]["begin"] = {"cpu": figure, "cuda": figure}
    assert parse_document(Hardware, json.dumps(content).encode(), "hw.json").between_passes is not None
