"""Pipeline parallelism: equal accelerators hold layers that follow each other, each at work on another micro-batch.

A pass of such a replica is a round (APEX-39): the requests are N micro-batches over N stages, and each of them goes
through all stages. In a round a stage works for all micro-batches in turn, and a micro-batch goes through all layers
and all hops in turn: whichever takes longer is the round, N slots in each of which a stage works for one of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from helmsman.lowering.placement import Placement
from helmsman.lowering.rules import residence
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import embedding_tensors, output_tensors
from helmsman.planner.cost.model import CostModel
from helmsman.planner.serving.tensor_parallel import moved
from helmsman.scheduler.cost import IterationCost, Line
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import size_of
from helmsman.schemas.hardware import Device
from helmsman.schemas.model import Model

FIELD = "pipeline_parallel"
_TOKEN_BYTES = 4


def stage_layers(model: Model, stages: int) -> tuple[int, ...]:
    """Layers by stage, as even as can be; the last, which has the head, is none of the longer ones.

    Raises UsageError where there are more stages than layers."""
    if stages > model.layers:
        remedy = f"{model.name} has {model.layers} layers: use as many at most"
        raise UsageError("a stage without a layer", field=FIELD, value=stages, remedy=remedy)
    fewest, more = divmod(model.layers, stages)
    return tuple(fewest + (stage < more) for stage in range(stages))


def elsewhere_bytes(plan: Placement, stage: int, stages: int) -> int:
    """Bytes of weights of `plan` that other stages hold of its ends: the embedding is the first stage's, final norm and
    head are the last one's, and both have the table that they share."""
    first, last = stage == 0, stage == stages - 1
    outputs = output_tensors(plan.model)
    tied = any(tensor.tied_to is not None for tensor in outputs)
    embedding = 0 if first or (last and tied) else _bytes(plan, embedding_tensors(plan.model))
    return embedding + (0 if last else _bytes(plan, outputs))


def _bytes(plan: Placement, tensors: tuple[Tensor, ...]) -> int:
    return sum(tensor.size(residence(plan, tensor).format) for tensor in tensors if tensor.tied_to is None)


@dataclass(frozen=True)
class Hops:
    """The seconds that micro-batches take from stage to stage, over links of their own or through host memory: hidden
    states, and tokens back to the first one. `stages`: the first accelerator of each; others send their parts
    meanwhile."""

    costs: CostModel
    stages: tuple[Device, ...]
    plan: Placement

    def __call__(self, tokens: int) -> float:
        """Seconds of all hops of a micro-batch of so many tokens in one round."""
        hidden = size_of(tokens * self.plan.model.hidden, self.plan.activations)
        memories = [device.memory for device in self.stages]
        there = sum(moved(self.costs, here, there, hidden) for here, there in pairwise(memories))
        return there + moved(self.costs, memories[-1], memories[0], _TOKEN_BYTES * tokens)


def in_rounds(cost: IterationCost, layers: tuple[int, ...], hops: Callable[[int], float]) -> IterationCost:
    """The cost of rounds over stages of so many `layers`, from that of one micro-batch on one accelerator.

    Micro-batches are alike: each has an Nth of the work, at least one row. A round is N times the longest stage, the
    ends included as far as the last stage has not fewer layers for them, and hops as far as shorter stages do not wait
    in any case. Attention on the host is of all micro-batches, since the host is one, and so are its joins; links are
    one accelerator's."""
    count, longest = len(layers), layers[0]
    spare, less = count * longest - cost.layers, longest - layers[-1]

    def linear(tokens: float) -> float:
        alone = cost.linear(tokens)
        return (count * longest * alone + max(0.0, hops(round(tokens)) - spare * alone)) / cost.layers

    def ends(sequences: float) -> float:
        return count * max(0.0, cost.ends(sequences) - less * cost.linear(sequences))

    def spread(line: Line) -> Line:
        return _over(line, count).scaled(count * longest / cost.layers)

    rows = cost.linear.x[1:]
    return replace(
        cost,
        linear=_rising((0.0, 1.0, *(count * row for row in rows)), (0.0, linear(1), *map(linear, rows))),
        gpu_attention=spread(cost.gpu_attention),
        prefill_compute=spread(cost.prefill_compute),
        prefill_read=spread(cost.prefill_read),
        ends=_rising(_over(cost.ends, count).x, tuple(map(ends, cost.ends.x))),
        gpu_request=cost.gpu_request * longest / cost.layers,
        join_device=cost.join_device * count * longest / cost.layers,
        join_host=cost.join_host * count,
        stages=count,
    )


def _over(line: Line, parts: int) -> Line:
    """Return the line of one of `parts` equal parts."""
    return Line(tuple(parts * things for things in line.x), line.y)


def _rising(x: tuple[float, ...], y: tuple[float, ...]) -> Line:
    return Line(x, tuple(accumulate(y, max)))
