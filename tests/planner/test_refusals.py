"""What `optimal` names where nothing fits: the smallest change of one memory, or of one limit."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from questions import asked

from helmsman.planner.memory.names import memory_place
from helmsman.planner.memory.usage import memory_use, shortages
from helmsman.planner.slo import limits_of
from helmsman.planner.strategies.optimal.search.compositions import Aim
from helmsman.planner.strategies.optimal.strategy import Optimal
from helmsman.planner.strategies.streaming.question import Question
from helmsman.planner.strategies.streaming.store import store_of
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.units import parse_bytes

STEP = Aim("decode step", {"decode": 1.0})
GB, MB = 10**9, 10**6


def available(question: Question, sizes: Mapping[str, int], more: bool = False) -> Question:
    """The same with so many bytes of some memories, or so many more."""
    frame = question.frame
    memories = []
    for memory in frame.roles.hardware.memories:
        size = sizes.get(memory.name, 0 if more else memory.available) + (memory.available if more else 0)
        memories.append(memory.model_copy(update={"available": size, "capacity": max(memory.capacity, size)}))
    hardware = frame.roles.hardware.model_copy(update={"memories": tuple(memories)})
    return replace(question, frame=replace(frame, roles=frame.roles.on(hardware)))


def refusal(question: Question, aim: Aim = STEP) -> InfeasibleError:
    with pytest.raises(InfeasibleError) as caught:
        Optimal(question, aim).decide({})
    return caught.value


def named(error: InfeasibleError, question: Question) -> dict[str, int]:
    """Every memory that the remedy names, and how much more of it."""
    hardware = question.frame.roles.hardware
    places = {memory_place(hardware, memory.name): memory.name for memory in hardware.memories}
    changes = (change.removesuffix(" would do").partition(" more ") for change in error.remedy.split(", or "))
    return {places[place]: parse_bytes(size, "size") for size, _, place in changes if place in places}


def small(vram: int, dram: int, **work: int) -> Question:
    return available(asked("opt-125m", layers=4, **work), {"vram": vram * MB, "dram": dram * MB})


QUESTIONS = {
    "less of both": lambda: small(60, 60),
    "hardly any on the accelerator": lambda: small(1, 100),
    "hardly any on the host": lambda: small(120, 1),
    "caches": lambda: small(50, 60, batch=2, context=512),
    "caches of batches": lambda: small(50, 60, batch=2, batches=2, context=512),
    "several accelerators": lambda: available(
        asked("opt-125m", "rtx3090x2-5950x", layers=4), dict.fromkeys(("dram", "vram", "vram1"), 50 * MB)
    ),
    "a server": lambda: available(asked("opt-1.3b", "a10-xeon6342", layers=4), {"vram": 200 * MB, "dram": 200 * MB}),
    "one memory": lambda: available(asked("opt-125m", "m1-16gb", layers=4), {"unified": 90 * MB}),
    "a processor": lambda: available(asked("opt-125m", "ryzen7950x-cpu", layers=4), {"dram": 90 * MB}),
}


SLOW = ("hardly any on the accelerator", "caches", "caches of batches", "several accelerators", "a server")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.nightly if name in SLOW else ()) for name in QUESTIONS],
)
def test_the_named_bytes_do_and_two_per_cent_less_do_not(name):
    question = QUESTIONS[name]()
    error = refusal(question)
    changes = named(error, question)
    first = next(iter(changes))
    assert error.lacks == {first: changes[first]}
    sizes = {memory.name: memory.available for memory in question.frame.roles.hardware.memories}
    assert changes[first] / sizes[first] == min(more / sizes[memory] for memory, more in changes.items())
    for memory, more in changes.items():
        chosen = Optimal(available(question, {memory: more}, more=True), STEP)
        assert chosen.fits and not Optimal(available(question, {memory: int(0.98 * more)}, more=True), STEP).finalists
        if memory == first:
            plan = chosen.decide({}).plan
            assert not shortages(memory_use(plan)) and plan.certificate.lower_bound <= plan.certificate.seconds


def test_what_the_accelerator_takes_is_not_asked_of_the_host():
    """35.5 GB were named where everything but the accelerator's 12 GB need be in host memory."""
    question = asked("Qwen2.5-32B", "rtx3060-5600x")
    changes = named(refusal(question), question)
    assert set(changes) == {"dram", "vram"} and all(more < 24 * GB for more in changes.values())


@pytest.mark.nightly
def test_groups_that_come_take_less_of_the_host_where_room_for_them_is_found():
    """Of 4-bit weights everything can come; plain ones need four times the room beside the ends of the model."""
    plain = available(asked("opt-1.3b", layers=8), {"vram": 300 * MB, "dram": 200 * MB})
    packed = replace(plain, frame=replace(plain.frame, quarters=("weights", "kv")))
    assert named(refusal(packed), packed)["dram"] < 0.5 * named(refusal(plain), plain)["dram"]


@pytest.mark.nightly
def test_storage_takes_what_it_can():
    stored = asked("opt-175b", "a100-ssd", batch=600)
    stored = replace(stored, frame=replace(stored.frame, store=store_of(stored.frame.roles)))
    changes = named(refusal(stored), stored)
    assert changes["dram"] < 500 * GB, "weights of 350 GB need not be in host memory"
    assert all(Optimal(available(stored, {memory: more}, more=True), STEP).fits for memory, more in changes.items())


@pytest.mark.parametrize(
    "limits",
    ["tpot=1us", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("ttft=1us", "ttft=1us,tpot=1us"))],
)
def test_the_named_limits_can_be_kept_and_two_per_cent_less_cannot(limits):
    question = asked("opt-125m", layers=3, vram=70 * MB)
    aim = replace(STEP, limits=limits_of(limits.replace("1us", "0.001ms")))
    text = refusal(question, aim).remedy.removeprefix("the smallest change: ")
    changed = {**aim.limits, **limits_of(text)}
    assert Optimal(question, replace(aim, limits=changed)).decide({}).plan.predicted
    for phase in limits_of(text):
        refusal(question, replace(aim, limits={**changed, phase: 0.98 * changed[phase]}))
