"""Placement: the part of a Plan that decides what is executed, before anything is predicted."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from helmsman.lowering.rules import KnownRules, Rules
from helmsman.schemas.formats import Format
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ComputeRule, ExpertSlots, KvRule, Residence, Schedule
from helmsman.schemas.routing import Routing
from helmsman.schemas.same import Same
from helmsman.schemas.workload import Workload

FactT = TypeVar("FactT")

_SHAPES = 256
"""The number of shapes that are kept: neighbouring questions of a study alternate between a few, and one with its
passes takes about half a megabyte."""


_MACHINES = 16
"""The number of machines whose layouts are kept."""

_SHAPED = 4
"""The number of plans that are kept in their shapes: those of the question at hand."""


class Placed(Rules, Protocol):
    """The rules, the model and the schedule that `lower` reads: a Placement, or a Plan."""

    @property
    def model(self) -> Model:
        """Return the model that is run."""

    @property
    def hardware(self) -> Hardware:
        """On what."""

    @property
    def workload(self) -> Workload:
        """For which tokens."""

    @property
    def activations(self) -> Format:
        """Format of hidden states that cross a link."""

    @property
    def schedule(self) -> Schedule:
        """How an iteration is ordered."""

    @property
    def expert_slots(self) -> tuple[ExpertSlots, ...]:
        """Return which experts are cached beside their homes."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A candidate of a search: the rules of a Plan without its predictions."""

    model: Model
    hardware: Hardware
    workload: Workload
    residence: tuple[Residence, ...]
    kv: tuple[KvRule, ...]
    compute: tuple[ComputeRule, ...]
    activations: Format = "f16"
    schedule: Schedule = field(default_factory=Schedule)
    expert_slots: tuple[ExpertSlots, ...] = ()


def batches_together(plan: Placed) -> int:
    """How many batches one pass advances: all of them layer by layer (zig-zag), else one."""
    return batches_of(plan.workload, plan.schedule)


def batches_of(workload: Workload, schedule: Schedule) -> int:
    """Return the same of a plan of which no more is known."""
    return workload.batches if schedule.order == "layer-major" else 1


class PlanShape(KnownRules):
    """What plans have in common that differ in their workload and in figures of the machine alone.

    `facts`: what was worked out of such a plan, by what it is about."""

    def __init__(self, rules: Rules, layouts: Sequence[Hashable], expert_slots: tuple[ExpertSlots, ...] = ()) -> None:
        super().__init__(rules, layouts, expert_slots)
        self.facts: dict[Hashable, Any] = {}


class KnownPlan(KnownRules):
    """A placement whose rules remember what was found in them; `shape`: where that and other facts are kept."""

    def __init__(self, plan: Placed, shape: PlanShape | None = None) -> None:
        self.shape = PlanShape(plan, layouts_of(plan), plan.expert_slots) if shape is None else shape
        self.share(self.shape)
        self.shared = shape is not None
        self.model, self.hardware, self.workload = plan.model, plan.hardware, plan.workload
        self.activations, self.schedule, self.expert_slots = plan.activations, plan.schedule, plan.expert_slots
        self._own: dict[Hashable, Any] = {}

    def fact(self, about: Hashable, work_out: Callable[[], FactT]) -> FactT:
        """Return what is known `about` plans of this shape, worked out the first time: nothing that depends on the
        workload or on a figure of the machine."""
        facts = self.shape.facts
        if about not in facts:
            facts[about] = work_out()
        fact: FactT = facts[about]
        return fact

    def own_fact(self, about: Hashable, work_out: Callable[[], FactT]) -> FactT:
        """Return what is known `about` this plan with its workload and its machine, worked out the first time."""
        if about not in self._own:
            self._own[about] = work_out()
        fact: FactT = self._own[about]
        return fact


def known(plan: Placed) -> KnownPlan:
    """`plan`, to be asked many questions: what its rules say is looked up once for blocks that are alike."""
    return plan if isinstance(plan, KnownPlan) else KnownPlan(plan)


def shaped(plan: Placed) -> KnownPlan:
    """`plan`, which remembers what was worked out of others of its shape: for questions that have many neighbours."""
    return plan if isinstance(plan, KnownPlan) else _shaped(Same(plan))


@lru_cache(maxsize=_SHAPED)
def _shaped(same: Same[Placed]) -> KnownPlan:
    """Return a plan in its shape: a strategy asks whether it fits, then what it costs, then what it takes."""
    plan = same.document
    rules = plan.residence, plan.kv, plan.compute
    about = plan.activations, plan.schedule, plan.expert_slots, plan.workload.routing, plan.model
    return KnownPlan(plan, _shape(*rules, *about, _layout(Same(plan.hardware))))


@dataclass(frozen=True, slots=True)
class _Rules:
    """The rule lists of a placement by themselves."""

    residence: tuple[Residence, ...]
    kv: tuple[KvRule, ...]
    compute: tuple[ComputeRule, ...]


@lru_cache(maxsize=_SHAPES)
def _shape(
    residence: tuple[Residence, ...],
    kv: tuple[KvRule, ...],
    compute: tuple[ComputeRule, ...],
    activations: Format,
    schedule: Schedule,
    expert_slots: tuple[ExpertSlots, ...],
    routing: Routing | None,
    model: Model,
    layout: Hashable,
) -> PlanShape:
    """Return the shape of plans that agree in all of these."""
    return PlanShape(_Rules(residence, kv, compute), _layouts(model, routing), expert_slots)


def layouts_of(plan: Placed) -> Sequence[Hashable]:
    """Return by block what it does, where that does not depend on rules: its layout, and how its tokens are routed."""
    return _layouts(plan.model, plan.workload.routing)


def _layouts(model: Model, routing: Routing | None) -> Sequence[Hashable]:
    if routing is None:
        return model.pattern
    return tuple((letter, routing.groups.get(layer)) for layer, letter in enumerate(model.pattern))


@lru_cache(maxsize=_MACHINES)
def _layout(same: Same[Hardware]) -> Hashable:
    """Return all of a machine that tasks and the homes of bytes depend on: what there is and what joins it, and the
    rates of links where there are several hosts, as data between two accelerators goes through the nearer one
    (`lowering.streams`)."""
    hardware = same.document
    several = len({d.memory for d in hardware.devices if d.kind == "cpu"}) > 1
    return (
        tuple([(d.name, d.kind, d.memory, d.decompression_lane, d.expands) for d in hardware.devices]),
        tuple([(m.name, m.kind, m.shares) for m in hardware.memories]),
        tuple([(k.name, k.source_memory, k.target_memory) for k in hardware.links]),
        tuple([k.bandwidth.value for k in hardware.links]) if several else (),
    )
