"""From a stage to a module on a device: its tensors in place, its constants made there, marks where operations end."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, fx
from torch.fx.node import Argument, map_aggregate

from helmsman.executor.graph.partition import GraphStage


def build(
    stage: GraphStage,
    tensors: Mapping[str, Tensor],
    device: torch.device,
    marks: Mapping[fx.Node, Callable[[], None]] | None = None,
) -> fx.GraphModule:
    """A module with `tensors` (by attribute, on `device`) as its weights and constants; it takes `stage.inputs`.

    `marks`: by node, what is called once it has been computed."""
    graph, of = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in stage.graph.nodes:
        of[node] = graph.node_copy(node, of.__getitem__)
        placed = map_aggregate((of[node].args, of[node].kwargs), lambda arg: _placed(arg, device))
        of[node].args, of[node].kwargs = placed
        if marks and node in marks:
            graph.call_function(marks[node])
    return fx.GraphModule({name: tensors[name] for name in stage.attributes}, graph, "GraphStage")


def _placed(value: Argument, device: torch.device) -> Argument:
    return device if isinstance(value, torch.device) else value
