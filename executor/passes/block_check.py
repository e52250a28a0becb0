"""Says which divisions of blocks run: latent attention whole on a device, with its cache; a router beside a shared
network with the norm before it, whose device has the hidden states that outcomes are added to."""

from collections.abc import Iterator, Sequence

from helmsman.executor.passes.phase_pass import PhasePass, carries_cache, page_links
from helmsman.lowering.bodies.experts_apart import ROUTER
from helmsman.lowering.common_attention import latent_attention
from helmsman.lowering.ops import block_index, op_extent
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import block_of
from helmsman.schemas.plan import Plan


def check_blocks(passes: Sequence[PhasePass]) -> None:
    """Raise UsageError for blocks that are divided in ways that are planned and simulated, not executed."""
    for one_pass in passes:
        _check_latent(one_pass)
        for layer, places in _places(one_pass).items():
            _check_experts(one_pass.plan, layer, places)


def _check_experts(plan: Plan, layer: int, places: dict[str, str]) -> None:
    """Raise UsageError for a sum that begins where hidden states are not."""
    router, norm = places.get(ROUTER), places.get("norm2")
    if "shared_down" in places and router is not None and norm is not None and router != norm:
        raise UsageError(
            f"{router} and {norm} share the router of block {layer} and its norm, "
            "which is planned and simulated, not executed",
            field="compute",
            value=plan.strategy.name,
            remedy="let one device compute both",
        )


def _check_latent(one_pass: PhasePass) -> None:
    plan = one_pass.plan
    latent = latent_attention(plan.model)
    if latent is None:
        return
    if any(map(carries_cache, one_pass.tasks)) or page_links(plan) or any(_divided(one_pass)):
        raise UsageError(
            "latent attention that several devices share, or whose cache moves, is planned and simulated, not executed",
            field="compute",
            value=plan.strategy.name,
            remedy="let one device compute the attention of a block and hold its cache: layer-split",
        )
    _check_rows(plan, latent.cached_width)


def _divided(one_pass: PhasePass) -> Iterator[bool]:
    """Yield whether an operation of latent attention is a part, or apart from the others of its block."""
    model, homes = one_pass.plan.model, dict[int, str]()
    for use in one_pass.uses.values():
        if use.layer is not None and block_index(model, use.layer)[use.op].half == 0:
            apart = homes.setdefault(use.layer, use.device) != use.device
            yield apart or (use.start, use.stop) != (0, op_extent(model, use.op, use.layer)[1])


def _check_rows(plan: Plan, width: int) -> None:
    short = next((rule.used for rule in plan.kv if width % block_of(rule.used)), None)
    if short is not None:
        raise UsageError(
            f"rows of {width} values, which are no whole blocks of {block_of(short)}",
            field="kv",
            value=short,
            remedy="plan with `kv_format` f32, f16 or bf16",
        )


def _places(one_pass: PhasePass) -> dict[int, dict[str, str]]:
    """Return the devices of every block's operations, by name; of parts that of the last."""
    places = dict[int, dict[str, str]]()
    for use in one_pass.uses.values():
        if use.layer is not None:
            places.setdefault(use.layer, {})[use.op] = use.device
    return places
