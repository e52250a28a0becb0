"""Tensor parallelism: equal accelerators have equal parts of every layer and add up what each made, twice a layer."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from helmsman.lowering.graph import Task
from helmsman.lowering.placement import Placed, Placement
from helmsman.lowering.rules import kv_rule, residence
from helmsman.lowering.streams import MemoryRoutes
from helmsman.lowering.tensors import block_tensors
from helmsman.planner.cost.model import CostModel
from helmsman.planner.machine import Roles
from helmsman.planner.serving.stages import Stages
from helmsman.schemas.blocks.attention import Attention, LatentAttention
from helmsman.schemas.blocks.block import Block, Mixer, Network
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward
from helmsman.schemas.blocks.recurrent import DeltaRule, StateSpace
from helmsman.schemas.described import reshaped
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import size_of
from helmsman.schemas.hardware import Device, Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ComputeRule, KvRule, Residence, Select

_FIELD = "tensor_parallel"


def equal_accelerators(roles: Roles, count: int, field: str = _FIELD, value: int | None = None) -> tuple[Device, ...]:
    """Return so many accelerators of one kind with equal memories. Raises UsageError where there are fewer; `field`,
    `value`: what was asked for, where that is not the number of them."""
    alike = most_alike(roles)
    if len(alike) < count:
        remedy = f"{roles.hardware.name} has {len(alike)} of {count}"
        raise UsageError("not as many equal accelerators", field=field, value=value or count, remedy=remedy)
    return tuple(alike[:count])


def most_alike(roles: Roles) -> list[Device]:
    """Return the accelerators of the kind, with equal memories, that there are most of."""
    sizes = {memory.name: memory.available for memory in roles.hardware.memories}
    groups: dict[tuple[object, ...], list[Device]] = {}
    for device in roles.accelerators:
        groups.setdefault((device.kind, device.product, device.read.value, sizes[device.memory]), []).append(device)
    return max(groups.values(), key=len, default=[])


def divided(placed: Placed, hardware: Hardware, accelerator: Device, parts: int) -> Placement:
    """Return what one of `parts` accelerators does: its part of every layer, whatever is placed where in `placed`;
    formats are those of the first block's queries and cache. Raises UsageError where the model does not divide."""
    weights = residence(placed, block_tensors(placed.model, 0)[0]).format
    everything, memory = Select(), accelerator.memory
    return Placement(
        model=part_of(placed.model, parts),
        hardware=hardware,
        workload=placed.workload,
        residence=(Residence(select=everything, memory=memory, format=weights),),
        kv=(KvRule(select=everything, memory=memory, format=kv_rule(placed, 0).used),),
        compute=(ComputeRule(select=everything, device=accelerator.name),),
        activations=placed.activations,
    )


