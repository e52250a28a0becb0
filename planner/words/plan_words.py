"""A plan in one sentence for people: where weights and caches are, how fast it is, what limits it, and which format of
weights would let all of them lie with the accelerator."""

from collections import Counter
from collections.abc import Mapping

from helmsman.lowering.placement import Placement, batches_together, shaped
from helmsman.lowering.rules import homes
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import LOOKUPS, parameters, tensors
from helmsman.planner.checks.format_check import weights_misfit
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.cost.plan_costs import costs_of_placement
from helmsman.planner.machine import roles
from helmsman.planner.memory.names import memory_place
from helmsman.planner.memory.usage import memory_use, shortages
from helmsman.planner.prediction.predict import phase_seconds
from helmsman.planner.registry import known, method
from helmsman.schemas.formats import StoredFormat, size_of
from helmsman.schemas.hardware import Device, Hardware, lane_owner
from helmsman.schemas.plan import ComputeRule, KvRule, Plan, Residence, Select
from helmsman.schemas.predicted import PhasePrediction
from helmsman.schemas.units import format_number, format_seconds

SMALLER: tuple[StoredFormat, ...] = ("q8_0", "q4_k", "q4_0")
"""Formats that are offered where weights do not all fit, that which loses least first; the last is for rows that are
no whole blocks of the one before."""

_DEVICES = {"cpu": "CPU", "cuda": "GPU", "rocm": "GPU", "metal": "GPU", "xpu": "GPU", "loopback": "accelerator"}
"""Names of devices by kind."""
_CLEARLY_LESS = 0.8
"""A format that takes a larger part of the bytes would change little."""
_ALL = 0.995
"""A share beyond which all of it is meant."""
_BINDS = 0.67
"""A lane that is busy for a larger share of a pass limits it, whoever else works before or after."""
_ALL_OF_IT = 0.9
"""Two lanes that are together busy for more of a pass than this, and never at once, take turns in it."""


def in_words(plan: Plan) -> str:
    """`71 % of the weights on the GPU, 29 % in RAM; KV on the GPU; 5.5 tokens/s (4-5.7), first token 1.5 s; limited by
    RAM bandwidth; with q4_k all would fit on the GPU: 39 tokens/s`."""
    rate, ttft = plan.predicted.tokens_per_second, plan.predicted.ttft.seconds
    slow, fast = format_number(rate.low, 3), format_number(rate.high, 3)
    speed = f"{format_number(rate.mid, 3)} tokens/s ({slow}-{fast}), first token {format_seconds(ttft.mid)}"
    copied = any(rule.replicas for rule in plan.residence)
    weights = _where(plan, "weights") + (", copies counted" if copied else "")
    parts = (weights, _where(plan, "kv"), speed, _limit(plan), "" if copied else _smaller(plan))
    return "; ".join(part for part in parts if part)


def device_name(hardware: Hardware, device: str) -> str:
    """`CPU`, `GPU`; of several devices of a kind that is not the host's the name in the record says which."""
    kind = hardware.device(device).kind
    alone = kind == "cpu" or [other.kind for other in hardware.devices].count(kind) == 1
    return _DEVICES[kind] if alone else f"{_DEVICES[kind]} {device}"


def binding(plan: Plan, phase: PhasePrediction) -> str:
    """`RAM bandwidth (80 %)`; of stages of which none works through most of the pass `GPU and CPU take turns, 51 % and
    49 % of the time`."""
    if turns := _turns(plan.hardware, phase):
        shares = " and ".join(f"{share * 100:.0f} %" for share in turns.values())
        return f"{' and '.join(turns)} take turns, {shares} of the time"
    what, _, share = phase.bottleneck.rpartition(" (")
    name, _, rest = what.partition(" ")
    return f"{_owners(plan.hardware).get(name, name)} {rest} ({share}"


def _limit(plan: Plan) -> str:
    """Return what binds decode steps; nothing where weights stream whatever the machine, and the link is what they
    stream by."""
    said = binding(plan, plan.predicted.decode)
    if "take turns" in said:
        return said
    if _streams(plan) and said.startswith("the link"):
        return ""
    return f"limited by {said.rpartition(' (')[0]}"


