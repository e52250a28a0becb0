"""How the gain of overlapping depends on the interconnect (PARK-68): faster shrinks it, slower grows it."""

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.park_egger.answer import Lacks, Row, answer
from benchmarks.park_egger.question import Question
from benchmarks.park_egger.study import Study

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Times the paper's PCIe Gen4 x16."""


def study() -> Study:
    """op-split and GPU-only of 1x50, plain and compressed, over link bandwidths."""
    rows = tuple(line for compressed in (False, True) for line in curve(Question(compressed=compressed)))
    notes = (
        "gain: seconds of generation saved against GPU-only. Compressed, the accelerator's expansion binds, not the "
        "link: the curve is flat where it does.",
    )
    return Study("sensitivity", "OPT-30B 1x50, bandwidth of the link", rows, (), notes)


def curve(asked: Question, factors: tuple[float, ...] = FACTORS) -> Iterator[Row]:
    """A row for each bandwidth; both methods must fit."""
    for factor in factors:
        question = replace(asked, faster=factor)
        ours, theirs = answer(question, "op-split"), answer(question, "gpu-only")
        if not isinstance(ours, Lacks) and not isinstance(theirs, Lacks):
            yield {
                "compressed": asked.compressed,
                "link": factor,
                "op-split s": ours.generation,
                "gpu-only s": theirs.generation,
                "gain": 1 - ours.generation / theirs.generation,
                "plan": ours.label,
            }
