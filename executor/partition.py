"""Which device runs which units: a plan's rules as a sequence of contiguous parts."""

from dataclasses import dataclass
from itertools import groupby

from helmsman.lowering.ops import Formats, Operation, operations
from helmsman.lowering.rules import device_of, kv_rule, residence
from helmsman.scheduler.iteration import prefill
from helmsman.schemas.errors import UsageError
from helmsman.schemas.plan import Plan

REMEDY = "run a plan of the strategy layer-split without KV offload"


@dataclass(frozen=True, slots=True)
class Part:
    """Units start <= u < stop on one device (0 embedding, 1..L blocks, L+1 output)."""

    device: str
    start: int
    stop: int
    layers: int

    @property
    def embeds(self) -> bool:
        """Whether the part begins with the token lookup."""
        return self.start == 0

    @property
    def heads(self) -> bool:
        """Whether the part ends with the head, which chooses the token."""
        return self.stop == self.layers + 2

    @property
    def blocks(self) -> range:
        """The blocks of the part."""
        return range(max(0, self.start - 1), min(self.layers, self.stop - 1))


def partition(plan: Plan) -> tuple[Part, ...]:
    """The parts of a plan in order of execution.

    Raises UsageError for what is not executed: a unit divided between devices or phases, weights or KV that
    live elsewhere than where they are used."""
    by_unit: dict[int, set[str]] = {}
    for op in operations(plan.model, prefill(plan.workload), Formats()):
        by_unit.setdefault(op.unit, set()).update(_devices(plan, op))
        _check_at_home(plan, op)
    owners = [(unit, _only(plan, unit, devices)) for unit, devices in sorted(by_unit.items())]
    groups = [list(group) for _, group in groupby(owners, key=lambda owner: owner[1])]
    return tuple(Part(units[0][1], units[0][0], units[-1][0] + 1, plan.model.layers) for units in groups)


def _devices(plan: Plan, op: Operation) -> set[str]:
    return {
        device_of(plan, op.name, op.layer, "prefill"),
        device_of(plan, op.name, op.layer, "decode"),
    }


def _only(plan: Plan, unit: int, devices: set[str]) -> str:
    if len(devices) > 1:
        place = {0: "the embedding", plan.model.layers + 1: "the output"}.get(unit, f"block {unit - 1}")
        raise UsageError(
            f"{place} runs on {' and '.join(sorted(devices))}, and only whole units are executed",
            field="compute",
            remedy=REMEDY,
        )
    return next(iter(devices))


def _check_at_home(plan: Plan, op: Operation) -> None:
    device = device_of(plan, op.name, op.layer, "decode")
    memory = {d.name: d.memory for d in plan.hardware.devices}.get(device)
    place = op.name if op.layer is None else f"{op.name} of block {op.layer}"
    for tensor in op.tensors:
        home = residence(plan, tensor).memory
        if home != memory:
            raise UsageError(
                f"{place} runs on {device} while {tensor.name} lives in {home}, and streamed weights are not executed",
                field="residence",
                remedy=REMEDY,
            )
    if op.kind == "attention" and kv_rule(plan, op.layer or 0).memory != memory:
        raise UsageError(
            f"{place} runs on {device} while its keys and values live in "
            f"{kv_rule(plan, op.layer or 0).memory}, and KV offload is not executed",
            field="kv",
            remedy=REMEDY,
        )
