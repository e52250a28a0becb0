"""Print the models that a machine can run, in lines of a hundred columns or so."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from helmsman.schemas.fit_report import FitReport, FitRow
from helmsman.schemas.units import format_bytes, format_number, format_seconds
from helmsman.studies.fitting.purposes import PURPOSES

_WIDTH = 100
_LETTERS = 44
"""Letters of a plan's settings that are shown."""

Cells = tuple[str, ...]


def fit_text(report: FitReport, whole: bool = False) -> str:
    """Return what `helm-fit` prints: the row to take of every model and context, or with `whole` all rows."""
    shown = _all_rows(report) if whole else [report.rows[number] for number in report.best]
    contexts = len({row.context for row in report.rows}) > 1
    fast = [row for row in shown if row.meets_floor]
    slow = [row for row in shown if row.status == "fits" and not row.meets_floor]
    others = [row for row in shown if row.status != "fits"]
    sections = [list(_question(report))]
    for head, rows in (("model", fast), (f"slower than {report.floor:g} tokens/s", slow)):
        if rows:
            sections.append(list(_table(_head(head, contexts), [_fitting(row, contexts) for row in rows])))
    if others:
        sections.append(list(_table(_missing_head(contexts), [_missing(row, contexts) for row in others])))
    sections.append(list(loss_lines(report)))
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def formats_text(report: FitReport) -> str:
    """Return the table of a model's formats that `helm-plan --format best` prints, with the one to take marked."""
    best = set(report.best)
    rows = [
        (*_format(row), "<- best" if number in best and row.status == "fits" else _why_not(row))
        for number, row in enumerate(report.rows)
    ]
    head = ("format", "bits", "size", "tokens/s", "[low .. high]", "TTFT", "KL loss", "")
    return "\n".join([*_floor_lines(report), "", *_table(head, rows), "", *loss_lines(report)])


def loss_lines(report: FitReport) -> Iterator[str]:
    """Yield where the losses of a report come from."""
    if any(row.loss is None and row.status == "fits" for row in report.rows):
        yield "KL loss -    nobody published one"
    models = dict.fromkeys(loss.model for loss in report.losses)
    for model in models:
        sources = dict.fromkeys(f"{loss.source}: {loss.data}" for loss in report.losses if loss.model == model)
        text = f"KL loss      nats a token of {model}, others lose more or less ({'; '.join(sources)})"
        yield from wrap(text, _WIDTH, subsequent_indent=" " * 13)


def _all_rows(report: FitReport) -> list[FitRow]:
    """Return all rows, models in the order of the best ones."""
    models = dict.fromkeys(report.rows[number].model for number in report.best)
    return [row for model in models for row in report.rows if row.model == model]


def _question(report: FitReport) -> Iterator[str]:
    outputs = {row.output_tokens for row in report.rows}
    prompts = sorted({row.prompt_tokens for row in report.rows})
    lengths = f"{', '.join(map(str, prompts))} + {', '.join(map(str, sorted(outputs)))} tokens"
    batch = f", batch {report.batch}" if report.batch > 1 else ""
    through = "" if report.engine is None else f" through {report.engine}"
    yield f"{report.machine}: what it can run{through} for {report.purpose}, {lengths}{batch}, {report.kv_format} KV"
    yield from _floor_lines(report)


def _floor_lines(report: FitReport) -> list[str]:
    usual = PURPOSES[report.purpose].floor == report.floor
    why = f"for {report.purpose}: {report.floor_source}" if usual else report.floor_source
    return wrap(f"floor        {report.floor:g} tokens/s {why}", _WIDTH, subsequent_indent=" " * 13)


def _head(first: str, contexts: bool) -> Cells:
    context = ("context",) if contexts else ()
    return (first, "format", "bits", "size", *context, "tokens/s", "[low .. high]", "TTFT", "KL loss", "settings")


def _fitting(row: FitRow, contexts: bool) -> Cells:
    context = (str(row.context),) if contexts else ()
    fmt, bits, size, rate, interval, ttft, loss = _format(row)
    note = " (planned, not run)" if row.note else ""
    return row.model + note, fmt, bits, size, *context, rate, interval, ttft, loss, _settings(row)


def _format(row: FitRow) -> Cells:
    loss = "-" if row.loss is None else format_number(row.loss, 2)
    named = (row.format, format_number(row.bits, 3), format_bytes(row.weight_bytes))
    if row.decode_rate is None or row.decode_rate_low is None or row.decode_rate_high is None:
        return (*named, "does not fit", "", "", loss)
    rate = format_number(row.decode_rate, 3)
    interval = f"[{format_number(row.decode_rate_low, 2)} .. {format_number(row.decode_rate_high, 2)}]"
    return (*named, rate, interval, format_seconds(row.ttft_s or 0.0), loss)


def _settings(row: FitRow) -> str:
    label = row.settings or ""
    named = label if row.strategy is None or label.startswith(row.strategy) else f"{row.strategy} {label}"
    return named if len(named) <= _LETTERS else f"{named[: _LETTERS - 3]}..."


def _why_not(row: FitRow) -> str:
    return "" if row.meets_floor or row.status != "fits" else "too slow"


def _missing_head(contexts: bool) -> Cells:
    return ("does not fit", "format", "bits", "size", *(("context",) if contexts else ()), "what is missing")


def _missing(row: FitRow, contexts: bool) -> Cells:
    context = (str(row.context),) if contexts else ()
    reason = (row.missing or row.status).split("; ")[-1].removeprefix("else ")
    return row.model, row.format, format_number(row.bits, 3), format_bytes(row.weight_bytes), *context, reason


def _table(head: Cells, rows: Sequence[Cells]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
