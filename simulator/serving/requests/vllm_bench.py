"""Reads what `vllm bench serve --save-result --save-detailed` wrote: lengths of requests, and when they were sent."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from helmsman.schemas.errors import BadInputError
from helmsman.schemas.requests import Floats, Ints, Place, Requests, make_requests
from helmsman.simulator.serving.requests.objects import numbers, whole_numbers

NAMES = {"arrival_s": "start_times", "prompt_tokens": "input_lens", "output_tokens": "output_lens"}


@dataclass(frozen=True, slots=True)
class AnsweredRows:
    """Requests with an output, as they were sent: `row` in the file's lists, seconds after the first, and lengths."""

    row: Ints
    sent_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints


def answered_rows(content: dict[str, Any], file: str) -> AnsweredRows:
    """Return those that got an output, by `start_times`; all at once in older files, which lack them. Raises
    BadInputError."""
    prompt, output = (whole_numbers(_list(content, name, file), file, name) for name in ("input_lens", "output_lens"))
    sent = numbers(content["start_times"], file, "start_times") if "start_times" in content else np.zeros(len(prompt))
    if not len(prompt) == len(output) == len(sent):
        lengths = f"{len(prompt)}, {len(output)}, {len(sent)}"
        message = f"input_lens, output_lens and start_times have {lengths} values"
        raise BadInputError(message, file=file, remedy="write as many of each")
    came = output > 0
    row = np.flatnonzero(came)[np.argsort(sent[came], kind="stable")]
    return AnsweredRows(row, sent[row] - sent[row[:1]], prompt[row], output[row])


def read_vllm_bench(content: dict[str, Any], path: Path) -> tuple[Requests, Place]:
    """Return requests that got an output: nobody knows how long the others' would have been. Raises BadInputError."""
    rows = answered_rows(content, str(path))
    return make_requests(rows.sent_s, rows.prompt_tokens, rows.output_tokens), Place(str(path), NAMES)


def _list(content: dict[str, Any], name: str, file: str) -> Any:
    if name not in content:
        remedy = "run vllm bench serve with --save-result --save-detailed"
        raise BadInputError("missing: lengths of single requests", file=file, field=name, remedy=remedy)
    return content[name]
