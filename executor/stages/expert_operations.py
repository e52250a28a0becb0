"""The operations of routed experts in a stage."""

from collections.abc import Iterator

from helmsman.executor.devices.operations import AnyOperation, ExpertsOperation, RouterOperation
from helmsman.executor.stages.block_part import BlockPart, SlotPart
from helmsman.executor.stages.network_operations import feed_forward
from helmsman.lowering.bodies.experts import EXPERT_PRODUCTS, LATENT_IN, LATENT_OUT
from helmsman.lowering.bodies.experts_apart import COMBINE
from helmsman.lowering.bodies.feed_forward import SHARED
from helmsman.lowering.cargo import rows_word
from helmsman.schemas.blocks.feed_forward import Experts

CHOICE, SHARES = "chosen", "shares"
"""The values of a router's choice: indices of experts, and their weights."""

NARROW = "experts_narrow"
"""The value that experts with an input of their own leave."""

MESSAGE, SUM = "routed", "experts_sum"
"""The values that cross where other devices compute experts: what those read, and the sum of their outcomes."""


def expert_operations(hidden: int, body: Experts, block: BlockPart, target: str = "hidden") -> Iterator[AnyOperation]:
    """Yield router, experts and the shared network; gate and up of experts are done with down. Their outcome joins the
    residual stream, or is left in `target`, where there is no shared network. Where experts are computed elsewhere
    their sum is added at the end. Experts with an input of their own have a product before and one behind them."""
    yield _router(hidden, body, block)
    if body.latent is not None:
        yield block.product(LATENT_IN, ["normed"], LATENT_IN, (body.latent, hidden))
    names = EXPERT_PRODUCTS if body.gated else EXPERT_PRODUCTS[1:]
    slots = block.part.slots(block.layer)
    if slots is not None and slots.turns:
        yield from (_member(rows_word(name, (0, slots.room.rule.slots)), block) for name in names)
    yield from (_member(name, block) for name in names[:-1])
    yield _experts(body, block, target if body.latent is None else NARROW, slots)
    if body.latent is not None:
        yield block.product(LATENT_OUT, [NARROW], target, (hidden, body.latent))
    if body.shared is not None:
        yield from _shared(hidden, body, block)
    if block.apart and _combines(block):
        yield {"kind": "combine", "name": COMBINE, "block": block.number, "inputs": [SUM], "output": "hidden"}


def _combines(block: BlockPart) -> bool:
    """Whether this device adds up what several have computed of a block's experts."""
    return block.part.has(COMBINE, block.layer)


def _away(block: BlockPart) -> bool:
    """Whether this device computes experts whose router is elsewhere."""
    return block.part.has("experts_down", block.layer) and not block.part.has("router", block.layer)


def _router(hidden: int, body: Experts, block: BlockPart) -> RouterOperation:
    router, part, layer = body.router, block.part, block.layer
    groups = router.groups
    made: RouterOperation = {
        "kind": "router",
        "name": "router",
        "block": block.number,
        "inputs": ["normed"],
        "output": "router",
        "choice": CHOICE,
        "shares": SHARES,
        "message": MESSAGE if block.apart else None,
        "sends": block.apart and _combines(block),
        "record": part.recorded_choices(layer),
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
    weight = None if router.input_norm is None else part.vector("router", "router_scale", layer)
    if router.input_norm is not None and weight is not None:
        made["inputs"] = ["hidden"]
        made["input_norm"] = {
            "norm": router.input_norm.kind,
            "eps": router.input_norm.eps,
            "weight": weight,
            "bias": None,
        }
        made["logit_scale"] = hidden**-0.5
    return made


def _member(name: str, block: BlockPart) -> AnyOperation:
    return {"kind": "member", "name": name, "block": block.number, "inputs": [], "output": name}


def _experts(body: Experts, block: BlockPart, target: str, slots: SlotPart | None) -> ExpertsOperation:
    part, layer, away = block.part, block.layer, block.apart and _away(block)
    made: ExpertsOperation = {
        "kind": "experts",
        "name": "experts_down",
        "block": block.number,
        "inputs": [MESSAGE] if away else ["normed" if body.latent is None else LATENT_IN, CHOICE, SHARES],
        "output": SUM if away else target,
        "experts": body.experts,
        "chosen": body.chosen,
        "own": part.own_experts(layer) if block.apart and slots is None else None,
        "sum": SUM if block.apart else None,
        "slots": None if slots is None else slots.room.table,
        "late": None if slots is None else slots.room.late,
        "arrived": None if slots is None else slots.room.arrived,
        "turns": slots is not None and slots.turns,
        "rows": body.width,
        "gate": part.experts("experts_gate", layer) if body.gated else None,
        "up": part.experts("experts_up", layer),
        "down": part.experts("experts_down", layer),
        "activation": body.activation,
        "limit": body.clamp,
        "input_scaled": body.input_scaled,
    }
    if body.latent is not None:
        made["width"] = body.latent
    return made


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
