"""A HelmGraph's costs by operation, under the names that lowering gives them (HELM-10..16)."""

from collections.abc import Mapping
from dataclasses import dataclass

from helmsman.executor.graph.ir import HelmGraph, Node

Names = Mapping[str, tuple[str, ...]]
"""By module path, the operations it computes."""


@dataclass(frozen=True, slots=True)
class Cost:
    """One operation, or several whose projections are one matrix. `weight_bytes`, `kv_read`: what it reads beside
    activations; `kv_write`: what it adds to caches; `out_bytes`: of its result (0 for `append`, whose
    results are caches)."""

    ops: tuple[str, ...]
    unit: int
    flops: int
    weight_bytes: int
    kv_read: int
    kv_write: int
    out_bytes: int


def operation_of(node: Node, names: Names) -> tuple[str, ...]:
    """The operations that a node is part of; empty for what belongs to none (views, activation functions, sums).

    A module that `names` does not know is called by its path."""
    if node.positional or not node.inputs:
        return ()
    if node.kind == "attention":
        return ("attention",)
    if node.kind in ("append", "rotation"):
        return ("append",)
    if node.unit == 0 and (node.kind == "lookup" or node.flops):
        return ("embedding",)
    if node.kind in ("linear", "norm"):
        return names.get(node.module, (node.module,))
    return ()


def costs(graph: HelmGraph, names: Names) -> tuple[Cost, ...]:
    """The graph's operations in order of their first node."""
    groups: dict[tuple[int, tuple[str, ...]], list[Node]] = {}
    for node in graph.nodes:
        ops = operation_of(node, names)
        if ops:
            groups.setdefault((node.unit, ops), []).append(node)
    return tuple(_cost(ops, unit, nodes) for (unit, ops), nodes in groups.items())


def _cost(ops: tuple[str, ...], unit: int, nodes: list[Node]) -> Cost:
    return Cost(
        ops=ops,
        unit=unit,
        flops=sum(node.flops for node in nodes),
        weight_bytes=sum(node.weight_bytes for node in nodes),
        kv_read=sum(node.kv_read for node in nodes),
        kv_write=sum(node.kv_write for node in nodes),
        out_bytes=0 if ops == ("append",) else nodes[-1].out_bytes,
    )
