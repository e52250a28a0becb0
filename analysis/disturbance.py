"""The disturbed figures that a plan rests on, and how much wider they make its interval."""

from dataclasses import dataclass

from helmsman.planner.disturbed import disturbed_figures, undisturbed
from helmsman.planner.predict import predict
from helmsman.schemas.hardware import Hardware, lane_owner
from helmsman.schemas.plan import Evidence, Interval, Plan
from helmsman.schemas.units import format_seconds
from helmsman.simulator.pricing import cost_model

REMEDY = "run helm-profile when nothing else runs"


@dataclass(frozen=True, slots=True)
class Disturbance:
    """How other processes disturbed the figures of a plan.

    `figures`: the disturbed ones of its devices and links; `most`: the largest share of the time
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
    """The disturbance of a plan; None where no figure was disturbed of a device or link that it uses."""
    phases = (plan.predicted.prefill, plan.predicted.decode)
    used = {lane_owner(term.resource) for phase in phases for term in phase.terms}
    named = [(f"{owner} {what}", figure) for owner, what, figure in disturbed_figures(plan.hardware) if owner in used]
    if not named:
        return None
    calm = plan.model_copy(update={"hardware": undisturbed(plan.hardware)})
    quiet = predict(calm, cost_model(calm)).decode.seconds
    most = max(figure.disturbed or 0.0 for _, figure in named)
    return Disturbance(tuple(name for name, _ in named), most, plan.predicted.decode.seconds, quiet)


def with_evidence(plan: Plan, disturbance: Disturbance) -> Plan:
    """The plan with the ends of the narrower interval among its evidence, after the disturbed figures themselves."""
    source = "predicted: the same plan, if only samples made the spread of disturbed figures"
    ends = (("low", disturbance.quiet.low), ("high", disturbance.quiet.high))
    added = (Evidence(what=f"decode s undisturbed, {end}", value=seconds, source=source) for end, seconds in ends)
    return plan.model_copy(update={"evidence": (*plan.evidence, *added)})


def disturbance_line(disturbance: Disturbance) -> str:
    """The line of helm-plan's answer that names the disturbed figures, the wider interval and the remedy."""
    names = ", ".join(disturbance.figures[:2]) + (", .." if len(disturbance.figures) > 2 else "")
    low, high = format_seconds(disturbance.quiet.low), format_seconds(disturbance.quiet.high)
    return (
        f"disturbed    {len(disturbance.figures)} figures ({names}): others took up to {disturbance.most:.0%} of the "
        f"time they were measured; the step's interval is {disturbance.wider:.0%} wider for it (else {low} .. {high}); "
        f"{REMEDY}"
    )


def disturbed_record(hardware: Hardware) -> str | None:
    """A warning about a record that has disturbed figures, for every command that reads one."""
    shares = [figure.disturbed or 0.0 for _, _, figure in disturbed_figures(hardware)]
    if not shares:
        return None
    return (
        f"{len(shares)} figures of {hardware.name} are disturbed: others took up to {max(shares):.0%} of the time they "
        f"were measured, intervals are wider for it; {REMEDY}"
    )
