"""The report of helm-run: tokens, text and times of measured runs, as a document and as lines for people."""

from collections.abc import Sequence
from statistics import median

from helmsman.executor.measuring.measure import Measured
from helmsman.executor.text.stopping import before_stop
from helmsman.executor.text.tokenizer import Text
from helmsman.schemas.run_report import DraftCounts, RunReport, RunTimes
from helmsman.schemas.units import format_seconds


def document(measured: Measured, text: Text | None, stops: Sequence[str] = ()) -> RunReport:
    """Return the report of runs: tokens and texts of the first one (no texts without a tokenizer; they end before the
    first of `stops`), and the times of all."""
    runs = tuple(
        RunTimes(ttft_s=run.ttft_s, tpot_s=run.tpot_s, tokens_per_second=run.tokens_per_second) for run in measured.runs
    )
    tokens = measured.runs[0].tokens
    texts = None if text is None else tuple(before_stop(text.decode(sequence), stops) for sequence in tokens)
    return RunReport(
        tokens=tokens,
        text=texts,
        ttft_s=median(run.ttft_s for run in runs),
        tpot_s=_median([run.tpot_s for run in runs]),
        tokens_per_second=_median([run.tokens_per_second for run in runs]),
        runs=runs,
        drafts=_drafts(measured),
    )


def _drafts(measured: Measured) -> DraftCounts | None:
    """Return what became of drafts in all runs together; None without any."""
    runs = [(run, run.drafts) for run in measured.runs if run.drafts is not None]
    if not runs:
        return None
    return DraftCounts(
        drafted=sum(drafts.drafted for _, drafts in runs),
        accepted=sum(drafts.accepted for _, drafts in runs),
        passes=sum(len(run.iterations) - run.prompt_passes for run, _ in runs),
    )


def lines(report: RunReport, streamed: bool) -> list[str]:
    """Return the summary; the sequences too, unless they were `streamed` already."""
    sequences = report.text or [" ".join(map(str, sequence)) for sequence in report.tokens]
    result = [] if streamed else list(sequences)
    result += ["", f"TTFT      {format_seconds(report.ttft_s)}"]
    if report.tpot_s is not None:
        result += [f"TPOT      {format_seconds(report.tpot_s)}"]
    if report.tokens_per_second is not None:
        result += [f"decode    {report.tokens_per_second:.2f} tokens/s"]
    if report.drafts is not None:
        drafts = report.drafts
        share = f" ({drafts.accepted / drafts.drafted:.0%})" if drafts.drafted else ""
        result.append(f"drafts    {drafts.accepted} of {drafts.drafted} accepted{share}, {drafts.passes} decode steps")
    if len(report.runs) > 1:
        result.append(f"runs      {len(report.runs)}, medians shown")
    return result


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
