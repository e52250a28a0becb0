"""A strategy's decision: the plan, the candidates it was chosen from, and the evidence for its prediction."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from helmsman.lowering.placement import Placement
from helmsman.planner.disturbances import disturbed_figures
from helmsman.planner.prediction.objective import Phases
from helmsman.planner.prediction.predict import PlacementFigures
from helmsman.schemas.figures import Figure
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import Certificate, Evidence, Plan, Schedule, Strategy
from helmsman.schemas.predicted import MemoryUse, Predicted
from helmsman.schemas.read import digest
from helmsman.schemas.workload import Workload

if TYPE_CHECKING:
    from helmsman.schemas.explanation import Explanation


@dataclass(frozen=True, slots=True)
class RejectedCandidate:
    """A candidate that does not fit: what it lacks, and its objective if it did."""

    label: str
    seconds: float
    shortage: tuple[tuple[str, int], ...]

    @property
    def missing(self) -> int:
        """Bytes missing in all memories."""
        return sum(size for _, size in self.shortage)


class PlanOutline(Protocol):
    """What is told of a plan before all of it is written down: a Plan, or a PlanDraft."""

    @property
    def label(self) -> str:
        """Return it in a few words."""

    @property
    def hardware(self) -> Hardware:
        """The machine."""

    @property
    def workload(self) -> Workload:
        """For which tokens."""

    @property
    def schedule(self) -> Schedule:
        """How a pass is ordered."""

    @property
    def strategy(self) -> Strategy:
        """Whose plan it is."""

    @property
    def predicted(self) -> "OutlinedFigures":
        """The seconds of both phases, and what is needed in each memory."""

    @property
    def certificate(self) -> Certificate | None:
        """The lower bound that was proved, if any was."""


class OutlinedFigures(Phases, Protocol):
    """The figures of a plan, as far as its seconds and memories."""

    @property
    def memory(self) -> tuple[MemoryUse, ...]:
        """What is needed in each memory."""


@dataclass(frozen=True)
class PlanDraft:
    """A placement with its figures, of which a plan is made when it is asked for. `machine`: as in `Plan`."""

    placement: Placement
    label: str
    strategy: Strategy
    predicted: PlacementFigures
    certificate: Certificate | None = None
    machine: Hardware | None = None

    @property
    def hardware(self) -> Hardware:
        """Return the machine."""
        return self.placement.hardware

    @property
    def workload(self) -> Workload:
        """Return for which tokens it is."""
        return self.placement.workload

    @property
    def schedule(self) -> Schedule:
        """Return how a pass is ordered."""
        return self.placement.schedule

    @cached_property
    def plan(self) -> Plan:
        """Return the document."""
        return plan_document(self.placement, self.label, self.strategy, self.predicted.document, self.machine)


@dataclass(frozen=True, slots=True)
class Decision:
    """The plan, its objective in seconds, the other feasible candidates (label, seconds), those that do not fit.

    `drafted`: the plan, or what it is made of when it is asked for;
    `unused`: devices of the machine that the strategy cannot use; `evaluated`: candidates that were priced;
    `explained`: why it is as fast as it is, found when asked, where the strategy can say; `warnings`: what to doubt of
    what was asked; `searched`: the search of op-split, to be drawn
    or tabulated."""

    drafted: Plan | PlanDraft
    seconds: float
    runner_ups: tuple[tuple[str, float], ...]
    rejected: tuple[RejectedCandidate, ...]
    unused: tuple[str, ...] = ()
    evaluated: int = 1
    explained: "Callable[[], Explanation] | None" = None
    warnings: tuple[str, ...] = ()
    searched: object = None

    @property
    def plan(self) -> Plan:
        """Return the document."""
        return self.drafted.plan if isinstance(self.drafted, PlanDraft) else self.drafted

    @property
    def outline(self) -> PlanOutline:
        """Return the plan's figures, without the document where that has not been asked for."""
        return self.drafted

    @property
    def nearest(self) -> RejectedCandidate | None:
        """The smallest change that would allow a faster plan."""
        faster = [r for r in self.rejected if r.seconds < self.seconds]
        return min(faster, key=lambda r: r.missing, default=None)

    def doubted(self, warnings: Iterable[str]) -> "Decision":
        """Return the same decision with these warnings after its own."""
        return replace(self, warnings=(*self.warnings, *warnings))


def plan_document(
    placement: Placement, label: str, strategy: Strategy, predicted: Predicted, machine: Hardware | None = None
) -> Plan:
    """A placement with its prediction as a Plan; `machine`: as there."""
    return Plan(
        label=label,
        model=placement.model,
        model_sha256=digest(placement.model),
        hardware=placement.hardware,
        hardware_sha256=digest(placement.hardware),
        workload=placement.workload,
        workload_sha256=digest(placement.workload),
        strategy=strategy,
        residence=placement.residence,
        kv=placement.kv,
        compute=placement.compute,
        activations=placement.activations,
        schedule=placement.schedule,
        expert_slots=placement.expert_slots,
        predicted=predicted,
        machine=machine,
        evidence=tuple(evidence(placement.hardware)),
    )


def evidence(hardware: Hardware) -> Iterator[Evidence]:
    """The rates that the prediction used, each with the place it comes from; after them what else was disturbed while
    it was measured."""

    def of(what: str, figure: Figure) -> Evidence:
        source = hardware.sources[figure.source]
        where = f"{source.kind}: {source.where}"[:200]
        return Evidence(what=what[:200], value=figure.value, source=where, disturbed=figure.disturbed)

    for device in hardware.devices:
        yield of(f"{device.name} read bytes/s", device.read)
        for compute in device.compute:
            yield of(f"{device.name} {compute.phase} FLOP/s {compute.format}", compute.flops)
    for link in hardware.links:
        yield of(f"{link.name} bytes/s", link.bandwidth)
        yield of(f"{link.name} latency s", link.latency)
    told = {"read", "bandwidth", "latency"}
    for owner, what, figure in disturbed_figures(hardware):
        if what not in told and "FLOP/s" not in what:
            yield of(f"{owner} {what}", figure)
