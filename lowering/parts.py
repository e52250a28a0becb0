"""Operations as the rules of a plan divide them: what every part reads and does, the same in blocks that are alike."""

from collections.abc import Iterator
from typing import NamedTuple

from helmsman.lowering.bodies.experts_apart import ROUTER
from helmsman.lowering.caches import CACHED, appended_sizes
from helmsman.lowering.cargo import Cargo, cargo, rows_word
from helmsman.lowering.expert_parts import ExpertPiece, expert_amounts, slot_pieces, slot_rule
from helmsman.lowering.graph import Payload, Rows
from helmsman.lowering.layer_cache import owner
from helmsman.lowering.operation import Operation
from helmsman.lowering.paging import window_of
from helmsman.lowering.placement import KnownPlan
from helmsman.lowering.rules import kv_rule, places, slots_of
from helmsman.lowering.streams import Resident, cached_of, grouped, weights_of
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.page_cache import PageCache

_ALL_HEADS = 1 << 30
"""More heads than a cache has."""


class Coming(NamedTuple):
    """Resident data on its way to where it is used, and what tasks say of it."""

    cargo: Cargo
    resident: Resident


class OperationPart(NamedTuple):
    """Rows or heads start <= i < stop of an operation, `share` of it, on one device.

    `rows`: `start` and `stop` where it is not the whole; `word`: what names of tasks call it; `size`: bytes of weights
    and caches that it reads, most of them in `format`; `weights`, `cached`: what of these does not live in `memory` as
    it is used, by what travels together; `at_home`: whether all it reads of caches is kept there so; `turned`: bytes of
    caches that are turned first, None: of those that are used as they are; `window`: through which it reads a cache
    page by page; `tokens`: rows of activations, `per_token` of a token; `sequences`: caches that it reads, or distinct
    experts; `looks_up`: whether what it chooses is looked up in slots; `on_demand`: whether `weights` leave when the
    router has chosen them; `entering`: experts that are copied to slots once they have been computed here."""

    device: str
    memory: str
    start: int
    stop: int
    share: float
    rows: Rows | None
    word: str
    size: int
    format: StoredFormat
    activation_bytes: int
    flops: int
    weights: tuple[Coming, ...]
    cached: tuple[Coming, ...]
    at_home: bool
    turned: int | None
    window: PageCache | None = None
    tokens: int = 0
    per_token: float = 1.0
    sequences: int = 1
    looks_up: bool = False
    on_demand: bool = False
    entering: tuple[Coming, ...] = ()


class DividedOperation(NamedTuple):
    """An operation of a pass and the parts into which the plan's rules divide it.

    `op`: that of the first of the blocks that are alike; `inputs`: the outputs that it reads; `names`: under which its
    own is read; `appended`: (cargo, memory, format, bytes) of what it adds to caches."""

    op: Operation
    parts: tuple[OperationPart, ...]
    inputs: tuple[str, ...]
    names: tuple[str, ...]
    appended: tuple[tuple[Cargo, str, StoredFormat, int], ...]


def divided_operations(
    plan: KnownPlan, iteration: Iteration, ops: tuple[Operation, ...]
) -> tuple[DividedOperation, ...]:
    """Return the operations of a block or of an end of the model, each divided; `iteration`: the pass as attention sees
    it.

    Raises BadInputError when a rule is missing or names an unknown device."""
    return tuple(_divided(plan, iteration, op) for op in ops)


def _divided(plan: KnownPlan, iteration: Iteration, op: Operation) -> DividedOperation:
    first = None if op.layer is None else plan.first_alike[op.layer]
    about = "division", op.name, first, iteration.phase, op.extent
    places = plan.fact(about, lambda: tuple(_places(plan, iteration, op)))
    parts = tuple([_part(plan, iteration, op, part) for part in places])
    appended = tuple(_appended(plan, op)) if op.kind == "append" else ()
    return DividedOperation(op, parts, op.inputs, op.names, appended)


def _appended(plan: KnownPlan, op: Operation) -> Iterator[tuple[Cargo, str, StoredFormat, int]]:
    sizes = appended_sizes(plan, op.layer or 0, op.tokens)
    for number, ((home, fmt), size) in enumerate(sizes.items()):
        yield cargo("attention", "new cache entries", piece=number or None), home, fmt, size


def _places(plan: KnownPlan, iteration: Iteration, op: Operation) -> Iterator[OperationPart]:
    memory_of = {device.name: device.memory for device in plan.hardware.devices}
    for device, start, stop in _pieces(plan, iteration, op):
        if device not in memory_of:
            raise BadInputError("no such device in the plan's hardware", field="compute", value=device)
        yield _place(plan, iteration, op, device, memory_of[device], start, stop)


def _pieces(plan: KnownPlan, iteration: Iteration, op: Operation) -> tuple[ExpertPiece, ...]:
    """Return the parts of an operation; of one of experts with slots those that hit and those that miss."""
    pieces = places(plan, op.name, op.layer, iteration.phase, op.extent, op.axis)
    rule = slot_rule(plan, op)
    if rule is not None:
        return slot_pieces(plan, rule, op.extent, pieces[0].rule.device)
    return tuple([ExpertPiece(piece.rule.device, piece.start, piece.stop) for piece in pieces])


