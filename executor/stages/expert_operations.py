"""The operations of routed experts in a stage."""

from collections.abc import Iterator

from helmsman.executor.devices.operations import AnyOperation, RouterOperation
from helmsman.executor.stages.block_part import BlockPart
from helmsman.executor.stages.network_operations import feed_forward
from helmsman.lowering.bodies.feed_forward import SHARED
from helmsman.schemas.blocks.feed_forward import Experts

CHOICE, SHARES = "chosen", "shares"
"""The values of a router's choice: indices of experts, and their weights."""


def expert_operations(hidden: int, body: Experts, block: BlockPart) -> Iterator[AnyOperation]:
    """Yield router, experts and the shared network; gate and up of experts are done with down."""
    yield _router(body, block)
    if body.gated:
        yield _member("experts_gate", block)
    yield _member("experts_up", block)
    yield _experts(body, block)
    if body.shared is not None:
        yield from _shared(hidden, body, block)


def _router(body: Experts, block: BlockPart) -> RouterOperation:
    router, part, layer = body.router, block.part, block.layer
    groups = router.groups
    return {
        "kind": "router",
        "name": "router",
        "block": block.number,
        "inputs": ["normed"],
        "output": "router",
        "choice": CHOICE,
        "shares": SHARES,
        "matrix": part.linear("router", layer),
        "experts": body.experts,
        "chosen": body.chosen,
        "score": router.score,
        "weights": router.weights,
        "normalised": router.normalised,
        "eps": router.normalise_eps,
        "scaling": router.scaling,
        "correction": part.vector("router", "correction", layer) if router.correction else None,
        "expert_scale": part.vector("router", "expert_scale", layer) if router.expert_scale else None,
        "groups": 0 if groups is None else groups.count,
        "kept": 0 if groups is None else groups.kept,
        "by": "best" if groups is None else groups.by,
    }


def _member(name: str, block: BlockPart) -> AnyOperation:
    return {"kind": "member", "name": name, "block": block.number, "inputs": [], "output": name}


def _experts(body: Experts, block: BlockPart) -> AnyOperation:
    part, layer = block.part, block.layer
    return {
        "kind": "experts",
        "name": "experts_down",
        "block": block.number,
        "inputs": ["normed", CHOICE, SHARES],
        "output": "hidden",
        "experts": body.experts,
        "chosen": body.chosen,
        "rows": body.width,
        "gate": part.experts("experts_gate", layer) if body.gated else None,
        "up": part.experts("experts_up", layer),
        "down": part.experts("experts_down", layer),
        "activation": body.activation,
        "limit": body.clamp,
        "input_scaled": body.input_scaled,
    }


def _shared(hidden: int, body: Experts, block: BlockPart) -> Iterator[AnyOperation]:
    """Yield the network that all tokens go through; its gate of one row multiplies what goes into its last matrix."""
    assert body.shared is not None
    *before, down = feed_forward(hidden, body.shared, block, SHARED)
    yield from before
    if body.shared_gate:
        yield {
            "kind": "row-gate",
            "name": f"{SHARED}scale",
            "block": block.number,
            "inputs": ["normed", f"{SHARED}up"],
            "output": f"{SHARED}scale",
            "rows": body.shared.width,
            "matrix": block.part.linear(f"{SHARED}scale", block.layer),
        }
    yield down
