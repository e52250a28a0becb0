"""Finds the baseline of a case: the result that was accepted on the same machine, or another version measured beside
it."""

from collections.abc import Iterator, Mapping
from statistics import median

from helmsman import __version__
from helmsman.gate.history import History, HistoryEntry, read_record
from helmsman.gate.judging import Baseline, CaseNow
from helmsman.gate.record_changes import plan_change, record_changes
from helmsman.schemas.gate_history import GateEntry
from helmsman.schemas.gate_report import BaselineFacts, FigureTimes
from helmsman.schemas.hardware import Hardware

_STEADY = ("ok", "undecided")
"""Verdicts of measurements in which nothing is known to have changed."""
_MOST_SESSIONS = 20
"""The number of earlier measurements, the newest, whose differences are noise."""


def history_baseline(history: History, now: CaseNow, record: Hardware) -> Baseline | None:
    """Return the entry that was accepted last on the machine of `now`, which `record` prices; None where none was."""
    accepted = history.baseline(now.machine)
    if accepted is None:
        return None
    facts = BaselineFacts(kind="history", entry=accepted.name, measured=accepted.info.measured, helm=accepted.info.helm)
    changes = tuple(_changes(history, accepted.info, now, record))
    sessions = {figure: _sessions(history, accepted, now, figure) for figure in accepted.entry.samples}
    return Baseline(facts, times_of(accepted), "ok", sessions, changes)


def interpreter_baseline(accepted: Baseline | None, samples: Mapping[str, tuple[float, ...]], version: str) -> Baseline:
    """Return the baseline of `samples` that another environment's `version` of Helm took between this one's runs;
    predictions are those of the accepted entry, where there is one."""
    known = {} if accepted is None else accepted.figures
    figures = {
        figure: known.get(figure, FigureTimes()).model_copy(update={"samples_s": values})
        for figure, values in samples.items()
    }
    facts = BaselineFacts(kind="interpreter", entry=None, helm=version)
    return Baseline(facts, figures, "ok", {}, () if accepted is None else accepted.changes)


def times_of(entry: HistoryEntry) -> dict[str, FigureTimes]:
    """Return the figures of an entry."""
    info = entry.info
    return {
        figure: FigureTimes(
            predicted_s=info.predicted.get(figure), simulated_s=info.simulated.get(figure), samples_s=samples
        )
        for figure, samples in entry.entry.samples.items()
    }


def _sessions(history: History, accepted: HistoryEntry, now: CaseNow, figure: str) -> tuple[float, ...]:
    """Return the medians of earlier measurements of the same plan on the same machine since the accepted one."""
    since = history.entries.index(accepted)
    return tuple(
        median(entry.entry.samples[figure])
        for entry in history.entries[since:]
        if entry.info.machine == now.machine
        and entry.info.plan_sha256 == now.plan_sha256
        and (entry is accepted or entry.info.verdict in _STEADY)
        and figure in entry.entry.samples
    )[-_MOST_SESSIONS:]


def _changes(history: History, before: GateEntry, now: CaseNow, record: Hardware) -> Iterator[str]:
    if before.helm != __version__:
        yield f"Helm was {before.helm}, is {__version__}"
    if before.plan_sha256 != now.plan_sha256:
        yield plan_change(before.plan, now.plan)
    if before.hardware_sha256 != now.hardware_sha256:
        former = read_record(history.folder, before.hardware_sha256)
        yield from () if former is None else record_changes(former, record)
