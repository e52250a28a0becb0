"""HelmGraph: a captured pass as plain data, every node with shapes, types, FLOPs and bytes (HELM-47, section 4.1.1).

FLOPs are counted as `lowering.ops` does: products and biases, four per normed value, three per rotated value, sums of
embeddings. Activation functions, residual additions, softmax and what is one number per row are left out."""

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import Bytes, Count, Frozen, Index

if TYPE_CHECKING:
    import networkx as nx

NodeKind = Literal[
    "input", "weight", "constant", "lookup", "linear", "norm", "rotation", "append", "attention", "other"
]


class Node(Frozen):
    """One node. `target`: the operation torch runs, or what an input or attribute is called; `module`: whose it is;
    `unit`: partition unit; `inputs`: names of the nodes it reads; `shape`, `dtype`: of its result.

    `weight_bytes`: parameters it reads (a lookup: its rows); `kv_read`, `kv_write`: bytes of caches; `out_bytes`: of
    its result. `positional`: it follows from positions and constants alone, so any stage may make it itself."""

    name: str
    kind: NodeKind
    target: str
    module: str
    unit: Index
    inputs: tuple[str, ...]
    shape: tuple[Index, ...]
    dtype: str
    flops: Annotated[int, Field(ge=0, le=10**24)] = 0
    weight_bytes: Bytes = 0
    kv_read: Bytes = 0
    kv_write: Bytes = 0
    out_bytes: Bytes = 0
    positional: bool = False


class HelmGraph(Frozen):
    """The nodes of one pass in order of execution. `units`: embedding, blocks and output; `batch` sequences advance by
    `tokens` and hold `context` afterwards."""

    nodes: tuple[Node, ...]
    units: Count
    batch: Count
    tokens: Count
    context: Count

    def crossing(self, unit: int) -> tuple[str, ...]:
        """Return the nodes that units from `unit` on read from those before, without what follows from positions
        alone."""
        of = {node.name: node for node in self.nodes}
        later = (node for node in self.nodes if node.unit >= unit and node.inputs and not node.positional)
        read = dict.fromkeys(name for node in later for name in node.inputs)
        return tuple(name for name in read if of[name].inputs and of[name].unit < unit and not of[name].positional)

    def networkx(self) -> "nx.DiGraph[str]":
        """Return the graph as a directed one, an edge from what is read to what reads it, nodes with their facts."""
        import networkx as nx

        graph = nx.DiGraph()
        for node in self.nodes:
            graph.add_node(node.name, node=node)
            graph.add_edges_from((source, node.name) for source in node.inputs)
        return graph


def mistakes(graph: HelmGraph) -> tuple[str, ...]:
    """Return the faults of a graph: cycles, parts that nothing joins, units whose work does not follow one from the
    other through a single activation. Empty for a sound one."""
    import networkx as nx

    result, view = [], graph.networkx()
    if not nx.is_directed_acyclic_graph(view):
        result.append("it has a cycle")
    computing = view.subgraph(node.name for node in graph.nodes if node.inputs or view.out_degree(node.name))
    if not nx.is_weakly_connected(computing):
        result.append("its nodes are not all joined")
    crossings = [graph.crossing(unit) for unit in range(1, graph.units)]
    result += [
        f"{len(crossing)} activations enter unit {unit}"
        for unit, crossing in enumerate(crossings, 1)
        if len(crossing) != 1
    ]
    stream = [crossing[0] for crossing in crossings if len(crossing) == 1]
    result += [f"nothing leads from {a} to {b}" for a, b in pairwise(stream) if not nx.has_path(view, a, b)]
    return tuple(result)
