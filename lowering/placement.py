"""Placement: the part of a Plan that decides what is executed, before anything is predicted."""

from dataclasses import dataclass, field
from typing import Protocol

from helmsman.lowering.rules import KnownRules, Rules
from helmsman.schemas.formats import Format
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ComputeRule, KvRule, Residence, Schedule
from helmsman.schemas.workload import Workload


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


def batches_together(plan: Placed) -> int:
    """How many batches one pass advances: all of them layer by layer (zig-zag), else one."""
    return plan.workload.batches if plan.schedule.order == "layer-major" else 1


class KnownPlan(KnownRules):
    """A placement whose rules remember what was found in them."""

    def __init__(self, plan: Placed) -> None:
        super().__init__(plan, plan.model.layers)
        self.model, self.hardware, self.workload = plan.model, plan.hardware, plan.workload
        self.activations, self.schedule = plan.activations, plan.schedule


def known(plan: Placed) -> KnownPlan:
    """`plan`, to be asked many questions: what its rules say is looked up once for blocks that are alike."""
    return plan if isinstance(plan, KnownPlan) else KnownPlan(plan)
