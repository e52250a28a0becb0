"""Cutting a captured graph between units into stages that run alone (HELM-43, StageFxBuild of Alg 2).

At a cut one activation is the output of the stage before and the input of the stage after. What follows from positions
alone (masks, rotary angles) is computed in every stage that uses it, by the same operations, so composing the stages
changes no bit."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor, fx

from helmsman.executor.graph.capture import CapturedGraph
from helmsman.executor.graph.dataflow import free_nodes
from helmsman.schemas.errors import BadInputError

HIDDEN = "hidden"
"""The input of every stage but the first."""


@dataclass(frozen=True)
class GraphStage:
    """Units `first` <= unit < `last` as a graph of its own.

    `inputs`: what it is called with, in order: `tokens` or `hidden`, `past` where it is used, its blocks' caches.
    `attributes`: the weights and constants it holds. `output`: a fake tensor like its result."""

    graph: fx.Graph
    first: int
    last: int
    inputs: tuple[str, ...]
    attributes: tuple[str, ...]
    output: Tensor


def cut(captured: CapturedGraph, bounds: Sequence[int]) -> tuple[GraphStage, ...]:
    """Stages [0, b0), [b0, b1), ..., [bn, units) of `captured`.

    Raises BadInputError when more than one activation crosses a cut, naming them."""
    cutter = _Cutter(captured)
    return tuple(cutter.stage(first, last) for first, last in pairwise((0, *bounds, captured.units.count)))


class _Cutter:
    def __init__(self, captured: CapturedGraph) -> None:
        self._captured = captured
        self._free = free_nodes(captured.graph, captured.weights)
        self._nodes = [node for node in captured.graph.nodes if node.op == "call_function"]
        self._end: fx.Node = captured.graph.output_node().all_input_nodes[0]

    def stage(self, first: int, last: int) -> GraphStage:
        entering = self._crossing(first) if first else None
        leaving = self._crossing(last) if last < self._captured.units.count else self._end
        own = [node for node in self._nodes if first <= node.meta["unit"] < last and node not in self._free]
        return _build(self._captured.graph, self._needed(own, entering), entering, leaving, (first, last))

    def _crossing(self, unit: int) -> fx.Node:
        """The activation that units from `unit` on read from those before."""
        later = (node for node in self._nodes if node.meta["unit"] >= unit and node not in self._free)
        read = dict.fromkeys(operand for node in later for operand in node.all_input_nodes)
        crossings = [
            node for node in read if node.op == "call_function" and node.meta["unit"] < unit and node not in self._free
        ]
        if len(crossings) != 1:
            shown = ", ".join(node.name for node in crossings) or "nothing"
            raise BadInputError(
                f"one activation must cross from unit {unit - 1} to unit {unit}, not {len(crossings)} ({shown[:160]})",
                file=self._captured.file,
                field="model_type",
                remedy="plan it on one device",
            )
        crossing: fx.Node = crossings[0]
        return crossing

    def _needed(self, own: list[fx.Node], entering: fx.Node | None) -> set[fx.Node]:
        """A stage's own nodes and all that they read, but for what enters."""
        needed, open_ones = set(own), list(own)
        while open_ones:
            for operand in open_ones.pop().all_input_nodes:
                if operand is not entering and operand not in needed:
                    needed.add(operand)
                    open_ones.append(operand)
        return needed


def _build(
    whole: fx.Graph, needed: set[fx.Node], entering: fx.Node | None, leaving: fx.Node, units: tuple[int, int]
) -> GraphStage:
    graph, of = fx.Graph(), dict[fx.Node, fx.Node]()
    if entering is not None:
        of[entering] = graph.placeholder(HIDDEN)
        of[entering].meta = {**entering.meta, "unit": units[0], "module": ""}
    for node in whole.nodes:
        if node in needed:
            of[node] = graph.node_copy(node, of.__getitem__)
    graph.output(of[leaving])
    inputs = tuple(str(node.target) for node in graph.nodes if node.op == "placeholder")
    attributes = tuple(str(node.target) for node in graph.nodes if node.op == "get_attr")
    return GraphStage(graph, *units, inputs, attributes, leaving.meta["val"])
