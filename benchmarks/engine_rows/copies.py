"""The rate at which prompts bring weights from memory that is not pinned, by rows whose prompts are bound by it."""

import re
from collections.abc import Iterable
from math import exp, log
from statistics import mean, stdev
from typing import Any

from benchmarks.strangers.answers import planned
from benchmarks.strangers.rows import OpenRow, UnansweredError
from helmsman.lowering.task_names import read_name


def copy_rate(rows: Iterable[OpenRow], pattern: str) -> dict[str, Any] | None:
    """Return the bytes/s at which prompts bring weights from memory that is not pinned, in rows whose prompts are bound
    by that: the geometric mean of their sources', its standard deviation as a logarithm, and the rows; None where no
    row is. Rows that are faster than the link did not bring them."""
    rates: dict[str, list[float]] = {}
    numbers = list[int]()
    for row in rows:
        if not re.search(pattern, row.engine) or row.count("prompt_tokens") is None:
            continue
        speed = row.speed("prefill_tps")
        try:
            plan = planned(row)
        except UnansweredError:
            continue
        terms, link = plan.predicted.prefill.terms, plan.hardware.link("dram", "vram")
        weights = [term for term in terms if read_name(term.op).payload == "weights"]
        brought = sum(term.bytes for term in weights if link and term.resource == link.name)
        rest = sum(t.seconds.mid for t in terms if link and t.resource != link.name)
        if not speed or link is None or brought < _LEAST_BROUGHT:
            continue
        seconds = plan.workload.new_tokens / speed
        rate = brought / max(1e-9, seconds - rest)
        if rest < _MOST_BESIDE * seconds and rate < 1.05 * link.bandwidth.value:
            rates.setdefault(row.source, []).append(log(rate))
            numbers.append(row.number)
    means = [mean(of) for of in rates.values()]
    if len(means) < 2:
        return None
    return {"rate": float(f"{exp(mean(means)):.3g}"), "sd": float(f"{stdev(means):.2g}"), "of": numbers}


_LEAST_BROUGHT = 5e10
"""Bytes that a prompt brings, at least, for its speed to be that of copies."""
_MOST_BESIDE = 0.35
"""Part of a prompt's seconds that may be other than copies."""