def _place(
    plan: KnownPlan, iteration: Iteration, op: Operation, device: str, memory: str, start: int, stop: int
) -> OperationPart:
    rows = None if stop - start == op.extent else (start, stop)
    weights, cached = _weights(plan, op, start, stop), _cached(plan, iteration, op, start, stop)
    return OperationPart(
        device=device,
        memory=memory,
        start=start,
        stop=stop,
        share=(stop - start) / op.extent,
        rows=rows,
        word=rows_word(op.name, rows),
        size=sum(weight.used for weight in weights),
        format=_format(plan, op, weights),
        activation_bytes=0,
        flops=0,
        weights=_coming(op.name, "weights", rows, weights, memory),
        cached=(),
        at_home=not plan.schedule.reshape and all(piece.used_in(memory) for piece in cached),
        looks_up=op.name == ROUTER and slots_of(plan.expert_slots, op.layer or 0) is not None,
        turned=None,
        window=window_of(plan, op.layer or 0) if op.name in CACHED else None,
    )


def _part(plan: KnownPlan, iteration: Iteration, op: Operation, place: OperationPart) -> OperationPart:
    share, size = place.share, place.size
    if op.kind == "experts":
        return _experts(plan, iteration, op, place)
    if op.kind == "lookup":
        place, size = _looked_up(plan, iteration, op, place)
    elif not place.at_home and iteration.past > 0 and op.name in CACHED:
        place = _with_cache(plan, iteration, op, place)
    size, moved, flops = size + round(op.kv_read * share), round(op.activation_bytes * share), round(op.flops * share)
    return place._replace(
        size=size,
        activation_bytes=moved,
        flops=flops,
        tokens=op.tokens,
        per_token=op.per_token,
        sequences=op.sequences,
    )


def _looked_up(plan: KnownPlan, iteration: Iteration, op: Operation, place: OperationPart) -> tuple[OperationPart, int]:
    """Return a lookup with the rows that come for it, and the bytes of those that it reads."""
    weights = _weights(plan, op, place.start, place.stop)
    coming = _of_all_batches(weights, iteration.batches)
    arriving = _coming(op.name, "weights", place.rows, coming, place.memory)
    return place._replace(weights=arriving), sum(weight.used for weight in weights)


def _experts(plan: KnownPlan, iteration: Iteration, op: Operation, place: OperationPart) -> OperationPart:
    """Return what a part of experts reads and does of what the tokens of the pass choose, and what comes for it."""
    amounts = expert_amounts(plan, iteration, op, ExpertPiece(place.device, place.start, place.stop))

    rule, choices = slot_rule(plan, op), amounts.choices

    def stored(share: float, op: Operation = op) -> list[Resident]:
        return _weights(plan, op._replace(weight_share=share), amounts.first, amounts.stop)

    def moved(share: float) -> list[Resident]:
        """Return what is copied: into slots matrices alone, as biases of all experts are there from the start."""
        kept = op.tensors if rule is None else tuple(tensor for tensor in op.tensors if tensor.packed)
        return stored(share, op._replace(tensors=kept)) if share else []

    memory = place.memory if rule is None else rule.memory
    coming, entering = moved(amounts.coming), moved(amounts.entering)
    arriving = _coming(op.name, "weights", place.rows, coming, place.memory)
    return place._replace(
        share=choices,
        size=sum(weight.used for weight in stored(amounts.read)),
        activation_bytes=round(op.activation_bytes * choices),
        flops=round(op.flops * choices),
        tokens=max(1, round(op.tokens * choices)),
        per_token=op.per_token * choices or 1.0,
        sequences=max(1, round(amounts.distinct)),
        weights=arriving,
        on_demand=bool(arriving) and rule is not None and not amounts.ahead,
        entering=_coming(op.name, "weights", place.rows, entering, memory),
    )


def _with_cache(plan: KnownPlan, iteration: Iteration, op: Operation, place: OperationPart) -> OperationPart:
    """Return a part with the past keys and values that come for it, and those that are turned."""
    cached = _cached(plan, iteration, op, place.start, place.stop)
    coming = _coming(op.name, "cache", place.rows, cached, place.memory) if place.window is None else ()
    turned = 2 * sum(piece.used for piece in cached) if plan.schedule.reshape else None
    return place._replace(cached=coming, turned=turned)


def _weights(plan: KnownPlan, op: Operation, start: int, stop: int) -> list[Resident]:
    rows = op.tokens if op.kind == "lookup" else 0
    first, last = (0, 1 << 62) if op.extent == 1 else (start, stop)
    return weights_of(plan, op.tensors, first, last, rows, op.weight_share)


def _of_all_batches(weights: list[Resident], batches: int) -> list[Resident]:
    """Of a table come the rows of all batches, whose tokens are known when the pass begins."""
    return [weight._replace(elements=batches * weight.elements) for weight in weights]


def _cached(plan: KnownPlan, iteration: Iteration, op: Operation, start: int, stop: int) -> list[Resident]:
    """The past keys or values that heads start <= h < stop read (all heads of undivided attention)."""
    if op.name not in CACHED:
        return []
    part = (0, _ALL_HEADS) if op.name == "attention" else (start, stop)
    return cached_of(plan, iteration, CACHED[op.name], op.layer or 0, *part)


def _coming(
    operation: str, payload: Payload, rows: Rows | None, residents: list[Resident], memory: str
) -> tuple[Coming, ...]:
    """Return what does not live in `memory` as it is used, by what travels together."""
    groups = enumerate(grouped(resident for resident in residents if not resident.used_in(memory)))
    return tuple(Coming(cargo(operation, payload, rows, number or None), group) for number, group in groups)


def _format(plan: KnownPlan, op: Operation, weights: list[Resident]) -> StoredFormat:
    """Return the format of most bytes that the operation reads."""
    if op.name in CACHED or op.kind == "index":
        return kv_rule(plan, owner(plan.model, op.layer or 0)).used
    if op.kind in ("recurrence", "convolution"):
        return "f32"
    return max(weights, key=lambda weight: weight.used).used_as if weights else plan.activations
