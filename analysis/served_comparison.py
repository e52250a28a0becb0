"""Served against simulated: throughput and latencies of the same requests, from two tables of served requests."""

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from helmsman.analysis.served_noise import batch_noise
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.figures import DISTURBED
from helmsman.schemas.served_comparison import Compared, ServedComparison, Verdict
from helmsman.schemas.served_table import FAILED, FINISHED, OVER_PRICE, PASS_PARTS, REJECTED, ServedTable
from helmsman.schemas.serving import ServingReport, Spread
from helmsman.schemas.units import format_seconds
from helmsman.simulator.serving.report import report

JUDGED = ("throughput", "ttft", "tpot", "e2e")
"""The figures that a verdict may depend on, by name."""
_SAME_S = 1e-6
_PARTS = {"device": "the device with the weights", "host": "attention on the host"}
"""Parts of passes in words."""


def compare_served(
    plan_sha256: str,
    simulated: ServedTable,
    measured: ServedTable,
    tolerance: float,
    judged: Collection[str] = JUDGED,
    files: tuple[str, str] = ("simulated", "measured"),
) -> ServedComparison:
    """Compare two runs of a plan with the same requests; `files` names the tables in errors.

    A run during which others used more than 8 % of the server's processors is judged neither way: requests wait for
    each other, so a disturbed second is felt by all that come after it, and no figure of the run is free of it. A run
    that lost requests which finished in simulation missed, whatever those took that it served.

    Raises BadInputError where they are of other plans, other requests, or from the wrong source."""
    for table, source, file in ((simulated, "simulated", files[0]), (measured, "measured", files[1])):
        if table.info.source != source:
            remedy = "use what helm-sim -o wrote as `simulated`, what helm-bench-serve -o wrote as `served`"
            raise BadInputError(f"not a {source} run", file=file, value=table.info.source, remedy=remedy)
        if table.info.plan_sha256 not in (None, plan_sha256):
            raise BadInputError("of another plan", file=file, field="plan_sha256", remedy="name the plan it is of")
    _check_same(simulated, measured, files[1])
    reports = report(simulated), report(measured)
    batches = batch_noise(simulated, measured)
    figures = tuple(_figures(*reports, judged, batches))
    others, waited = (_noted(measured, name) for name in ("others_cpu_share", "thread_wait_share"))
    within = all(_within(figure, tolerance) for figure in figures if figure.judged)
    lost = _lost(simulated, measured)
    verdict: Verdict = "passed" if within and not lost else "missed"
    if others is not None and others > DISTURBED:
        verdict = "disturbed"
    return ServedComparison(
        simulated=simulated.info,
        measured=measured.info,
        simulated_requests=reports[0].counts,
        measured_requests=reports[1].counts,
        lost=lost,
        figures=figures,
        tolerance=tolerance,
        others_cpu_share=others,
        thread_wait_share=waited,
        passes=_over_price(measured),
        verdict=verdict,
        passed=verdict == "passed",
    )


def _lost(simulated: ServedTable, measured: ServedTable) -> int:
    """Return requests that failed or were refused, and finished in simulation."""
    gone = np.isin(measured.status, (FAILED, REJECTED)) & (simulated.status == FINISHED)
    return int(np.count_nonzero(gone))


def _over_price(measured: ServedTable) -> dict[str, float]:
    """Return, by part of the server's passes, the ratio of measured seconds to predicted ones; parts that the server
    did not tell are left out."""
    ratios = {part: _noted(measured, part + OVER_PRICE) for part in PASS_PARTS}
    return {part: ratio for part, ratio in ratios.items() if ratio is not None}


def _noted(measured: ServedTable, name: str) -> float | None:
    value = measured.info.notes.get(name)
    return float(value) if isinstance(value, int | float) else None


def _check_same(simulated: ServedTable, measured: ServedTable, file: str) -> None:
    remedy = "replay and simulate the same `requests` with the same `rate`, `limit` and `seed`"
    if len(simulated) != len(measured):
        message = f"other requests than the {len(simulated)} simulated"
        raise BadInputError(message, file=file, value=len(measured), remedy=remedy)
    wrong = np.abs(simulated.arrival_s - measured.arrival_s) > _SAME_S
    wrong |= simulated.output_tokens != measured.output_tokens
    if wrong.any():
        row = int(np.argmax(wrong))
        value = (float(measured.arrival_s[row]), int(measured.output_tokens[row]))
        raise BadInputError("another request than simulated", file=file, field=f"row {row}", value=value, remedy=remedy)


def _figures(
    simulated: ServingReport, measured: ServingReport, judged: Collection[str], noise: Mapping[str, float]
) -> Iterator[Compared]:
    rates = simulated.throughput.output_tokens, measured.throughput.output_tokens
    yield _compared("throughput", *rates, judged, noise)
    for name in ("ttft", "tpot", "e2e"):
        spreads = getattr(simulated.latency, name), getattr(measured.latency, name)
        for share in ("p50", "p99"):
            values = [_of(spread, share) for spread in spreads]
            yield _compared(f"{name} {share}", values[0], values[1], judged, noise)


