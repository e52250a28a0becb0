"""A decision of the planner as the document that clients get."""

from itertools import takewhile

from helmsman.analysis.disturbance import disturbance_of, with_evidence
from helmsman.planner.decision import Decision, RejectedCandidate
from helmsman.planner.machine import why_unused
from helmsman.planner.memory.names import memory_name
from helmsman.planner.prediction.speed import speed
from helmsman.planner.words.explain import explain
from helmsman.planner.words.plan_picture import INDENT
from helmsman.schemas.plan import Plan
from helmsman.schemas.plan_answer import PlanAnswer, Rejected, RunnerUp
from helmsman.service.planner.answers.blocks import block_runs
from helmsman.service.planner.answers.engine_settings import engine_settings

_IN_SHORT = "in short"
"""The title of the sentence in the text that helm-plan prints; to make it again would take as long as the text."""
_MOST_LISTED = 100
"""Candidates of one list: a search may price thousands, and the nearest ones come first."""


def plan_answer(decision: Decision) -> PlanAnswer:
    """Return what a client is told about a decision."""
    plan, hardware = _with_disturbance(decision.plan), decision.plan.hardware
    text, (steps, prompts) = explain(decision), block_runs(plan)
    rejected = sorted(decision.rejected, key=lambda candidate: candidate.missing)
    return PlanAnswer(
        plan=plan,
        speed=speed(plan),
        text=text,
        in_short=_in_short(text),
        blocks=steps,
        prompt_blocks=() if prompts == steps else prompts,
        memory_names={memory.name: memory_name(hardware, memory.name) for memory in hardware.memories},
        runner_ups=tuple(
            RunnerUp(label=label, seconds=seconds) for label, seconds in decision.runner_ups[:_MOST_LISTED]
        ),
        rejected=tuple(_rejected(candidate) for candidate in rejected[:_MOST_LISTED]),
        unused=tuple(f"{name}: {why_unused(hardware, name)}" for name in decision.unused),
        warnings=decision.warnings,
        settings=engine_settings(plan),
    )


def _in_short(text: str) -> str:
    """Return the sentence of a text, whose lines after the first are indented."""
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(_IN_SHORT))
    rest = takewhile(lambda line: line.startswith(" " * INDENT), lines[first + 1 :])
    return " ".join(line[INDENT:].strip() for line in (lines[first], *rest))


def _with_disturbance(plan: Plan) -> Plan:
    """Return the plan with a record's disturbance as evidence, where it was disturbed."""
    disturbance = disturbance_of(plan)
    return plan if disturbance is None else with_evidence(plan, disturbance)


def _rejected(candidate: RejectedCandidate) -> Rejected:
    return Rejected(label=candidate.label, seconds=candidate.seconds, lacks=dict(candidate.shortage))
