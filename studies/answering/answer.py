"""The answer to one question of a study: its plan, and what that can serve."""

from dataclasses import dataclass, fields

from helmsman import library
from helmsman.planner.decision import Decision, PlanDraft, PlanOutline
from helmsman.planner.prediction.speed import speed
from helmsman.planner.words.expert_lines import experts_in_short
from helmsman.schemas.errors import BadInputError, HelmError, InfeasibleError, UsageError
from helmsman.schemas.predicted import Interval
from helmsman.schemas.study import Study
from helmsman.schemas.study_row import Status, StudyRow
from helmsman.studies.answering.serving import Columns, served
from helmsman.studies.questions.named_parts import Machines, machine_name
from helmsman.studies.questions.point_request import point_request
from helmsman.studies.questions.points import ServedPoint, StudyPoint

_MOST_LETTERS = 1000
"""Letters of a refusal, and of where experts are, that a row keeps."""

_SERVED = tuple(field.name for field in fields(ServedPoint))
"""The columns of the load that a question serves."""


@dataclass
class Answerer:
    """Answers points of a study on some machines, one after the other; keeps what neighbours share: changed machines
    and the last plan."""

    study: Study
    machines: Machines
    last: tuple[StudyPoint, Decision] | None = None

    def row(self, key: str, point: StudyPoint) -> StudyRow:
        """Return the row of a point. What does not fit or does not apply is a row that says why."""
        try:
            decision = self._decision(point)
            values = {"status": "fits", **_planned(decision.outline), "experts": _experts(decision)}
            if self.study.serving is not None:
                values |= served(decision.plan, self.study.serving, point)
        except InfeasibleError as error:
            values = _refused("does-not-fit", error)
        except UsageError as error:
            values = _refused("does-not-apply", error)
        except BadInputError:
            raise
        except Exception as error:
            values = {"status": "failed", "missing": f"internal error: {error!r}"[:_MOST_LETTERS]}
        return StudyRow(key=key, **question_columns(point), **values)

    def _decision(self, point: StudyPoint) -> Decision:
        """Return the decision on a point's plan, whoever is served with it."""
        planned = point.planned
        if self.last is None or self.last[0] != planned:
            self.last = planned, library.plan(point_request(point, self.machines))
        return self.last[1]


def question_columns(point: StudyPoint) -> Columns:
    """Return the columns that say what was asked."""
    return {
        "model": point.model,
        "machine": machine_name(point.machine),
        "change": point.change,
        "engine": point.method.engine,
        "strategy": point.method.strategy,
        "options": ", ".join(f"{name}={value}" for name, value in point.method.options) or None,
        "format": point.format,
        "kv_format": point.kv_format,
        "objective": point.objective,
        "prompt_tokens": point.prompt_tokens,
        "output_tokens": point.output_tokens,
        "context": point.context or point.prompt_tokens + point.output_tokens,
        "batch": point.batch,
        **{name: getattr(point.served, name) for name in _SERVED},
        "slo": point.slo,
        "prices": point.prices,
    }


def _planned(plan: PlanOutline) -> Columns:
    """Return the columns that say what a plan is, how fast, and what it takes of memories."""
    of, certificate = speed(plan), plan.certificate
    hosts = {device.memory for device in plan.hardware.devices if device.kind == "cpu"}
    away = {device.memory for device in plan.hardware.devices if device.kind != "cpu"} - hosts
    memory = plan.predicted.memory
    return {
        "plan": plan.label,
        "planned_by": plan.strategy.name,
        **_interval("request", of.request, "_s"),
        **_interval("ttft", of.ttft, "_s"),
        **_interval("step", of.step, "_s"),
        **_interval("decode_rate", of.decode_rate, ""),
        "gap": None if certificate is None else certificate.gap,
        "host_bytes": sum(use.used for use in memory if use.memory in hosts),
        "accelerator_bytes": sum(use.used for use in memory if use.memory in away),
        "accelerator_free_bytes": sum(use.available - use.used for use in memory if use.memory in away),
    }


def _experts(decision: Decision) -> str | None:
    """Return where routed experts are, of as many blocks as a row has letters for."""
    drafted = decision.drafted
    words = experts_in_short(drafted.placement if isinstance(drafted, PlanDraft) else drafted)
    return words if words is None else words[:_MOST_LETTERS]


def _interval(name: str, interval: Interval, unit: str) -> Columns:
    return {f"{name}{unit}": interval.mid, f"{name}_low{unit}": interval.low, f"{name}_high{unit}": interval.high}


def _refused(status: Status, error: HelmError) -> Columns:
    return {"status": status, "missing": str(error)[:_MOST_LETTERS]}
