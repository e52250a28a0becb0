"""Where the routed experts of a layer live and compute."""

from itertools import groupby, pairwise
from operator import itemgetter
from typing import NamedTuple

from helmsman.lowering.placement import KnownPlan
from helmsman.lowering.rules import homes, places
from helmsman.lowering.tensors import block_tensors
from helmsman.scheduler.iteration import Phase


class ExpertPlace(NamedTuple):
    """Neighbouring experts of a layer that are placed alike: their number, the device that computes them, and whether
    their weights live elsewhere and come when they are used."""

    number: int
    device: str
    streamed: bool


def expert_places(placed: KnownPlan, layer: int, phase: Phase) -> tuple[ExpertPlace, ...]:
    """Return the places of a layer's experts in order; none of a layer without experts.

    The matrices of an expert may live apart (an engine moves tensors one by one): the last of the three decides, and
    the experts are streamed where any of them is."""
    tensors = [tensor for tensor in block_tensors(placed.model, layer) if tensor.stacked and len(tensor.shape) > 2]
    if not tensors:
        return ()
    last = tensors[-1]
    devices = [
        (piece.start, piece.stop, piece.rule.device)
        for piece in places(placed, last.op, layer, phase, last.shape[0], "experts")
    ]
    kept = [
        (piece.start, piece.stop, (piece.rule.memory, *piece.rule.replicas))
        for tensor in tensors
        for piece in homes(placed, tensor)
    ]
    cuts = sorted({start for start, _, _ in (*devices, *kept)} | {last.shape[0]})
    parts = []
    for start, stop in pairwise(cuts):
        device = next(name for begin, end, name in devices if begin <= start < end)
        near = placed.hardware.device(device).memory
        streamed = any(near not in memories for begin, end, memories in kept if begin <= start < end)
        parts.append((stop - start, device, streamed))
    return tuple(
        ExpertPlace(sum(count for count, _, _ in alike), device, streamed)
        for (device, streamed), alike in groupby(parts, key=itemgetter(1, 2))
    )
