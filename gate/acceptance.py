"""Accepting: the newest measurement of each case becomes what later ones are compared with."""

from statistics import median

from helmsman.gate.cases import Case, Suite
from helmsman.gate.history import History, accept_entry, read_history
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.gate_acceptance import AcceptedCase, GateAcceptance


def accept_suite(suite: Suite) -> GateAcceptance:
    """Accept the newest entry of every case.

    Raises BadInputError, before anything is accepted, for a damaged history or one without an entry; UsageError where a
    history cannot be written, HardwareUnavailableError on a full disk."""
    rows = [_row(case, read_history(case.history)) for case in suite.cases]
    for case, row in zip(suite.cases, rows, strict=True):
        if not row.already:
            accept_entry(case.history, row.entry)
    return GateAcceptance(suite=suite.name, cases=tuple(rows))


def acceptance_text(acceptance: GateAcceptance) -> str:
    """Return a line for each case."""
    return "\n".join(
        f"{row.case}: {row.entry}{' (was accepted before)' if row.already else ''}, measured {row.measured} on "
        f"{row.machine}"
        for row in acceptance.cases
    )


def _row(case: Case, history: History) -> AcceptedCase:
    if not history.entries:
        remedy = "measure it first: helm-check suite SUITE"
        raise BadInputError(f"case {case.name} has no measurement", file=str(case.history), remedy=remedy)
    entry = history.entries[-1]
    baseline = history.baseline(entry.info.machine)
    return AcceptedCase(
        case=case.name,
        entry=entry.name,
        measured=entry.info.measured,
        machine=entry.info.machine,
        medians_s={figure: median(samples) for figure, samples in entry.entry.samples.items()},
        already=baseline is not None and baseline.name == entry.name,
    )
