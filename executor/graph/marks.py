"""Marks in a stage: where the operations of lowering end, so that its trace has the same tasks."""

from dataclasses import dataclass

from torch import fx

from helmsman.executor.graph.ir import HelmGraph
from helmsman.executor.graph.operations import Names, operation_of
from helmsman.executor.graph.partition import GraphStage


@dataclass(frozen=True, slots=True)
class UnitMark:
    """The operations `ops` of a unit have been computed once `node` has."""

    unit: int
    ops: tuple[str, ...]
    node: fx.Node


def marks_of(stage: GraphStage, graph: HelmGraph, names: Names) -> tuple[UnitMark, ...]:
    """The marks of a stage in order; the last one stands at its end.

    What belongs to no operation (views, activation functions, sums) counts to the one that ends next."""
    nodes = {node.name: node for node in graph.nodes}
    last: dict[tuple[int, tuple[str, ...]], fx.Node] = {}
    computing = [node for node in stage.graph.nodes if node.op == "call_function" and node.name in nodes]
    for node in computing:
        ops = operation_of(nodes[node.name], names)
        if ops:
            key = nodes[node.name].unit, ops
            last.pop(key, None)
            last[key] = node
    unit_marks = [UnitMark(unit, ops, node) for (unit, ops), node in last.items()]
    return (*unit_marks[:-1], UnitMark(unit_marks[-1].unit, unit_marks[-1].ops, computing[-1]))
