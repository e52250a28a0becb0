"""Fig 17: weights from the NVMe devices straight to the GPU, with and without compression (PARK-44, 63)."""

from itertools import product

from benchmarks.park_egger.answer import Row, answer, row
from benchmarks.park_egger.question import Question
from benchmarks.park_egger.study import Study

SHAPES = ((1, 50), (1, 64), (1, 100), (4, 25), (4, 50), (4, 60), (4, 100))


def study() -> Study:
    """op-split of OPT-30B with weights in host memory only, and with storage allowed."""
    rows = tuple(
        _row(batches, batch, compressed, storage)
        for (batches, batch), compressed, storage in product(SHAPES, (False, True), (False, True))
    )
    notes = (
        "Four devices bring 4.96 GB/s together (Fig 8a, E-PARK-11): the search takes what hides behind the rest.",
        "E-PARK-17: the paper measured that storage with compression is slower, eq 10 expects a gain. How much busy "
        "devices slow the GPU is fitted to that in the record (`slows`), so these figures cannot confirm it.",
    )
    return Study("17", "OPT-30B, GPU + CPU against GPU + CPU + NVMe", rows, (), notes)


def _row(batches: int, batch: int, compressed: bool, storage: bool) -> Row:
    asked = Question(batches=batches, batch=batch, compressed=compressed, storage=storage)
    return row(asked, "op-split nvme" if storage else "op-split", answer(asked, "op-split"))
