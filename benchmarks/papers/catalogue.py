"""Every figure that can be drawn, in the order of papers and of their pages."""

from itertools import chain

from benchmarks.papers import apex, gupta, helm, neo, park_egger
from benchmarks.papers.figure import Figure


def figures() -> dict[str, Figure]:
    """By name: the paper, a dash, and the number there."""
    everything = chain(helm.figures(), park_egger.figures(), gupta.figures(), neo.figures(), apex.figures())
    return {figure.name: figure for figure in everything}
