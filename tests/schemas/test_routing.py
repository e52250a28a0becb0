"""Documents of routing, recorded routing and slots: what they refuse, and that files come back as they were."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from helmsman.schemas.errors import BadInputError
from helmsman.schemas.expert_cache import ExpertCacheCounts
from helmsman.schemas.plan import ExpertSlots, Select
from helmsman.schemas.routing import HitCurve, LayerRouting, Routing, RoutingCurve
from helmsman.schemas.routing_trace import (
    RoutedLayer,
    RoutingTrace,
    RoutingTraceInfo,
    TokenChoice,
    read_routing_trace,
    write_routing_trace,
)
from helmsman.schemas.workload import Workload

SHA = "0" * 64
INFO = RoutingTraceInfo(model="m", model_sha256=SHA, layers=(RoutedLayer(layer=1, experts=8, chosen=2),))
CHOICES = [TokenChoice(0, 1, 0, 0, (1, 3)), TokenChoice(0, 1, 0, 1, (1, 2)), TokenChoice(1, 1, 0, 2, (7, 2))]


def stored(path: Path, choices: list[TokenChoice]) -> Path:
    with path.open("wb") as stream:
        write_routing_trace(RoutingTrace(INFO, choices), stream)
    return path


def test_a_trace_comes_back(tmp_path: Path) -> None:
    trace = read_routing_trace(stored(tmp_path / "t", CHOICES))
    assert trace == RoutingTrace(INFO, CHOICES)
    assert trace.passes(1) == [{1, 2, 3}, {2, 7}]


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ([], "no token chose anything"),
        ([TokenChoice(0, 2, 0, 0, (1, 3))], "row 0: a layer without experts"),
        ([CHOICES[0], TokenChoice(0, 1, 0, 0, (1, 8))], "row 1: the layer has 8 experts"),
        ([TokenChoice(0, 1, 0, 0, (1, 1))], "not 2 distinct experts"),
        ([TokenChoice(0, 1, 0, 0, (1,))], "not 2 distinct experts"),
    ],
)
def test_choices_that_cannot_be_are_refused(tmp_path: Path, choices: list[TokenChoice], words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        read_routing_trace(stored(tmp_path / "t", choices))


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    path = stored(tmp_path / "t", CHOICES)
    data = path.read_bytes()
    for place in range(4, len(data) // 2, len(data) // 12):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        try:
            assert read_routing_trace(path) == RoutingTrace(INFO, CHOICES), "a byte without meaning"
        except BadInputError:
            continue
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(BadInputError):
        read_routing_trace(path)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"at": (2, 1), "mid": (0.1, 0.2)}, "out of order"),
        ({"at": (1, 2), "mid": (0.1,)}, "one value for every point"),
        ({"at": (1,), "mid": (0.1,), "low": (0.2,), "high": (0.3,)}, "low, mid and high"),
    ],
)
def test_curves_that_are_none_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        RoutingCurve(**fields)


def test_more_than_all_experts_cannot_hit() -> None:
    with pytest.raises(ValidationError, match="more than all"):
        HitCurve(eviction="popularity", warm=RoutingCurve(at=(1,), mid=(1.1,)))


def test_layers_of_equal_routing_are_of_one_group() -> None:
    layers = tuple(LayerRouting(layer=layer, popularity=(0.5, 0.5 + 0.1 * (layer > 1))) for layer in range(3))
    routing = Routing(model="m", model_sha256=SHA, layers=layers)
    assert routing.groups == {0: 0, 1: 0, 2: 1} and routing.assumed == "popularity"
    assert set(routing.model_copy(update={"layers": layers[:1]}).of_layer) == {0}
    with pytest.raises(ValidationError, match="out of order"):
        Routing(model="m", model_sha256=SHA, layers=layers[::-1])


def test_what_has_no_routing_does_not_say_so() -> None:
    assert "routing" not in Workload().to_dict()
    with pytest.raises(ValidationError, match="share that is fetched"):
        ExpertSlots(select=Select(), memory="vram", slots=4, misses="divided")
    with pytest.raises(ValidationError, match="slots that others leave"):
        ExpertSlots(select=Select(), memory="vram", slots=4, eviction="popularity", misses="fetched")


def test_counts_are_of_every_pass() -> None:
    fields: dict[str, Any] = {"iterations": (0, 1), "misses": (8, 5), "fetched": (9, 9), "evictions": (0, 1)}
    assert ExpertCacheCounts(run=0, layer=1, hits=(0, 3), **fields).hit_rate == pytest.approx(3 / 16)
    with pytest.raises(ValidationError, match="every pass"):
        ExpertCacheCounts(run=0, layer=1, hits=(0,), **fields)
