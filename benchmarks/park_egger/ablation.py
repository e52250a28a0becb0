"""Fig 19 and 20: what dividing Scores gains end to end, also with less or other cache (PARK-65, 66)."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from benchmarks.park_egger.answer import Lacks, Row, answer, row
from benchmarks.park_egger.question import CHUNKS, OUTPUTS, Question
from benchmarks.park_egger.study import Found, Study
from helmsman.schemas.cache_use import PARTIAL, PLAIN, CacheUse

SHAPES = ((1, 50, False), (1, 50, True), (1, 100, True), (4, 10, False), (4, 25, True), (4, 60, True))
"""Batches, sequences of each, compressed."""
DIVIDED = ("gpu-only", "whole operations", "Scores in 8")
VARIANTS = {
    "plain": PLAIN,
    "InfiniGen": CacheUse(keep=0.2, select=PARTIAL),
    "ASC": CacheUse(holds="activations"),
}
"""20 % of the tokens as InfiniGen's own evaluation; cached activations with reordered operations."""


def study() -> Study:
    """GPU-only, op-split with whole operations, op-split with Scores in 8 chunks."""
    rows = tuple(_divided())
    notes = (
        "With two split points the search needs chunks less often than with one: both ends of a layer balance "
        "(E-PARK-07).",
    )
    return Study("19", "OPT-30B, operation splits in end-to-end latency", rows, (), notes)


def _divided() -> Iterator[Row]:
    for (batches, batch, compressed), output in product(SHAPES, OUTPUTS):
        asked = Question(batches=batches, batch=batch, output=output, compressed=compressed)
        yield row(asked, "gpu-only", answer(asked, "gpu-only"))
        for name, chunks in zip(DIVIDED[1:], (1, CHUNKS), strict=True):
            yield row(asked, name, answer(replace(asked, chunks=chunks), "op-split"))


def variants() -> Study:
    """Fig 20: latency of both methods under each use of the cache."""
    found = tuple(_varied())
    best = {c: max(_reductions(found, c), default=float("nan")) for c in (False, True)}
    notes = (
        "The text of 5.6 is not in the copy at hand; neither method's latencies are published per operation: tables of "
        "variants are derived by work. Both methods are applied to GPU-only too; latency of whole runs.",
    )
    facts = (Found("PARK-F131", 100 * best[False]), Found("PARK-F132", 100 * best[True]))
    return Study("20", "OPT-30B with cache selection or cached activations", found, facts, notes)


def _varied() -> Iterator[Row]:
    for compressed, (name, use), output in product((False, True), VARIANTS.items(), OUTPUTS):
        asked = Question(output=output, compressed=compressed, cache=use)
        for method in ("op-split", "gpu-only"):
            run = answer(asked, "op-split" if method == "op-split" else "gpu-only")
            yield {"cache": name, **row(asked, method, run), "seconds": None if isinstance(run, Lacks) else run.seconds}


def _reductions(rows: tuple[Row, ...], compressed: bool) -> Iterator[float]:
    for ours, theirs in zip(rows[::2], rows[1::2], strict=True):
        mine, other = ours["seconds"], theirs["seconds"]
        wanted = ours["compressed"] is compressed and ours["cache"] != "plain"
        if wanted and isinstance(mine, float) and isinstance(other, float):
            yield 1 - mine / other
