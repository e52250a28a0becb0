"""Says which divisions of blocks run: latent attention, recurrent mixers and attention with gates whole on a device,
with what they keep; a router beside a shared network with the norm before it, whose device has the hidden states that
outcomes are added to."""

from collections.abc import Iterator, Sequence

from helmsman.executor.passes.phase_pass import DeviceUse, PhasePass, carries_cache, page_links
from helmsman.executor.passes.shared_check import check_shared
from helmsman.lowering.bodies.experts_apart import ROUTER
from helmsman.lowering.common_attention import latent_of
from helmsman.lowering.layer_cache import STATE_OPS, state_of
from helmsman.lowering.ops import block_index, op_extent
from helmsman.lowering.tensor import CONVOLUTIONS
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import block_of
from helmsman.schemas.plan import Plan

STATEFUL = frozenset((*STATE_OPS.values(), *CONVOLUTIONS))
"""Operations that keep something of every sequence."""


def check_blocks(passes: Sequence[PhasePass]) -> None:
    """Raise UsageError for blocks that are divided in ways that are planned and simulated, not executed."""
    _check_states(passes)
    check_shared(passes)
    for one_pass in passes:
        _check_latent(one_pass)
        _check_whole_mixers(one_pass)
        for layer, places in _places(one_pass).items():
            _check_experts(one_pass.plan, layer, places)


def _check_states(passes: Sequence[PhasePass]) -> None:
    """Raise UsageError for a state that would be in another memory in prompts than in decode steps."""
    plan = passes[0].plan
    memory_of = {device.name: device.memory for device in plan.hardware.devices}
    homes: dict[tuple[str, int, int], str] = {}
    for one_pass in passes:
        for index, use in one_pass.uses.items():
            if use.layer is None or use.op not in STATEFUL:
                continue
            key = use.op, use.layer, one_pass.tasks[index].batch
            home = homes.setdefault(key, memory_of[use.device])
            if home != memory_of[use.device]:
                raise UsageError(
                    f"states of block {use.layer} would be in {home} in one phase and in {memory_of[use.device]} "
                    "in the other, which is planned and simulated, not executed",
                    field="compute",
                    value=use.device,
                    remedy="let one device compute a mixer with states in both phases",
                )


def _check_whole_mixers(one_pass: PhasePass) -> None:
    """Raise UsageError for a mixer with states, or attention with gates, that several devices share."""
    plan = one_pass.plan
    for use in _apart(one_pass):
        assert use.layer is not None
        attention = plan.model.attention(use.layer)
        gated = attention is not None and attention.output_gate
        if gated or state_of(plan.model, use.layer).size:
            raise UsageError(
                f"devices share the mixer of block {use.layer}, which keeps states or has gates: "
                "planned and simulated, not executed",
                field="compute",
                value=plan.strategy.name,
                remedy="let one device compute all of a block's mixer: layer-split",
            )
    if page_links(plan) and any(layout.attention is not None and layout.attention.output_gate
                                for layout in plan.model.layouts):  # fmt: skip
        raise UsageError(
            f"{plan.model.name} multiplies what attention gives by gates, and its cache would be in pages",
            field="kv",
            value=plan.strategy.name,
            remedy="plan without windows of caches (kv_cache)",
        )


def _check_experts(plan: Plan, layer: int, places: dict[str, str]) -> None:
    """Raise UsageError for a sum that begins where hidden states are not."""
    router = places.get(ROUTER)
    norm = None if router is None else places.get(block_index(plan.model, layer)[ROUTER].inputs[0])
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
    bodies = {layer: latent_of(plan.model, layer) for layer in range(plan.model.layers)}
    widths = {layer: body.cached_width for layer, body in bodies.items() if body is not None}
    if not widths:
        return
    divided = any(use.layer in widths for use in _apart(one_pass))
    if divided or any(map(carries_cache, one_pass.tasks)) or page_links(plan):
        raise UsageError(
            "latent attention that several devices share, or whose cache moves, is planned and simulated, not executed",
            field="compute",
            value=plan.strategy.name,
            remedy="let one device compute the attention of a block and hold its cache: layer-split",
        )
    for width in set(widths.values()):
        _check_rows(plan, width)


def _apart(one_pass: PhasePass) -> Iterator[DeviceUse]:
    """Yield the uses of mixers that are parts of an operation, or apart from others of their block."""
    model, homes = one_pass.plan.model, dict[int, str]()
    for use in one_pass.uses.values():
        if use.layer is not None and block_index(model, use.layer)[use.op].half == 0:
            apart = homes.setdefault(use.layer, use.device) != use.device
            if apart or (use.start, use.stop) != (0, op_extent(model, use.op, use.layer)[1]):
                yield use


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
