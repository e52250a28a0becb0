"""Which nodes of a graph follow from positions and constants alone, and which from tokens, weights or caches."""

from collections.abc import Collection

from torch import fx


def free_nodes(graph: fx.Graph, weights: Collection[str]) -> set[fx.Node]:
    """Nodes that depend on nothing but `past` and constants: masks, rotary angles. Any stage may make them itself."""
    free: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder":
            alone = node.target == "past"
        elif node.op == "get_attr":
            alone = node.target not in weights
        else:
            alone = node.op != "output" and all(operand in free for operand in node.all_input_nodes)
        if alone:
            free.add(node)
    return free