def part_of(model: Model, parts: int) -> Model:
    """The model of one part: its heads, its rows of networks and of every expert, and of the tables of tokens; hidden
    states are whole.

    Raises UsageError where they cannot be divided evenly."""
    whole = held_by(model, parts)
    vocab = -(-model.vocab // parts)
    if model.is_dense:
        shape = whole.dense
        shares = {name: getattr(shape, name) // parts for name in ("heads", "kv_heads", "ffn")}
        return reshaped(whole, **shares, vocab=vocab)
    layouts = tuple(_changed(block, partial(_part_of_op, parts=parts)) for block in whole.layouts)
    return whole.model_copy(update={"layouts": layouts, "vocab": vocab})


def held_by(model: Model, parts: int, field: str = _FIELD) -> Model:
    """Return a model as its parts hold it together: of key and value heads, and of groups of state spaces, that are
    fewer than the parts, each part has a copy of one; of latent caches, which all heads share, each has all.

    Raises UsageError where heads, networks or experts cannot be divided evenly."""
    if model.is_dense:
        shape = model.dense
        kv_heads = _held(shape.kv_heads, parts, shape.heads)
        held = model if kv_heads == shape.kv_heads else reshaped(model, kv_heads=kv_heads)
    else:
        layouts = tuple(_changed(block, partial(_held_op, parts=parts)) for block in model.layouts)
        held = model.model_copy(update={"layouts": layouts})
    for layout in held.layouts:
        for body in layout.bodies:
            for name, count in _divided_counts(body.op).items():
                if count % parts:
                    remedy = f"use a divisor of {model.name}'s {count} {name}"
                    raise UsageError(f"{name} cannot be divided evenly", field=field, value=parts, remedy=remedy)
    return held


def _held(count: int, parts: int, heads: int) -> int:
    """Return how many of `count`, shared by `heads`, are held in parts of which each has its share of the heads."""
    copied = parts > count and parts % count == 0 and heads % parts == 0
    return parts if copied else count


def _held_op(op: Mixer | Network, parts: int) -> Mixer | Network:
    match op:
        case Attention():
            return op.model_copy(update={"kv_heads": _held(op.kv_heads, parts, op.heads)})
        case StateSpace():
            return op.model_copy(update={"groups": _held(op.groups, parts, op.heads)})
        case LatentAttention():
            return op.model_copy(update={"copies": parts if parts > 1 else None})
        case _:
            return op


def _divided_counts(op: Mixer | Network) -> dict[str, int]:
    """Return by name what parts have an equal share of; other mixers, which all parts would need whole, have a count
    that nothing divides."""
    match op:
        case Attention():
            return {"heads": op.heads, "kv_heads": op.kv_heads}
        case DeltaRule():
            return {"key heads of delta rules": op.key_heads, "value heads of delta rules": op.value_heads}
        case StateSpace():
            return {"heads of state spaces": op.heads, "groups of state spaces": op.groups}
        case FeedForward():
            return {"ffn": op.width}
        case Experts():
            shared = {"ffn of shared experts": op.shared.width} if op.shared is not None else {}
            return {"ffn of experts": op.width, **shared}
        case LatentAttention():
            return {"heads": op.heads}
        case _:
            return {f"layers of {op.kind}": 1}


def _changed(block: Block, change: Callable[[Mixer | Network], Mixer | Network]) -> Block:
    residuals = tuple(
        residual.model_copy(
            update={"bodies": tuple(body.model_copy(update={"op": change(body.op)}) for body in residual.bodies)}
        )
        for residual in block.residuals
    )
    return block.model_copy(update={"residuals": residuals})


def _part_of_op(op: Mixer | Network, parts: int) -> Mixer | Network:
    match op:
        case Attention():
            return op.model_copy(update={"heads": op.heads // parts, "kv_heads": op.kv_heads // parts})
        case LatentAttention():
            return op.model_copy(update={"heads": op.heads // parts, "copies": None})
        case DeltaRule():
            return op.model_copy(update={"key_heads": op.key_heads // parts, "value_heads": op.value_heads // parts})
        case StateSpace():
            return op.model_copy(update={"heads": op.heads // parts, "groups": op.groups // parts})
        case FeedForward():
            return op.model_copy(update={"width": op.width // parts})
        case Experts():
            shared = None if op.shared is None else _part_of_op(op.shared, parts)
            return op.model_copy(update={"width": op.width // parts, "shared": shared})
        case _:
            return op


@dataclass(frozen=True)
class Exchange:
    """The data that equal accelerators tell each other, over links of their own or through host memory."""

    costs: CostModel
    accelerators: tuple[Device, ...]

    def add_up(self, size: int) -> float:
        """Seconds until all have the sum of `size` bytes that each made: the faster of a ring, whose 2 (n - 1) steps
        move a part each, and of telling all of it to all others (one step for two)."""
        count = len(self.accelerators)
        return min(2 * (count - 1) * self._step(-(-size // count)), (count - 1) * self._step(size))

    def beginning(self) -> float:
        """Seconds until all have the sum of a byte: over links of their own each reads what all others made at once."""
        first, other = self.accelerators[:2]
        direct = self.costs.hardware.link(first.memory, other.memory) is not None
        return self._step(1) if direct else self.add_up(1)

    def gather(self, size: int) -> float:
        """Seconds until one has all of what each made `size` bytes of."""
        return (len(self.accelerators) - 1) * self._step(size)

    def _step(self, size: int) -> float:
        """Seconds in which each gives its neighbour so many bytes, all at once: those of the slowest pair."""
        memories = [device.memory for device in self.accelerators]
        return max(moved(self.costs, here, there, size) for here, there in pairwise([*memories, memories[0]]))


@dataclass(frozen=True)
class DividedStages:
    """The stages of one part of `plan`, with what all parts exchange: hidden states after attention and after the FFN,
    those of the embedding, and the logits of each part's rows of the head."""

    stages: Stages
    exchange: Exchange
    plan: Placement

    @property
    def looks(self) -> int:
        """See `Stages`."""
        return self.stages.looks

    @property
    def request(self) -> float:
        """See `Stages`."""
        return self.stages.request

    def linear(self, tokens: int) -> float:
        """See `Stages`."""
        return self.stages.linear(tokens) + 2 * self.exchange.add_up(self._bytes(tokens, self.plan.model.hidden))

    def decode(self, kv: int) -> float:
        """See `Stages`."""
        return self.stages.decode(kv)

    def prompt_compute(self, tokens: int) -> float:
        """See `Stages`."""
        return self.stages.prompt_compute(tokens)

    def prompt_read(self, kv: int) -> float:
        """See `Stages`."""
        return self.stages.prompt_read(kv)

    def ends(self, sequences: int) -> float:
        """See `Stages`."""
        hidden = self.exchange.add_up(self._bytes(sequences, self.plan.model.hidden))
        logits = self.exchange.gather(self._bytes(sequences, self.plan.model.vocab))
        return self.stages.ends(sequences) + hidden + logits

    def _bytes(self, rows: int, width: int) -> int:
        return size_of(rows * width, self.plan.activations)


def moved(costs: CostModel, here: str, there: str, size: int) -> float:
    """Seconds of `size` bytes from one memory to another, over a link of theirs or through host memory."""
    hops = MemoryRoutes(costs.hardware).hops(here, there, size, "pinned")
    return sum(costs.price(transfer(hop.link.name, size)).mid for hop in hops)


def transfer(link: str, size: int) -> Task:
    """`size` bytes over a link."""
    return Task("transfer", "transfer", "decode", link, 0, size, 0, 0, "f16", ())
