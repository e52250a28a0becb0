"""Park & Egger (2026): the studies of `benchmarks.park_egger`, with its own tables and pictures."""

from collections.abc import Callable, Iterator

from benchmarks.papers.figure import Figure, Result, Traces
from benchmarks.park_egger.plots import draw
from benchmarks.park_egger.studies import STUDIES
from benchmarks.park_egger.study import Study, compared, published

_SHOWN = {
    "13": "Fig 13: caches kept as attention reads them, or turned",
    "14": "Fig 14: one split point, whole operations and Scores in 8 chunks",
    "15": "Fig 15: throughput and latency of four methods, OPT-30B",
    "16": "Fig 16: the same, models with fewer KV heads",
    "17": "Fig 17: weights on NVMe",
    "18": "Fig 18: what works at the same time",
    "19": "Fig 19: dividing Scores, end to end",
    "20": "Fig 20: cache selection and cached activations",
    "limits": "largest batches (5.4)",
    "sensitivity": "gain over the bandwidth of the link",
}
"""All that is simulated; Table 2 and numerics are executed on this machine: `python -m benchmarks.park_egger`."""


def figures() -> Iterator[Figure]:
    """One entry a study."""
    for name, title in _SHOWN.items():
        yield Figure(f"park-{name}", title, _make(STUDIES[name]))


def _make(study: Callable[[], Study]) -> Callable[[Traces], Result]:
    def make(traces: Traces) -> Result:
        done = study()
        pictures = tuple((f"park-{name}", figure) for name, figure in draw(done))
        return Result(done.rows, tuple(compared(done, published(None))), done.notes, pictures)

    return make