def _turns(hardware: Hardware, phase: PhasePrediction) -> dict[str, float]:
    """The shares of a pass in which the two lanes work that fill it one after the other, the longest first; none where
    one binds, or lanes work at once."""
    busy: dict[str, float] = {}
    for term in phase.terms:
        lane = lane_owner(term.resource)
        busy[lane] = busy.get(lane, 0.0) + term.seconds.mid / (phase.seconds.mid or 1.0)
    first = dict(sorted(busy.items(), key=lambda item: -item[1])[:2])
    filled = sum(first.values()) > _ALL_OF_IT and sum(busy.values()) < 2 - _ALL_OF_IT
    if len(first) < 2 or not filled or max(first.values()) > _BINDS:
        return {}
    devices = {device.name for device in hardware.devices}
    return {device_name(hardware, lane) if lane in devices else f"link {lane}": share for lane, share in first.items()}


def _owners(hardware: Hardware) -> Mapping[str, str]:
    """By name in the record, whose bandwidth or arithmetic it is."""
    memories = {
        memory.name: {"dram": "RAM", "vram": "the GPU's memory", "unified": "the shared memory's"}.get(
            memory.kind, memory.name
        )
        for memory in hardware.memories
    }
    devices = {device.name: f"the {_DEVICES[device.kind]}'s" for device in hardware.devices}
    return {**devices, **memories, **{link.name: f"the link's ({link.name})" for link in hardware.links}}


def _where(plan: Plan, what: str) -> str:
    """`all weights on the GPU`, `KV 60 % on the GPU, 40 % in RAM`."""
    by_place = Counter[str]()
    for use in plan.predicted.memory:
        by_place[memory_place(plan.hardware, use.memory)] += int(getattr(use, what))
    whole = max(1, by_place.total())
    shares = [(place, size / whole) for place, size in by_place.most_common() if size]
    if not shares:
        return ""
    place, most = shares[0]
    if most >= _ALL:
        return f"all weights {place}" if what == "weights" else f"KV {place}"
    first = f"{most:.0%} of the weights {place}" if what == "weights" else f"KV {most:.0%} {place}"
    return ", ".join([first, *(f"{share:.0%} {other}" for other, share in shares[1:])]).replace("%", " %")


def _streams(plan: Plan) -> bool:
    """Whether weights stream by the definition of the plan's strategy."""
    name = plan.strategy.name
    return known(name) and method(name).streams


def _smaller(plan: Plan) -> str:
    """Return the first format in which the weights would all fit with the accelerator, and how fast that would be,
    where some that are multiplied lie elsewhere and the strategy would move them; tables are looked up wherever they
    are."""
    accelerator = roles(plan.hardware).accelerator
    used = {rule.device for rule in plan.compute}
    if accelerator is None or accelerator.name not in used or _streams(plan):
        return ""
    sizes = {use.memory: use.weights for use in plan.predicted.memory if use.weights}
    if not any(_is_elsewhere(plan, tensor, accelerator.memory) for tensor in tensors(plan.model)):
        return ""
    smaller = (fmt for fmt in SMALLER if size_of(parameters(plan.model), fmt) < _CLEARLY_LESS * sum(sizes.values()))
    for fmt in smaller:
        if weights_misfit(plan.model, fmt):
            continue
        whole = shaped(_whole(plan, accelerator, fmt))
        if not shortages(memory_use(whole)):
            seconds = phase_seconds(whole, costs_of_placement(whole, CostOptions()), "decode")
            rate = plan.workload.batch * batches_together(whole) / seconds
            where = memory_place(plan.hardware, accelerator.memory)
            return f"with {fmt} all would fit {where}: {format_number(rate, 2)} tokens/s"
    return ""


def _is_elsewhere(plan: Plan, tensor: Tensor, memory: str) -> bool:
    """Whether any part of a tensor that is multiplied lives in another memory alone."""
    rules = () if tensor.op in LOOKUPS else (piece.rule for piece in homes(plan, tensor))
    return any(memory not in (rule.memory, *rule.replicas) for rule in rules)


def _whole(plan: Plan, accelerator: Device, fmt: StoredFormat) -> Placement:
    """The plan's question with everything on the accelerator, weights in another format."""
    everything = Select()
    return Placement(
        model=plan.model,
        hardware=plan.hardware,
        workload=plan.workload,
        residence=(Residence(select=everything, memory=accelerator.memory, format=fmt),),
        kv=(KvRule(select=everything, memory=accelerator.memory, format=plan.kv[-1].used),),
        compute=(ComputeRule(select=everything, device=accelerator.name),),
        activations=plan.activations,
    )
