"""The disturbed figures that a plan rests on, and how much wider they make its interval."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from helmsman.planner.cost.plan_costs import cost_model
from helmsman.planner.cost.table_prices import tables_behind
from helmsman.planner.disturbances import (
    BANDWIDTH,
    BETWEEN_PASSES,
    JOINT,
    JOINT_COMPUTE,
    PASSES,
    disturbed_figures,
    undisturbed,
)
from helmsman.planner.prediction.between_terms import SUBMISSION
from helmsman.planner.prediction.predict import predict
from helmsman.schemas.figures import DISTURBED, Figure
from helmsman.schemas.hardware import LEFT, OTHERS, TABLE, Hardware, lane_owner
from helmsman.schemas.plan import Evidence, Plan
from helmsman.schemas.predicted import Interval
from helmsman.schemas.units import format_seconds
from helmsman.timing.pools import Pools

REMEDY = "run helm-profile when nothing else runs"


@dataclass(frozen=True, slots=True)
class Disturbance:
    """How other processes disturbed the figures of a plan.

    `figures`: the disturbed ones that it rests on; `most`: the largest share of the time
    that others took from one; `step`: the decode step as predicted; `quiet`: as it would be if only samples made the
    spread."""

    figures: tuple[str, ...]
    most: float
    step: Interval
    quiet: Interval

    @property
    def wider(self) -> float:
        """Width of the one interval over that of the other, less 1."""
        width = self.quiet.high - self.quiet.low
        return (self.step.high - self.step.low) / width - 1.0 if width > 0.0 else 0.0


def disturbance_of(plan: Plan) -> Disturbance | None:
    """Return the disturbance of a plan; None where no figure was disturbed that it rests on."""
    named = list(figures_behind(plan))
    if not named:
        return None
    calm = plan.model_copy(update={"hardware": undisturbed(plan.hardware)})
    quiet = predict(calm, cost_model(calm)).decode.seconds
    most = max(figure.disturbed or 0.0 for _, figure in named)
    return Disturbance(tuple(name for name, _ in named), most, plan.predicted.decode.seconds, quiet)


def figures_behind(plan: Plan) -> Iterator[tuple[str, Figure]]:
    """Yield the disturbed figures of its record that a plan rests on, by name: of the devices and links that it uses,
    of what these share with others of the memories they read, of its time between passes, of the operation tables that
    price it."""
    disturbed = list(disturbed_figures(plan.hardware))
    used = _UsedParts(plan) if disturbed else None
    for owner, what, figure in disturbed:
        if used is not None and used.rests_on(owner, what):
            yield f"{owner} {what}", figure


class _UsedParts:
    """The parts of a hardware record that a plan uses: `owners` names the devices, links and tables whose figures it
    rests on, `memories` the physical memories it reads, `end` the recorded devices at which its passes end."""

    def __init__(self, plan: Plan) -> None:
        hardware = self._hardware = plan.hardware
        terms = [term for phase in (plan.predicted.prefill, plan.predicted.decode) for term in phase.terms]
        lanes = {lane_owner(term.resource) for term in terms}
        links = [link for link in hardware.links if link.name in lanes]
        ends = [(link.source_memory, link.target_memory) for link in links]
        reads = [(device.memory,) for device in hardware.devices if device.name in lanes]
        self.memories = {Pools(hardware).of_memory(memory) for read in (*reads, *ends) for memory in read}
        lanes.update(link.shares for link in links if link.shares is not None)
        tables = tables_behind(plan) if cost_model(plan).table is not None else ()
        self.owners = {*lanes, *(table.name for table in tables), PASSES}
        self.end = set(self._known({term.resource for term in terms if term.op == SUBMISSION}))

    def rests_on(self, owner: str, what: str) -> bool:
        """Whether the plan would be another with another figure `what` of `owner`."""
        if what == BANDWIDTH:
            return owner in self.memories and self._hardware.memory(owner).joint is None
        if what in (JOINT, JOINT_COMPUTE):
            return owner in self.memories
        return owner in (self.end if what == BETWEEN_PASSES else self.owners)

    def _known(self, last: Iterable[str]) -> Iterator[str]:
        """Yield the devices whose time between passes stands for that of the `last` ones of passes."""
        between = self._hardware.between_passes
        if between is not None:
            behind = [between.after(device) for device in last]
            yield from (device for device, figure in between.begin.items() if figure in behind)


def with_evidence(plan: Plan, disturbance: Disturbance) -> Plan:
    """Return the plan with the ends of the narrower interval among its evidence, after the disturbed figures
    themselves."""
    source = "predicted: the same plan, if only samples made the spread of disturbed figures"
    ends = (("low", disturbance.quiet.low), ("high", disturbance.quiet.high))
    added = (Evidence(what=f"decode s undisturbed, {end}", value=seconds, source=source) for end, seconds in ends)
    return plan.model_copy(update={"evidence": (*plan.evidence, *added)})


def disturbance_line(disturbance: Disturbance) -> str:
    """Return the line of helm-plan's answer that names the disturbed figures, the wider interval and the remedy."""
    names = ", ".join(disturbance.figures[:2]) + (", .." if len(disturbance.figures) > 2 else "")
    low, high = format_seconds(disturbance.quiet.low), format_seconds(disturbance.quiet.high)
    return (
        f"disturbed    {len(disturbance.figures)} figures ({names}): others took up to {disturbance.most:.0%} of the "
        f"time they were measured; the step's interval is {disturbance.wider:.0%} wider for it (else {low} .. {high}); "
        f"{REMEDY}"
    )


def disturbed_record(hardware: Hardware) -> str | None:
    """Return a warning about a record that has disturbed figures, for every command that reads one."""
    shares = [figure.disturbed or 0.0 for _, _, figure in disturbed_figures(hardware)]
    return _warning(hardware, shares) or unmarked_record(hardware)


def disturbed_plan(plan: Plan) -> str | None:
    """Return a warning about a plan that rests on disturbed figures, for every command that reads one."""
    shares = [figure.disturbed or 0.0 for _, figure in figures_behind(plan)]
    return _warning(plan.hardware, shares) or unmarked_record(plan.hardware)


def _warning(hardware: Hardware, shares: list[float]) -> str | None:
    if not shares:
        return None
    figures = "1 figure" if len(shares) == 1 else f"{len(shares)} figures"
    taken = f"others took up to {max(shares):.0%} of the time of measuring, intervals are wider for it"
    return f"disturbed: {figures} of {hardware.name}; {taken}; {REMEDY}"


def unmarked_record(hardware: Hardware) -> str | None:
    """Return a warning about a record that was measured beside others before profiles marked what that disturbed."""
    marked = {reading.conditions.get(TABLE) for reading in hardware.readings if reading.what == LEFT}
    shares = [
        reading.figure.value
        for reading in hardware.readings
        if reading.what == OTHERS and reading.conditions.get(TABLE) not in marked and reading.figure.value > DISTURBED
    ]
    if not shares:
        return None
    return (
        f"others used {max(shares):.0%} of the processors while {hardware.name} was measured, and nothing says which "
        f"of its figures that disturbed; {REMEDY}"
    )
