"""A plan in one sentence for people: where weights and caches are, how fast it is, what limits it, and which format of
weights would let all of them lie with the accelerator."""

from collections.abc import Iterator, Mapping

from helmsman.lowering.tensors import parameters
from helmsman.planner.format_check import weights_misfit
from helmsman.planner.machine import roles
from helmsman.schemas.formats import StoredFormat, size_of
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import MemoryUse, Plan
from helmsman.schemas.units import format_seconds

SMALLER: tuple[StoredFormat, ...] = ("q8_0", "q4_k")
"""Formats that are offered where weights do not all fit, that which loses least first."""

_PLACES = {
    "dram": "in RAM",
    "vram": "on the GPU",
    "unified": "in the shared memory",
    "loopback": "on the accelerator",
    "optane": "in Optane",
    "cxl": "in CXL memory",
    "nvme": "on the SSD",
}
"""Where what is in a memory of a kind is."""
_DEVICES = {"cpu": "the CPU's", "cuda": "the GPU's", "rocm": "the GPU's", "metal": "the GPU's"}
_CLEARLY_LESS = 0.8
"""A format that takes a larger part of the bytes would change little."""
_WHOLE = 0.995
"""A share beyond which all of it is meant."""


def in_words(plan: Plan) -> str:
    """`71 % of the weights on the GPU, 29 % in RAM; KV on the GPU; 5.5 tokens/s (4 to 5.7), first token after 1.5 s;
    limited by RAM bandwidth; with q4_k all would fit on the GPU`."""
    rate, ttft = plan.predicted.tokens_per_second, plan.predicted.ttft.seconds
    speed = f"{rate.mid:.3g} tokens/s ({rate.low:.3g} to {rate.high:.3g}), first token after {format_seconds(ttft.mid)}"
    copied = any(rule.replicas for rule in plan.residence)
    weights = _where(plan, "weights") + (", copies counted" if copied else "")
    smaller = "" if copied else _smaller(plan)
    parts = (weights, _where(plan, "kv"), speed, f"limited by {_limit(plan)}", smaller)
    return "; ".join(part for part in parts if part)


def _where(plan: Plan, what: str) -> str:
    """`all weights on the GPU`, `KV 60 % on the GPU, 40 % in RAM`."""
    by_place = dict[str, int]()
    for use in plan.predicted.memory:
        place = _place(plan.hardware, use.memory)
        by_place[place] = by_place.get(place, 0) + int(getattr(use, what))
    shares = [(place, size / max(1, sum(by_place.values()))) for place, size in by_place.items() if size]
    shares.sort(key=lambda share: -share[1])
    if not shares:
        return ""
    place, most = shares[0]
    if most >= _WHOLE:
        return f"all weights {place}" if what == "weights" else f"KV {place}"
    first = f"{most:.0%} of the weights {place}" if what == "weights" else f"KV {most:.0%} {place}"
    return ", ".join([first, *(f"{share:.0%} {other}" for other, share in shares[1:])]).replace("%", " %")


def _place(hardware: Hardware, memory: str) -> str:
    """Of several memories of a kind the name says which."""
    kind = hardware.memory(memory).kind
    alike = [each.name for each in hardware.memories if each.kind == kind]
    return _PLACES[kind] if len(alike) == 1 else f"{_PLACES[kind]} ({memory})"


def _limit(plan: Plan) -> str:
    """What binds decode steps, with the field's words for the names of the record."""
    name, _, rest = plan.predicted.decode.bottleneck.rpartition(" (")[0].partition(" ")
    return f"{_owners(plan.hardware).get(name, name)} {rest}"


def _owners(hardware: Hardware) -> Mapping[str, str]:
    """By name in the record, whose bandwidth or arithmetic it is."""
    memories = {
        memory.name: {"dram": "RAM", "vram": "the GPU's memory", "unified": "the shared memory's"}.get(
            memory.kind, memory.name
        )
        for memory in hardware.memories
    }
    devices = {device.name: _DEVICES.get(device.kind, "the accelerator's") for device in hardware.devices}
    return {**devices, **memories, **{link.name: f"the link's ({link.name})" for link in hardware.links}}


def _smaller(plan: Plan) -> str:
    """The first format in which the weights would all fit with the accelerator, where some lie elsewhere."""
    accelerator = roles(plan.hardware).accelerator
    if accelerator is None:
        return ""
    uses = list(plan.predicted.memory)
    here = next((use for use in uses if use.memory == accelerator.memory), None)
    whole = sum(use.weights for use in uses)
    fits = here is not None and whole + sum(use.kv for use in uses) + here.buffers <= here.available
    if here is None or fits or not any(use.weights for use in uses if use is not here):
        return ""
    return next((f"with {fmt} all would fit {_place(plan.hardware, here.memory)}" for fmt in _fitting(plan, here)), "")


def _fitting(plan: Plan, here: MemoryUse) -> Iterator[StoredFormat]:
    whole = sum(use.weights for use in plan.predicted.memory)
    kv = sum(use.kv for use in plan.predicted.memory)
    for fmt in SMALLER:
        size = size_of(parameters(plan.model), fmt)
        if (
            size < _CLEARLY_LESS * whole
            and not weights_misfit(plan.model, fmt)
            and size + kv + here.buffers + here.pinned <= here.available
        ):
            yield fmt
