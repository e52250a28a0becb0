"""Fig 15, 16: throughput and latency, prefill and generation apart, four configurations, four methods (PARK-60, 61)."""

from collections.abc import Iterable, Iterator
from itertools import product

from benchmarks.park_egger.answer import Row, rows
from benchmarks.park_egger.question import METHODS, OUTPUTS, Question
from benchmarks.park_egger.study import Found, Study

SINGLE = ((1, 1), (1, 25), (1, 50), (1, 100), (1, 200))
MULTI = ((4, 10), (2, 25), (4, 25), (4, 50), (4, 60), (4, 100))
"""Batches, and sequences of each. 4x60 is the most of the paper's runtime, 4x100 of FlexGen (5.4)."""
OTHERS = ("LLaMA-3-8B", "LLaMA-2-34B")
_FEW = ((1, 1), (1, 50), (1, 200), (4, 50))

Configuration = tuple[bool, bool]
"""(several batches, compressed), in the order of 5.3."""
CONFIGURATIONS: tuple[Configuration, ...] = ((False, False), (False, True), (True, False), (True, True))

PAGEABLE = (
    "Prefill of few sequences is bound by transfers, and what the host will compute is kept plain in pageable memory: "
    "the prompt pass brings it more slowly. From 25 sequences of OPT-30B on that is hidden."
)


def questions(outputs: Iterable[int] = OUTPUTS) -> Iterator[Question]:
    """OPT-30B in every configuration, shape and length."""
    for (multi, compressed), output in product(CONFIGURATIONS, outputs):
        for batches, batch in MULTI if multi else SINGLE:
            yield Question(batches=batches, batch=batch, output=output, compressed=compressed)


def study() -> Study:
    """Fig 15, with the most that is gained over FlexGen and over GPU-only."""
    answered = tuple(rows(questions(), METHODS))
    over_flexgen = {each: most(answered, each, "flexgen") for each in CONFIGURATIONS}
    over_gpu = max(most(answered, each, "gpu-only") for each in CONFIGURATIONS)
    found = (
        *(Found(f"PARK-F122.{at}", 100 * over_flexgen[each]) for at, each in enumerate(CONFIGURATIONS)),
        Found("PARK-F133", 100 * over_gpu),
        Found("PARK-F134", 1 + max(over_flexgen.values())),
    )
    notes = (
        "Empty: no plan fits; `lacks` says what would. Gains: the largest over shapes and lengths, of whole runs.",
        "E-PARK-13: the 30 % are over GPU-only, the others over FlexGen. At which shapes the paper reached them is not "
        "in the copy at hand.",
        "One sequence is far from the table's 50: the host is nearly as fast as the link there, and gains are largest.",
        *gains(answered),
        PAGEABLE,
    )
    return Study("15", "OPT-30B, throughput and latency", answered, found, notes)


def others() -> Study:
    """Fig 16: the same of the models with fewer KV heads."""
    asked = (
        Question(model=model, batches=batches, batch=batch, compressed=compressed)
        for model, (batches, batch), compressed in product(OTHERS, _FEW, (False, True))
    )
    answered = tuple(rows(asked, METHODS))
    notes = (
        "E-PARK-14: LLaMA-2-34B was never released; CodeLlama-34B has its shape. No tables of these models are "
        "published: prices are rooflines and Fig 8a's expansion, assumed for matrices smaller than it has.",
        *gains(answered),
        PAGEABLE,
    )
    return Study("16", "GQA models, throughput and latency", answered, (), notes)


def most(answered: Iterable[Row], configuration: Configuration, method: str) -> float:
    """The largest gain of op-split's throughput over `method` in a configuration."""
    multi, compressed = configuration
    mine = [row for row in answered if row["compressed"] is compressed and _multi(row) is multi]
    return max((gain for _, gain in paired(mine, method, "tokens/s")), default=float("nan"))


def paired(answered: Iterable[Row], method: str, column: str) -> Iterator[tuple[Row, float]]:
    """Rows of op-split, and how much larger `column` is there than with `method`, where both fit."""
    kept = list(answered)
    key = ("model", "shape", "compressed", "output")
    other = {tuple(row[name] for name in key): row[column] for row in kept if row["method"] == method}
    for row in kept:
        theirs, ours = other.get(tuple(row[name] for name in key)), row[column]
        if row["method"] == "op-split" and isinstance(ours, float) and isinstance(theirs, float):
            yield row, ours / theirs - 1


def gains(answered: tuple[Row, ...]) -> Iterator[str]:
    """How prefill and generation compare with GPU-only: gains come from generation (PARK-72)."""
    for column in ("prefill s", "generation s"):
        found = sorted(gain for _, gain in paired(answered, "gpu-only", column))
        if found:
            middle = found[len(found) // 2]
            text = f"{found[0]:+.1%} to {found[-1]:+.1%}, median {middle:+.1%}"
            yield f"{column.removesuffix(' s')} against GPU-only (PARK-72): {text}"


def _multi(row: Row) -> bool:
    return not str(row["shape"]).startswith("1x")
