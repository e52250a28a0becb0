"""A figure said in a few lines: title, axes, facts, and the function that makes its series."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.papers.draw import draw
from benchmarks.papers.figure import Axis, Drawing, Fact, Figure, Kind, Result, Traces, compare, tidy


@dataclass(frozen=True, slots=True)
class Chart:
    """Panels of lines or bars over the same axes."""

    name: str
    title: str
    x: Axis
    y: Axis
    facts: Mapping[str, Fact]
    data: Callable[[Traces], Drawing]
    kind: Kind = "lines"
    traces: tuple[str, ...] = ()

    @property
    def figure(self) -> Figure:
        """As an entry of the list."""
        return Figure(self.name, self.title, self.make, self.traces)

    def make(self, traces: Traces) -> Result:
        """Compute and draw."""
        drawing = self.data(traces)
        picture = draw(drawing, self.title, (self.x, self.y), self.kind, self.facts)
        compared = tuple(compare(drawing.found, self.facts))
        return Result(tuple(tidy(drawing.series)), compared, drawing.notes, ((self.name, picture),))
