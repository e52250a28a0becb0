"""A strategy's decision: the plan, the candidates it was chosen from, and the evidence for its prediction."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from helmsman.lowering.placement import Placement
from helmsman.planner.disturbances import disturbed_figures
from helmsman.schemas.figures import Figure
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import Evidence, Plan, Predicted, Strategy
from helmsman.schemas.read import digest

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


@dataclass(frozen=True, slots=True)
class Decision:
    """The plan, its objective in seconds, the other feasible candidates (label, seconds), those that do not fit.

    `unused`: devices of the machine that the strategy cannot use; `evaluated`: candidates that were priced;
    `explained`: why it is as fast as it is, found when asked, where the strategy can say; `warnings`: what to doubt of
    what was asked; `searched`: the search of op-split, to be drawn
    or tabulated."""

    plan: Plan
    seconds: float
    runner_ups: tuple[tuple[str, float], ...]
    rejected: tuple[RejectedCandidate, ...]
    unused: tuple[str, ...] = ()
    evaluated: int = 1
    explained: "Callable[[], Explanation] | None" = None
    warnings: tuple[str, ...] = ()
    searched: object = None

    @property
    def nearest(self) -> RejectedCandidate | None:
        """The smallest change that would allow a faster plan."""
        faster = [r for r in self.rejected if r.seconds < self.seconds]
        return min(faster, key=lambda r: r.missing, default=None)

    def doubted(self, warnings: Iterable[str]) -> "Decision":
        """Return the same decision with these warnings after its own."""
        return replace(self, warnings=(*self.warnings, *warnings))


def plan_document(placement: Placement, label: str, strategy: Strategy, predicted: Predicted) -> Plan:
    """A placement with its prediction as a Plan."""
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
        predicted=predicted,
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
