"""The report of helm-run: tokens, text and times of measured runs, as a document and as lines for people."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from helmsman.executor.measuring.measure import Measured
from helmsman.executor.passes.generation import Generation
from helmsman.executor.text.stopping import before_stop
from helmsman.executor.text.tokenizer import Text
from helmsman.schemas.units import format_seconds


def document(measured: Measured, text: Text | None, stops: Sequence[str] = ()) -> dict[str, Any]:
    """Tokens and text of the first run (text is null without a tokenizer, and ends before the first of `stops`), and
    the times of all runs.

    `ttft_s`, `tpot_s`, `tokens_per_second` are medians; the last two are null where one token was made, the
    last also where the clock stood still over the others."""
    runs = [_figures(run) for run in measured.runs]
    tokens = [list(sequence) for sequence in measured.runs[0].tokens]
    texts = None if text is None else [before_stop(text.decode(sequence), stops) for sequence in tokens]
    medians = {name: _median([run[name] for run in runs]) for name in runs[0]}
    return {"tokens": tokens, "text": texts, **medians, "runs": runs}


def lines(measured: Measured, text: Text | None, streamed: bool, stops: Sequence[str] = ()) -> list[str]:
    """The summary; the sequences too, unless they were `streamed` already."""
    told = document(measured, text, stops)
    sequences = told["text"] or [" ".join(map(str, sequence)) for sequence in told["tokens"]]
    result = [] if streamed else list(sequences)
    result += ["", f"TTFT      {format_seconds(told['ttft_s'])}"]
    if told["tpot_s"] is not None:
        result += [f"TPOT      {format_seconds(told['tpot_s'])}"]
    if told["tokens_per_second"] is not None:
        result += [f"decode    {told['tokens_per_second']:.2f} tokens/s"]
    if len(measured.runs) > 1:
        result.append(f"runs      {len(measured.runs)}, medians shown")
    return result


def _figures(run: Generation) -> dict[str, float | None]:
    return {"ttft_s": run.ttft_s, "tpot_s": run.tpot_s, "tokens_per_second": run.tokens_per_second}


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
