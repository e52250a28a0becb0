"""From a captured graph to HelmGraph: shapes, FLOPs and bytes of every node, computed from its tensors' shapes."""

from collections.abc import Callable
from math import prod

import torch
from torch import Tensor, fx

from helmsman.executor.graph.capture import CapturedGraph, Shape
from helmsman.executor.graph.dataflow import free_nodes
from helmsman.executor.graph.ir import HelmGraph, Node, NodeKind

_A = torch.ops.aten
_LINEAR = {_A.linear.default, _A.addmm.default, _A.mm.default, _A.matmul.default}
_PRODUCTS = {_A.matmul.default, _A.bmm.default, _A.baddbmm.default}
_NORMS = {_A.layer_norm.default, _A.rms_norm.default}
_VIEWS = {
    *(_A.view.default, _A.reshape.default, _A.expand.default, _A.unsqueeze.default, _A.squeeze.dim),
    *(_A.transpose.int, _A.permute.default, _A.slice.Tensor, _A.select.int, _A.t.default, _A.numpy_T.default),
    *(_A.to.dtype, _A.to.device, _A.to.dtype_layout, _A.type_as.default, _A.contiguous.default, _A.alias.default),
}
_NORM_FLOPS = 4


def annotate(captured: CapturedGraph) -> HelmGraph:
    """The pass as HelmGraph; a decode pass counts attention over a full cache (context = the caches' size)."""
    shape = captured.shape
    annotator = _Annotator(captured)
    nodes = tuple(annotator.node(node) for node in captured.graph.nodes if node.op != "output")
    context = shape.tokens if shape.whole else shape.context
    units = captured.units.count
    return HelmGraph(nodes=nodes, units=units, batch=shape.batch, tokens=shape.tokens, context=context)


