"""Cards as vLLM finds them: a share of what their driver reports, of which it keeps some beside weights and caches; and
several equal cards as one, which divide every layer (tensor parallelism).

Joined cards read and compute as many times as fast. Twice a layer, and at both ends, they add up what each has made; a
plan has no tasks for that, so it is counted at the norms that follow, as seconds of each and bytes of their inputs."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from math import floor

from helmsman.hwdb.catalogue import find_gpu
from helmsman.hwdb.driver_memory import reported_bytes
from helmsman.lowering.operation import Formats
from helmsman.lowering.ops import block_ops
from helmsman.planner.cost.model import CostModel
from helmsman.planner.machine import Roles, roles
from helmsman.planner.serving.engine_reserve import card_count, reserved_bytes, usual_passes
from helmsman.planner.serving.tensor_parallel import Exchange, equal_accelerators, held_by, most_alike
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.errors import HelmError, UsageError
from helmsman.schemas.figures import Figure, Source, scaled_figure
from helmsman.schemas.hardware import Device, Hardware, Link, Memory
from helmsman.schemas.model import Model
from helmsman.schemas.same import Same

SOURCE = "vllm-memory"
"""The source that plans name for what vLLM may use."""

_FIELD = "tensor_parallel_size"

_EXCHANGED = 2**24
"""Bytes that cards add up, at which the rate of it is taken."""


def limited(roles_of: Roles, model: Model | None, share: float, graphs: bool) -> Roles:
    """Return the roles on a machine whose cards have what vLLM uses of them; `model` None: of their capacity, with
    nothing kept beside, where placements alone are compared."""
    return roles(_limited(Same(roles_of.hardware), tuple(d.name for d in roles_of.accelerators), model, share, graphs))


@lru_cache(maxsize=64)
def _limited(same: Same[Hardware], cards: tuple[str, ...], model: Model | None, share: float, graphs: bool) -> Hardware:
    hardware = same.document
    devices = {hardware.device(name).memory: hardware.device(name) for name in cards}
    memories = tuple(
        _within(memory, devices[memory.name], model, share, graphs) if memory.name in devices else memory
        for memory in hardware.memories
    )
    where = (
        f"vLLM's gpu_memory_utilization: {share:g} of what the driver reports, where as much is free; reserved: its "
        "largest pass and libraries"
    )
    sources = {**hardware.sources, SOURCE: Source(kind="assumed", where=where)}
    return hardware.model_copy(update={"memories": memories, "sources": sources})


def _within(memory: Memory, card: Device, model: Model | None, share: float, graphs: bool) -> Memory:
    if model is None or card.kind == "loopback":
        available = min(memory.available, floor(share * memory.capacity))
        return memory.model_copy(update={"available": available, "source": SOURCE})
    available = min(memory.available, floor(share * _reported(memory, card)))
    passes = usual_passes(card.product or "", memory.capacity)
    reserved = min(reserved_bytes(model, passes, "f16", graphs=graphs), memory.capacity)
    return memory.model_copy(update={"available": available, "reserved": reserved, "source": SOURCE})


def _reported(memory: Memory, card: Device) -> int:
    """Return the bytes that the driver of a card reports; a memory that is none of the catalogue's has what its record
    says."""
    try:
        gpu, _ = find_gpu(card.product or "")
    except HelmError:
        return memory.capacity
    return reported_bytes(gpu.name, memory.capacity) if gpu.capacity == memory.capacity else memory.capacity


def is_joined(device: Device) -> bool:
    """Whether a device of a plan is several cards."""
    return device.kind != "cpu" and card_count(device) > 1


def joined(frame: Frame, count: int) -> Frame:
    """Return a question on a machine whose first `count` equal cards are one, of the model as they hold it together.

    Raises UsageError where there are fewer, or the model does not divide."""
    card = frame.roles.accelerator
    if card is not None and is_joined(card):
        return replace(frame, model=held_by(frame.model, card_count(card), _FIELD))
    if count == 1:
        return frame
    model = held_by(frame.model, count, _FIELD)
    cards = equal_accelerators(frame.roles, count, _FIELD)
    one = _joined(Same(frame.roles.hardware), tuple(card.name for card in cards), model)
    return replace(frame, roles=roles(one), model=model)


def card_counts(wanted: int | None, frame: Frame, alone: bool) -> Iterator[int]:
    """Yield the number of cards that is wanted; where none is, every number of equal cards that the model divides
    among, `alone`: one."""
    if wanted is not None:
        yield wanted
        return
    yield 1
    if alone:
        return
    for count in range(2, len(most_alike(frame.roles)) + 1):
        try:
            joined(frame, count)
        except UsageError:
            continue
        yield count


@lru_cache(maxsize=64)
def _joined(same: Same[Hardware], named: tuple[str, ...], model: Model) -> Hardware:
    hardware, count = same.document, len(named)
    cards = tuple(hardware.device(name) for name in named)
    first = cards[0]
    gone = {card.memory for card in cards[1:]}
    names = {card.name for card in cards[1:]}
    memories = tuple(
        _as_many(memory, count) if memory.name == first.memory else memory
        for memory in hardware.memories
        if memory.name not in gone
    )
    one = _as_one(first, count, Exchange(CostModel(hardware), cards), model)
    others = [device for device in hardware.devices if device.name not in {first.name, *names}]
    ahead = next((number for number, device in enumerate(others) if device.kind != "cpu"), len(others))
    devices = (*others[:ahead], one, *others[ahead:])  # the first accelerator is the one that plans use
    links = tuple(
        _wider(link, count) if first.memory in (link.source_memory, link.target_memory) else link
        for link in hardware.links
        if not {link.source_memory, link.target_memory} & gone
    )
    between = hardware.between_passes
    if between is not None:
        begin = {name: seconds for name, seconds in between.begin.items() if name not in names}
        between = between.model_copy(update={"begin": begin})
    changed = {"memories": memories, "devices": devices, "links": links, "between_passes": between}
    return hardware.model_copy(update=changed)


def _as_many(memory: Memory, count: int) -> Memory:
    sizes = {name: getattr(memory, name) for name in ("capacity", "available", "free", "reserved")}
    changed = {name: size and count * size for name, size in sizes.items()}
    return memory.model_copy(update={**changed, "bandwidth": scaled_figure(memory.bandwidth, count)})


def _wider(link: Link, count: int) -> Link:
    """Return the link of a card as those of all cards, whose parts come at once."""
    carried = link.carries and scaled_figure(link.carries, count)
    return link.model_copy(update={"bandwidth": scaled_figure(link.bandwidth, count), "carries": carried})


def _as_one(card: Device, count: int, exchange: Exchange, model: Model) -> Device:
    """Return cards that work as one on parts of every layer, and add up what they made at the norms."""
    least, most = exchange.beginning(), exchange.add_up(_EXCHANGED)
    values = 2 * model.hidden * 2  # hidden states are added up twice a layer, in 16 bits
    moved = _activation_bytes(model)
    rate = (_EXCHANGED / (most - least)) * moved / values
    compute = tuple(of.model_copy(update={"flops": scaled_figure(of.flops, count)}) for of in card.compute)
    source = card.read.source
    known = card.overhead.value if card.overhead else 0.0
    seconds = Figure(value=known + least, p10=known + least / 2, p90=known + 2 * least, source=source)
    through = Figure(value=rate, p10=rate / 1.5, p90=rate * 1.2, source=source)
    return card.model_copy(
        update={
            "product": f"{count}x {card.product}",
            "read": scaled_figure(card.read, count),
            "compute": compute,
            "overheads": {**(card.overheads or {}), "norm": seconds},
            "elementwise": through,
        }
    )


def _activation_bytes(model: Model) -> float:
    """Return bytes of activations of what is not a product, of a token in a mean layer: what `elementwise` is of."""
    one = Iteration(1, "prefill", 1, 1, 1)
    sizes = [
        op.activation_bytes
        for layer in range(model.layers)
        for op in block_ops(model, layer, one, Formats("f16", "f16", "f16"))
        if op.kind not in ("linear", "experts", "attention")
    ]
    return sum(sizes) / model.layers