def _of(spread: Spread | None, share: str) -> float | None:
    return None if spread is None else float(getattr(spread, share))


def _compared(
    what: str, simulated: float | None, measured: float | None, judged: Collection[str], noise: Mapping[str, float]
) -> Compared:
    error = None if simulated is None or measured is None or simulated <= 0 else (measured - simulated) / simulated
    known = simulated is not None or measured is not None
    known_judged = known and what.split()[0] in judged
    return Compared(
        what=what, simulated=simulated, measured=measured, error=error, noise=noise.get(what), judged=known_judged
    )


def _within(figure: Compared, tolerance: float) -> bool:
    return figure.error is not None and abs(figure.error) <= tolerance


def served_table(comparison: ServedComparison) -> str:
    """Return the text that `helm-check --served` prints."""
    simulated, measured = (
        f"{requests.finished} of {requests.asked}"
        for requests in (comparison.simulated_requests, comparison.measured_requests)
    )
    lines = [
        f"{'policy':<13}simulated {comparison.simulated.policy}, served {comparison.measured.policy}",
        f"{'requests':<13}{simulated} finished in simulation, {measured} served",
        "",
        f"{'':<13}{'simulated':>12}{'served':>12}{'error':>10}{'noise':>9}",
        *(_line(figure, comparison.tolerance) for figure in comparison.figures),
        "",
        *_server_lines(comparison),
        f"{'verdict':<13}{served_verdict(comparison)}",
    ]
    return "\n".join(lines)


def _line(figure: Compared, tolerance: float) -> str:
    cells = [_cell(figure.what, value) for value in (figure.simulated, figure.measured)]
    error = "-" if figure.error is None else f"{figure.error:+.1%}"
    mark = "  BEYOND" if figure.judged and not _within(figure, tolerance) else ""
    noise = "-" if figure.noise is None else f"+-{figure.noise:.1%}"
    return f"{figure.what:<13}{cells[0]:>12}{cells[1]:>12}{error:>10}{noise:>9}{mark}"


def _server_lines(served_comparison: ServedComparison) -> Iterator[str]:
    """Yield the lines about the server: the share of processor time that others used, and how long passes took."""
    if served_comparison.others_cpu_share is None:
        yield f"{'others':<13}unknown: the server did not say what others took of its processors"
    else:
        waited = f", its threads waited for a processor {served_comparison.thread_wait_share or 0.0:.1%} of it"
        yield f"{'others':<13}used {served_comparison.others_cpu_share:.1%} of the server's processor time{waited}"
    if "pass" in served_comparison.passes:
        yield f"{'passes':<13}{_told_passes(served_comparison)}, at the speeds of the record"


def _cell(what: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4g} tok/s" if what == "throughput" else format_seconds(value)


def served_verdict(served_comparison: ServedComparison) -> str:
    """Return one line: requests that were lost, what is beyond the tolerance, and whether that means anything."""
    if served_comparison.verdict == "disturbed":
        share = served_comparison.others_cpu_share or 0.0
        return f"DISTURBED, not judged: others used {share:.0%} of the processors; {_told_errors(served_comparison)}"
    unknown = "; what others took of the processors is unknown" if served_comparison.others_cpu_share is None else ""
    return f"{_told_errors(served_comparison)}{unknown}"


def _told_errors(served_comparison: ServedComparison) -> str:
    lost = f"{served_comparison.lost} requests LOST that finished in simulation; " if served_comparison.lost else ""
    return f"{lost}{_told_figures(served_comparison)}"


def _told_passes(served_comparison: ServedComparison) -> str:
    """Return in words the ratio of measured to predicted seconds, of whole passes and of their parts."""
    parts = ", ".join(
        f"{words} {served_comparison.passes[part]:.2f}"
        for part, words in _PARTS.items()
        if part in served_comparison.passes
    )
    return f"took {served_comparison.passes['pass']:.2f} times their price{f' ({parts})' if parts else ''}"


def _told_figures(served_comparison: ServedComparison) -> str:
    judged = [figure for figure in served_comparison.figures if figure.judged]
    beyond = [figure.what for figure in judged if not _within(figure, served_comparison.tolerance)]
    if beyond:
        terms = f": passes {_told_passes(served_comparison)}" if "pass" in served_comparison.passes else ""
        return f"{', '.join(beyond)} BEYOND {served_comparison.tolerance:.1%}{terms}"
    worst = max((abs(figure.error) for figure in judged if figure.error is not None), default=0.0)
    return f"{len(judged)} figures within {served_comparison.tolerance:.1%}, the largest error {worst:.1%}"
