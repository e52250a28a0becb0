"""APEX: operator latencies, throughput, load-latency curves, and gains over output length."""

from collections.abc import Iterator

from benchmarks.papers import operators
from benchmarks.papers.chart import Chart
from benchmarks.papers.figure import Axis, Figure
from benchmarks.papers.published import APEX


def figures() -> Iterator[Figure]:
    """In the order of the paper."""
    tokens = Axis("tokens in the pass", base=2)
    linear = "APEX Fig 1a: linear layers"
    yield Chart("apex-1a", linear, tokens, Axis("ms a layer"), APEX, operators.linear).figure
    batch, attention = Axis("batch", base=2), "APEX Fig 1b: decode attention"
    yield Chart("apex-1b", attention, batch, Axis("us a layer", base=10), APEX, operators.attention).figure