class _Annotator:
    def __init__(self, captured: CapturedGraph) -> None:
        self._weights, self._shape = captured.weights, captured.shape
        self._free = free_nodes(captured.graph, captured.weights)
        self._rotations: set[fx.Node] = set()
        self._sums: dict[fx.Node, bool] = {}
        self._count: dict[NodeKind, Callable[[fx.Node], dict[str, int]]] = {
            "lookup": self._lookup,
            "linear": self._linear,
            "norm": self._norm,
            "rotation": lambda node: {"flops": _values(node)},
            "append": self._append,
            "attention": self._attention,
        }

    def node(self, node: fx.Node) -> Node:
        kind = self._kind(node)
        counts = self._count[kind](node) if kind in self._count else self._other(node)
        value = node.meta["val"]
        first = value if isinstance(value, Tensor) else value[0]
        return Node(
            name=node.name,
            kind=kind,
            target=str(node.target),
            module=node.meta["module"],
            unit=node.meta["unit"],
            inputs=tuple(operand.name for operand in node.all_input_nodes),
            shape=tuple(first.shape),
            dtype=str(first.dtype).removeprefix("torch."),
            out_bytes=_size(value),
            positional=node in self._free,
            **counts,
        )

    def _kind(self, node: fx.Node) -> NodeKind:
        if node.op == "placeholder":
            return "input"
        if node.op == "get_attr":
            return "weight" if node.target in self._weights else "constant"
        if node in self._free or node.target in _VIEWS:
            return "other"
        return self._computed(node)

    def _computed(self, node: fx.Node) -> NodeKind:
        weighted = [operand for operand in node.all_input_nodes if self._weight(operand) is not None]
        if node.target == _A.embedding.default:
            return "lookup"
        if node.target in _LINEAR and weighted:
            return "linear"
        if node.target == _A.index_copy_.default:
            return "append"
        if node.target in _PRODUCTS or node.target == _A.scaled_dot_product_attention.default:
            return "attention"
        if node.target in _NORMS or node.meta["kind"].endswith("Norm"):
            return "norm"
        return "rotation" if self._rotates(node) else "other"

    def _weight(self, node: fx.Node) -> fx.Node | None:
        """The parameter that a node is, or is a view of."""
        while node.op == "call_function" and node.target in _VIEWS:
            node = node.all_input_nodes[0]
        return node if node.op == "get_attr" and node.target in self._weights else None

    def _rotates(self, node: fx.Node) -> bool:
        """x cos + turned(x) sin: products of activations and what follows from positions, and their sum."""
        operands = [operand for operand in node.all_input_nodes if operand.op == "call_function"]
        if node.meta["unit"] == 0 or len(operands) != 2:
            return False
        if node.target == _A.mul.Tensor:
            result = len([operand for operand in operands if operand in self._free]) == 1
        else:
            result = node.target == _A.add.Tensor and all(operand in self._rotations for operand in operands)
        if result:
            self._rotations.add(node)
        return result

    def _parameters(self, node: fx.Node) -> int:
        weights = dict.fromkeys(self._weight(operand) for operand in node.all_input_nodes)
        return sum(_size(weight.meta["val"]) for weight in weights if weight is not None)

    def _other(self, node: fx.Node) -> dict[str, int]:
        """The sum of token and position embeddings counts; parameters count where they are read."""
        computing = node.op == "call_function" and node.target not in _VIEWS and node not in self._free
        return {
            "flops": _values(node) if computing and self._adds_embeddings(node) else 0,
            "weight_bytes": self._parameters(node) if computing else 0,
        }

    def _adds_embeddings(self, node: fx.Node) -> bool:
        if node.meta["unit"] or node.target != _A.add.Tensor:
            return False
        return all(operand not in self._free for operand in node.all_input_nodes) and len(node.all_input_nodes) == 2

    def _lookup(self, node: fx.Node) -> dict[str, int]:
        return {"weight_bytes": _size(node.meta["val"])}

    def _linear(self, node: fx.Node) -> dict[str, int]:
        """2 m n k, and one addition per value for a bias."""
        weights = [weight for operand in node.all_input_nodes if (weight := self._weight(operand)) is not None]
        matrix = max((weight.meta["val"] for weight in weights), key=lambda value: value.ndim)
        biases = sum(weight.meta["val"].ndim == 1 for weight in weights)
        out = _values(node)
        depth = matrix.numel() // node.meta["val"].shape[-1]
        return {"flops": 2 * out * depth + biases * out, "weight_bytes": self._parameters(node)}

    def _norm(self, node: fx.Node) -> dict[str, int]:
        """Four per value: torch's own norms in one node, others spread over squares, mean and two products."""
        if node.target in _NORMS:
            flops = _NORM_FLOPS * _values(node)
        elif node.target in (_A.mean.dim, _A.var.correction):
            flops = _values(node.all_input_nodes[0])
        else:
            flops = _values(node) if node.meta["val"].shape[-1] > 1 else 0
        return {"flops": flops, "weight_bytes": self._parameters(node)}

    def _append(self, node: fx.Node) -> dict[str, int]:
        new = node.args[3]
        assert isinstance(new, fx.Node)
        return {"kv_write": _size(new.meta["val"])}

    def _attention(self, node: fx.Node) -> dict[str, int]:
        """Products of queries and keys, or weights and values; causal: each token sees its own past (eq 4.11)."""
        if node.target == _A.scaled_dot_product_attention.default:
            query, _, values = (operand.meta["val"] for operand in node.all_input_nodes[:3])
            flops = 2 * _pairs(self._shape, query) * (query.shape[-1] + values.shape[-1])
        else:
            flops = self._product(node)
        return {"flops": flops, "kv_read": sum(_cached(operand) for operand in node.all_input_nodes[:3])}

    def _product(self, node: fx.Node) -> int:
        left, right = (operand.meta["val"] for operand in node.all_input_nodes[-2:])
        dense: int = 2 * prod(left.shape) * right.shape[-1]
        rows: int = prod(left.shape[:-1])
        return dense * _pairs(self._shape, left) // (rows * _attended(self._shape))


def _attended(shape: Shape) -> int:
    return shape.tokens if shape.whole else shape.context


def _pairs(shape: Shape, rows: Tensor) -> int:
    """(query, key) pairs that a causal mask lets through, for queries `rows` (..., tokens, width)."""
    past = _attended(shape) - shape.tokens
    return prod(rows.shape[:-2]) * (shape.tokens * past + shape.tokens * (shape.tokens + 1) // 2)


def _cached(node: fx.Node) -> int:
    """Bytes of a cache that reach a node through views; the narrowest view counts."""
    least, copies = _values(node), node
    while copies.op == "call_function" and copies.target in _VIEWS:
        copies = copies.all_input_nodes[0]
        least = min(least, _values(copies))
    return least * copies.meta["val"].element_size() if copies.target == _A.index_copy_.default else 0


def _values(node: fx.Node) -> int:
    value = node.meta["val"]
    return int(value.numel()) if isinstance(value, Tensor) else 0


def _size(value: Tensor | tuple[Tensor, ...]) -> int:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    return sum(_size(part) for part in value)
