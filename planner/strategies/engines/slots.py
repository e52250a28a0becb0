"""A model's last layers on accelerators, the others computed by the CPU where they live: llama.cpp's division."""

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from helmsman.lowering.operation import Formats
from helmsman.lowering.ops import ONE_TOKEN, block_index, block_ops
from helmsman.lowering.placement import Placement
from helmsman.lowering.stages import first_ops, last_ops
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import block_tensors, embedding_tensors, output_tensors
from helmsman.planner.settings.tensor_names import FIELD
from helmsman.planner.strategies.engines.overrides import HOST, Override, Side, overridden_sides
from helmsman.planner.strategies.engines.rules import cached_in, computed, home, stretches
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.tensor_formats import with_own_formats
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import Device
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ComputeRule, KvRule, LayerRange, Residence
from helmsman.schemas.same import Keyed

OFFLOADED_TOKENS = 32
"""From so many tokens on, llama.cpp's GPU backends take products of weights in host memory (ggml's op offload)."""

MOST_RULES = 256
"""Of one kind in a plan."""

_SPLITS = 256
"""The number of splits whose rules are kept: a search tries some, and neighbouring questions the same ones again."""

_Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SlotSplit:
    """The last slots of a model on accelerators, `counts` of them on each in turn, but for what `overrides` put
    elsewhere; `op_offload`: products of many tokens are computed on the first of them even so. `known`: where tensors
    are, by name, as far as it was asked for."""

    frame: Frame
    counts: tuple[int, ...]
    overrides: tuple[Override, ...] = ()
    op_offload: bool = True
    known: dict[str, tuple[Side | None, ...]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def key(self) -> Hashable:
        """Return all that its rules depend on: of a machine what devices and their memories are called, of a workload
        which phases have large products."""
        frame, roles = self.frame, self.frame.roles
        devices = tuple([(device.name, device.memory) for device in (roles.host, roles.solo, *roles.accelerators)])
        about = frame.model, frame.weights, frame.kv, devices, self.large
        return (*about, self.counts, self.overrides, self.op_offload)

    @property
    def large(self) -> tuple[Phase, ...]:
        """Return the phases whose products are of so many tokens that an accelerator takes them."""
        work = self.frame.workload
        tokens: tuple[tuple[Phase, int], ...] = (("prefill", work.batch * work.new_tokens), ("decode", work.batch))
        return tuple([phase for phase, count in tokens if count >= OFFLOADED_TOKENS])

    @property
    def slots(self) -> int:
        """Return how many slots are on accelerators."""
        return sum(self.counts)

    @property
    def cut(self) -> int:
        """The first block on an accelerator."""
        return min(self.frame.model.layers + 1 - self.slots, self.frame.model.layers)

    @property
    def sides(self) -> tuple[Side, ...]:
        """Return the host, and the accelerators, in order."""
        return (HOST, *(device.name for device in self.frame.roles.accelerators))

    @property
    def output(self) -> Side:
        """Where the last slot is."""
        used = [device.name for device, count in self._shares() if count]
        return used[-1] if used else HOST

    def device(self, side: Side) -> Device:
        """The device of a side; the CPU has every core where the accelerators do nothing."""
        if side != HOST:
            return self.frame.roles.hardware.device(side)
        alone = self.slots == 0 and all(override.side == HOST for override in self.overrides)
        return self.frame.roles.solo if alone else self.frame.roles.host

    def bases(self) -> tuple[Side, ...]:
        """Return where every block is without overrides."""
        on_accelerators = [device.name for device, count in self._shares() for _ in range(count)]
        return (HOST,) * self.cut + tuple(on_accelerators[: self.frame.model.layers - self.cut])

    def placed(self, name: str) -> tuple[Side | None, ...]:
        """Return where the tensor called so is in every block; None: nowhere, as the block has no such tensor."""
        if name not in self.known:
            self.known[name] = placed_in(self.frame.model, self.bases(), self.overrides, name)
        return self.known[name]

    def spans(self) -> Iterator[tuple[Side, LayerRange]]:
        """The blocks of each side, without overrides."""
        bases = self.bases()
        for side in self.sides:
            for start, stop in stretches(base == side for base in bases):
                yield side, LayerRange(start=start, stop=stop)

    def _shares(self) -> Iterator[tuple[Device, int]]:
        return zip(self.frame.roles.accelerators, self.counts, strict=False)


def placed_in(
    model: Model, bases: tuple[Side, ...], overrides: tuple[Override, ...], name: str
) -> tuple[Side | None, ...]:
    """Return where the tensor called so is in every block whose base is given; None: nowhere."""
    of_letter = {letter: _decisive(model, letter, name) for letter in dict.fromkeys(model.pattern)}
    members, sides = [of_letter[letter] for letter in model.pattern[: len(bases)]], overridden_sides(overrides)
    return tuple(
        None if tensor is None else sides.get((tensor.name, layer), bases[layer])
        for layer, tensor in enumerate(members)
    )


def slot_counts(slots: int, shares: Sequence[float]) -> tuple[int, ...]:
    """Return how many of the last `slots` each accelerator has: slot i of n goes to the first whose shares, added up
    and divided by the sum of all, exceed i / n (llama.cpp's --tensor-split)."""
    ends = list(accumulate(shares))
    owners = [bisect_right(ends, number * ends[-1] / slots) for number in range(slots)]
    return tuple(owners.count(device) for device in range(len(shares)))


def place(split: SlotSplit) -> Placement:
    """The rules. Raises UsageError where overrides lead to more than a plan can have."""
    frame, rules = split.frame, _rules(Keyed(split.key, split))
    placed = Placement(
        model=frame.model,
        hardware=frame.roles.hardware,
        workload=frame.workload,
        residence=rules.residence,
        kv=rules.kv,
        compute=rules.compute,
        activations=frame.roles.activations,
    )
    return with_own_formats(placed, frame.formats)


class _SlotRules(NamedTuple):
    """The rule lists of a split."""

    residence: tuple[Residence, ...]
    kv: tuple[KvRule, ...]
    compute: tuple[ComputeRule, ...]


@lru_cache(maxsize=_SPLITS)
def _rules(keyed: Keyed[SlotSplit]) -> _SlotRules:
    """Return the rules of a split, made once for all prompts. Raises UsageError for more than a plan can have."""
    split = keyed.value
    residence, compute = tuple(_residence(split)), tuple(_compute(split))
    if max(len(residence), len(compute)) > MOST_RULES:
        problem = f"leads to {max(len(residence), len(compute))} rules, and a plan has at most {MOST_RULES}"
        raise UsageError(problem, field=FIELD, remedy="select neighbouring blocks, or fewer kinds of tensors")
    caches = tuple(
        cached_in(split.device(side).memory, split.frame.kv, (span.start, span.stop)) for side, span in split.spans()
    )
    return _SlotRules(residence, caches, compute)


def _residence(split: SlotSplit) -> Iterator[Residence]:
    """Weights in host memory are mapped from their file, hence pageable."""
    frame = split.frame
    for tensor, layers, side in _moved(split):
        yield home(frame, split.device(side).memory, tensor.name, layers, "pageable")
    for names, side in _ends(split):
        yield home(frame, split.device(side).memory, f"{names}*", path="pageable")
    for side, span in split.spans():
        yield home(frame, split.device(side).memory, layers=(span.start, span.stop), path="pageable")


def _compute(split: SlotSplit) -> Iterator[ComputeRule]:
    yield from _offloaded(split)
    for tensor, layers, side in _moved(split):
        if tensor.name == f"{tensor.op}.weight" and _computed(split.frame.model, tensor):
            yield computed(split.device(side).name, tensor.op, layers)
    for names, side in _ends(split):
        if names != "positions":
            yield computed(split.device(side).name, names)
    for side, span in split.spans():
        yield computed(split.device(side).name, layers=(span.start, span.stop))


def _computed(model: Model, tensor: Tensor) -> bool:
    """Whether a tensor is that of an operation of its own."""
    return tensor.layer is None or tensor.op in block_index(model, tensor.layer)


def _ends(split: SlotSplit) -> tuple[tuple[str, Side], ...]:
    model = split.frame.model
    more = sorted(first_ops(model) - {"embedding", "positions"})
    begin: list[tuple[str, Side]] = [(name, HOST) for name in ("embedding", "positions", *more)]
    return (*begin, *((name, split.output) for name in last_ops(model)))


def _end_side(split: SlotSplit, tensor: Tensor) -> Side:
    """Return where a tensor outside of blocks is without overrides."""
    sides = dict(_ends(split))
    return sides.get(tensor.name.partition(".")[0], sides[tensor.op])


def _moved(split: SlotSplit) -> Iterator[tuple[Tensor, _Span | None, Side]]:
    """Tensors that overrides put elsewhere, with the blocks in which they do."""
    if not split.overrides:
        return
    sides = overridden_sides(split.overrides)
    for tensor in (*embedding_tensors(split.frame.model), *output_tensors(split.frame.model)):
        moved, base = sides.get((tensor.name, None)), _end_side(split, tensor)
        if moved is not None and moved != base:
            yield tensor, None, moved
    bases = split.bases()
    for tensor in _different(split.frame.model):
        placed = split.placed(tensor.name)
        if all(chosen is None or chosen == base for chosen, base in zip(placed, bases, strict=True)):
            continue
        chosen_sides = frozenset(placed)
        for side in (side for side in split.sides if side in chosen_sides):
            elsewhere = (
                None if chosen is None else chosen == side != base for chosen, base in zip(placed, bases, strict=True)
            )
            yield from ((tensor, layers, side) for layers in stretches(_carried(elsewhere)))


def _offloaded(split: SlotSplit) -> Iterator[ComputeRule]:
    """Large products of weights in host memory, in the phases that have them."""
    roles = split.frame.roles
    if not split.op_offload or not roles.separate or split.device(HOST) != roles.host:
        return
    stays = _on_host(split.frame.model, split.bases(), split.overrides)
    for phase in split.large:
        for tensor, spans in stays:
            yield from (computed(split.frame.accelerator.name, tensor.op, span, phase) for span in spans)


@lru_cache(maxsize=1024)
def _on_host(
    model: Model, bases: tuple[Side, ...], overrides: tuple[Override, ...]
) -> tuple[tuple[Tensor, tuple[_Span, ...]], ...]:
    """Return the matrices that tokens are multiplied with, each with the blocks in which it is in host memory."""

    def spans(tensor: Tensor) -> tuple[_Span, ...]:
        placed = placed_in(model, bases, overrides, tensor.name)
        return tuple(stretches(_carried(None if side is None else side == HOST for side in placed)))

    return tuple((tensor, spans(tensor)) for tensor in _products(model))


def _carried(chosen: Iterable[bool | None]) -> Iterator[bool]:
    """Yield what is chosen by block; a block about which nothing is to be said follows the one before, so that blocks
    of several kinds in turns are one stretch."""
    last = False
    for value in chosen:
        last = last if value is None else value
        yield last


@lru_cache(maxsize=64)
def _different(model: Model) -> tuple[Tensor, ...]:
    """Return the tensors of blocks, of those that are called alike the first."""
    firsts = (model.pattern.index(letter) for letter in dict.fromkeys(model.pattern))
    members: dict[str, Tensor] = {}
    for layer in firsts:
        for tensor in block_tensors(model, layer):
            members.setdefault(tensor.name, tensor)
    return tuple(members.values())


@lru_cache(maxsize=64)
def _products(model: Model) -> tuple[Tensor, ...]:
    """Return the matrices of blocks that tokens are multiplied with."""
    multiplied = {
        op.name
        for layer in {model.pattern.index(letter) for letter in model.pattern}
        for op in block_ops(model, layer, ONE_TOKEN, Formats())
        if op.kind in ("linear", "experts")
    }
    return tuple(tensor for tensor in _different(model) if tensor.op in multiplied and _is_matrix(tensor))


def _is_matrix(tensor: Tensor) -> bool:
    return tensor.name == f"{tensor.op}.weight" and len(tensor.shape) > 1


def _decisive(model: Model, letter: str, name: str) -> Tensor | None:
    """Return the tensor that decides where the one called so is: itself, or of a vector beside a matrix of a block that
    is not dense this matrix, as one operation reads both; None where the block has no such tensor."""
    members = _members(model, letter)
    tensor = members.get(name)
    if tensor is None or model.is_dense or len(tensor.shape) > 1:
        return tensor
    return members.get(f"{tensor.op}.weight", tensor)


@lru_cache(maxsize=512)
def _members(model: Model, letter: str) -> dict[str, Tensor]:
    """Return the tensors of the blocks with a letter by name."""
    return {tensor.name: tensor for tensor in block_tensors(model, model.pattern.index(letter))}
