"""Slots and routings that cannot be: one clear error, by its place."""

from dataclasses import replace
from typing import Any

import pytest
from expert_question import MIB, question, routing_of, skewed

from helmsman.hwdb.load_model import load_model
from helmsman.planner.checks.routing_check import check_routing
from helmsman.planner.checks.slots_check import check_slots
from helmsman.planner.strategies.expert_split.layout import ExpertLayout, SlotRule, place
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.plan import ExpertSlots, Part, Schedule, Select
from helmsman.schemas.routing import LayerRouting, Routing, RoutingCurve

MODEL = load_model("Qwen3-30B-A3B").with_layers(2)
SLOTS = ExpertSlots(select=Select(names="experts_*"), memory="vram", slots=16)


def test_what_the_search_makes_is_accepted() -> None:
    frame = question(MODEL, 2, 9_000 * MIB).frame
    for rule in (
        SlotRule("least-recent", "fetched"),
        SlotRule("least-recent", "divided", 0.5),
        SlotRule("popularity", "host"),
    ):
        for streamed in (False, True):
            check_slots(place(frame, ExpertLayout(0, 2, 0, streamed, rule, 16)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"memory": "hbm"}, "expert_slots.0.memory: no such memory"),
        ({"memory": "nvme0"}, "no device computes there"),
        ({"memory": "dram"}, "experts of block 0 are there already"),
        ({"slots": 129}, "expert_slots.0.slots: block 0 has 128 experts"),
        ({"select": Select(names="q")}, "whole experts"),
        ({"select": Select(part=Part(axis="experts", start=0, stop=4))}, "whole experts"),
        ({"misses": "fetched"}, "expert_slots.0.misses: experts of block 0 are computed elsewhere"),
    ],
)
def test_slots_that_cannot_be_are_refused(changes: dict[str, Any], words: str) -> None:
    placement = place(question(MODEL, 2, 9_000 * MIB).frame, ExpertLayout(0, 2))
    with pytest.raises(BadInputError, match=words):
        check_slots(replace(placement, expert_slots=(SLOTS.model_copy(update=changes),)))


def test_passes_and_divisions_that_do_not_know_slots_are_refused() -> None:
    frame = question(MODEL, 2, 9_000 * MIB).frame
    placement = replace(place(frame, ExpertLayout(0, 2)), expert_slots=(SLOTS,))
    with pytest.raises(BadInputError, match=r"schedule.barrier"):
        check_slots(replace(placement, schedule=Schedule(barrier=True)))
    with pytest.raises(BadInputError, match="are there already"):
        check_slots(replace(place(frame, ExpertLayout(0, 2, 32)), expert_slots=(SLOTS,)))
    dense = place(question(MODEL, 2, 9_000 * MIB).frame, ExpertLayout(0, 0))
    with pytest.raises(BadInputError, match="are there already"):
        check_slots(replace(dense, expert_slots=(SLOTS,)))


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (LayerRouting(layer=2), "no routed experts there"),
        (LayerRouting(layer=0, popularity=(0.5,) * 16), "block 0 has 128 experts"),
        (LayerRouting(layer=0, popularity=(0.5,) * 128), "a token chooses 8 experts"),
        (LayerRouting(layer=0, distinct=RoutingCurve(at=(2,), mid=(17.0,))), "2 tokens choose 8 to 16 experts"),
    ],
)
def test_routings_that_cannot_be_the_models_are_refused(layer: LayerRouting, words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        check_routing(routing_of(MODEL, layer), MODEL)


def test_a_routing_of_another_model_is_refused() -> None:
    layer = LayerRouting(layer=0, popularity=skewed(128, 8, 1.0))
    check_routing(routing_of(MODEL, layer), MODEL)
    with pytest.raises(BadInputError, match="a routing of another model"):
        check_routing(Routing(model="Mixtral", model_sha256="0" * 64, layers=(layer,)), MODEL)
