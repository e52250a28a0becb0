"""Reads the output of a measuring command as seconds by figure."""

import json

from helmsman.gate.processes import last_line
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.read import parse_document, parse_json
from helmsman.schemas.run_report import RunReport

SECONDS = "seconds"
"""The figure of a command that prints one number."""
_LONGEST_S = 1e9
_LONGEST_NAME = 200


def figures_in(output: str, output_tokens: int, file: str, field: str) -> dict[str, float]:
    """Return the seconds that a command printed: an object of numbers, a document of `helm-run`, or a number in the
    last line. `output_tokens`: of the plan; `file`, `field`: where the command is asked for, for errors.

    Raises BadInputError where there is nothing of these, or a number that is no time."""
    content = _content(output, file)
    if isinstance(content, dict) and content.get("schema") == RunReport.model_fields["schema_id"].default:
        return run_figures(parse_document(RunReport, output.encode(), "the command's output"), output_tokens)
    named: dict[str, object] = content if isinstance(content, dict) else {SECONDS: content}
    if not named:
        raise BadInputError("the command prints no figure", file=file, field=field, remedy="print one")
    return {figure: _seconds(figure, value, file, field) for figure, value in named.items()}


def run_figures(report: RunReport, output_tokens: int) -> dict[str, float]:
    """Return the figures of runs in one process, the median of each; `output_tokens`: made in each run."""
    if report.tpot_s is None:
        return {"ttft": report.ttft_s, "request": report.ttft_s}
    request = report.ttft_s + (output_tokens - 1) * report.tpot_s
    return {"ttft": report.ttft_s, "step": report.tpot_s, "request": request}


def _seconds(figure: str, value: object, file: str, field: str) -> float:
    if not (figure.isprintable() and 0 < len(figure) <= _LONGEST_NAME):
        remedy = f"use up to {_LONGEST_NAME} printable characters"
        raise BadInputError("not a name of a figure", file=file, field=field, value=figure, remedy=remedy)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0.0 < value <= _LONGEST_S:
        return float(value)
    message = "the command prints no time" + ("" if figure == SECONDS else f" for {figure}")
    remedy = 'print a number of seconds, or an object of some: {"step": 0.021}'
    raise BadInputError(message, file=file, field=field, value=value, remedy=remedy)


def _content(output: str, file: str) -> object:
    """Return the JSON value that was printed, or the number in the last line, or that line itself."""
    if output.lstrip().startswith("{"):
        return parse_json(output.encode(), f"{file}: the command's output")
    line = last_line(output)
    try:
        return json.loads(line)
    except ValueError:
        return line
