"""`--fit`: where llama.cpp puts layers and experts by itself, by the memories of the accelerators alone.

Everything goes to the accelerators where that leaves a margin of each. Else, from the last layer back, as many layers
as fit without their experts; of a model without experts whole layers. Where all fit so, layers from the first on get
their experts as well, as many as fit, and of the next one what fits of its network. An accelerator that is full passes
the part that it has no room for to the next one, the last to the host."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

from helmsman.lowering.placement import shaped
from helmsman.lowering.stored_names import TensorKey
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.settings.tensor_names import selected_tensors
from helmsman.planner.settings.tensor_pattern import tensor_pattern
from helmsman.planner.strategies.engines.overrides import HOST, Override, Side, buffer_name, experts_of
from helmsman.planner.strategies.engines.slots import SlotSplit, place, slot_counts
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Schedule

Left = Literal["network", "all but up", "down", "experts"]
"""The part of a layer that is left elsewhere: its network, that without the first matrix, the last matrix, or its
experts alone."""

_PATTERNS: dict[Left, str] = {
    "network": r"ffn_(gate|up|gate_up|down).*",
    "all but up": r"ffn_(gate|gate_up|down).*",
    "down": r"ffn_down.*",
    "experts": r"ffn_(up|down|gate_up|gate)_(ch|)exps",
}
"""llama.cpp's patterns of these parts, after the number of a block."""

_TOGETHER = 8
"""Blocks whose numbers one pattern names: so few ways through it are found fast, here and by others."""


@dataclass(frozen=True, slots=True)
class _Share:
    """An accelerator's slots: the last `partial` of `slots` without their experts, the first of those without `left`,
    which is on the next accelerator where that is said."""

    slots: int = 0
    partial: int = 0
    left: Left = "experts"
    passed_on: bool = False

    def add(self, slots: int, partial: int) -> "_Share":
        return replace(self, slots=self.slots + slots, partial=self.partial + partial)


_Shares = tuple[_Share, ...]


@dataclass(frozen=True)
class AutomaticFit:
    """Searches the placement for a question. `margin`: bytes that stay free of each accelerator's memory; `schedule`:
    that of every placement."""

    frame: Frame
    margin: int
    schedule: Schedule
    op_offload: bool = True

    def split(self) -> SlotSplit:
        """Return the placement that is found; it need not fit where nothing does."""
        slots = self.frame.model.layers + 1
        free = [float(target) for target in self._targets()]
        whole = SlotSplit(self.frame, slot_counts(slots, free), (), self.op_offload)
        if self._fits_all(whole):
            return whole
        shares = self._without_experts()
        if self.frame.model.routed and self._all_but_experts_fit():
            shares = self._with_experts(shares)
        return self._split(shares)

    def _targets(self) -> list[int]:
        memory = self.frame.roles.hardware.memory
        return [memory(device.memory).available - self.margin for device in self.frame.roles.accelerators]

    def _needs(self, split: SlotSplit) -> list[int]:
        """Return bytes that a placement needs of every accelerator's memory: of one that the host reads too, those of
        the accelerator alone."""
        if self.frame.roles.unified:
            split = replace(split, frame=self._apart, op_offload=False)
        placed = replace(place(split), schedule=self.schedule)
        used = {use.memory: use.used for use in memory_use(shaped(placed))}
        return [used[device.memory] for device in self.frame.roles.accelerators]

    @cached_property
    def _apart(self) -> Frame:
        """Return the frame on the same machine whose host has a memory of its own, as large."""
        roles = self.frame.roles
        shared = roles.hardware.memory(roles.host.memory)
        own = shared.model_copy(update={"name": f"{shared.name} of the host", "kind": "dram"})
        devices = tuple(
            device.model_copy(update={"memory": own.name}) if device.kind == "cpu" else device
            for device in roles.hardware.devices
        )
        changed = {"memories": (*roles.hardware.memories, own), "devices": devices}
        return replace(self.frame, roles=roles.on(roles.hardware.model_copy(update=changed)))

    def _fits_all(self, split: SlotSplit) -> bool:
        return all(need <= target for need, target in zip(self._needs(split), self._targets(), strict=True))

    def _all_but_experts_fit(self) -> bool:
        """Whether everything but experts fits the accelerators, their memories taken together."""
        model = self.frame.model
        moved = Override("experts", HOST, experts_of(model, range(model.layers)))
        counts = slot_counts(model.layers + 1, [float(target) for target in self._targets()])
        needs = self._needs(SlotSplit(self.frame, counts, (moved,), self.op_offload))
        return sum(needs) < sum(self._targets())

    def _without_experts(self) -> _Shares:
        """Return as many slots as fit, without experts, the last accelerator's first."""
        count = len(self.frame.roles.accelerators)
        shares: _Shares = (_Share(),) * count
        for number in reversed(range(count)):
            left = self.frame.model.layers + 1 - sum(share.slots for share in shares)

            def filled(slots: int, number: int = number, shares: _Shares = shares) -> _Shares:
                partial = 0
                if self.frame.model.routed and slots:
                    partial = slots - 1 if number == count - 1 else slots
                return _with(shares, number, _Share(slots, partial))

            shares = filled(self._most(left, filled, number))
        return shares

    def _with_experts(self, shares: _Shares) -> _Shares:
        """Return the slots of which as many as fit have their experts, and one more a part of its network."""
        last = len(shares) - 1
        first = next((number for number, share in enumerate(shares) if share.slots), last)
        for number in range(first + 1):
            giver = _first_partial(shares, first)
            most = sum(share.partial for share in shares[giver:])

            def whole(count: int, number: int = number, giver: int = giver, shares: _Shares = shares) -> _Shares:
                return _completed(shares, number, giver, count)

            shares = whole(self._most(most, whole, number))
            first = _first_partial(shares, giver)
            if shares[first].partial and shares[first].slots > (0 if number < last else 1):
                shares = self._with_part(shares, number, first)
        return shares

    def _with_part(self, shares: _Shares, number: int, giver: int) -> _Shares:
        """Return the same with the largest part of one more layer's network that fits."""
        moved = _with(shares, giver, shares[giver].add(-1, -1))
        moved = _with(moved, number, moved[number].add(1, 1))
        best = shares
        for left in ("all but up", "down"):
            tried = self._leaving(moved, number, left)
            if not self._has_room(tried, number):
                break
            best = tried
        if best is not shares:
            return best
        tried = self._leaving(moved, number, "network")
        return tried if self._has_room(tried, number) else shares

    def _leaving(self, shares: _Shares, number: int, left: Left) -> _Shares:
        passed_on = number < len(shares) - 1
        return _with(shares, number, replace(shares[number], left=left, passed_on=passed_on))

    def _has_room(self, shares: _Shares, number: int) -> bool:
        needs, targets = self._needs(self._split(shares)), self._targets()
        return all(needs[at] < targets[at] for at in range(number, min(number + 2, len(shares))))

    def _most(self, most: int, shares: Callable[[int], _Shares], number: int) -> int:
        """Return the largest count up to `most` with which accelerator `number` has room; 0 where none has."""
        target = self._targets()[number]

        def lacks(count: int) -> bool:
            return self._needs(self._split(shares(count)))[number] > target

        return bisect_right(range(1, most + 1), False, key=lacks)

    def _split(self, shares: _Shares) -> SlotSplit:
        counts = tuple(share.slots for share in shares)
        return SlotSplit(self.frame, counts, tuple(self._overrides(shares)), self.op_offload)

    def _overrides(self, shares: _Shares) -> Iterator[Override]:
        layers, devices = self.frame.model.layers, self.frame.roles.accelerators
        reached = layers + 1 - sum(share.slots for share in shares)
        for number, share in enumerate(shares):
            first, reached = reached + share.slots - share.partial, reached + share.slots
            partial = range(first, min(reached, layers))
            if partial and share.left != "experts":
                side = devices[number + 1].name if share.passed_on else HOST
                yield self._override(partial[:1], share.left, side)
                partial = partial[1:]
            for start in range(0, len(partial), _TOGETHER):
                yield self._override(partial[start : start + _TOGETHER], "experts", HOST)

    def _override(self, blocks: range, left: Left, side: Side) -> Override:
        numbers = "|".join(map(str, blocks))
        pattern = rf"blk\.({numbers})\.{_PATTERNS[left]}"
        chosen = frozenset((name, layer) for name, layer in _parts(self.frame.model, left) if layer in blocks)
        return Override(f"{pattern}={buffer_name(self.frame.roles, side)}", side, chosen)


@lru_cache(maxsize=64)
def _parts(model: Model, left: Left) -> frozenset[TensorKey]:
    """Return the tensors of a part of all blocks."""
    return selected_tensors(tensor_pattern(rf"blk\.\d+\.{_PATTERNS[left]}"), model)


def _with(shares: _Shares, number: int, share: _Share) -> _Shares:
    return (*shares[:number], share, *shares[number + 1 :])


def _first_partial(shares: _Shares, start: int) -> int:
    """Return the first accelerator from `start` on that has layers without experts; the last where none has."""
    return next((n for n in range(start, len(shares)) if shares[n].partial), len(shares) - 1)


def _completed(shares: _Shares, number: int, giver: int, count: int) -> _Shares:
    """Return the shares after `count` layers without experts, of the accelerators from `giver` on, have become whole
    layers of accelerator `number`."""
    for other in range(giver, len(shares)):
        taken = min(count, shares[other].partial)
        shares = _with(shares, other, shares[other].add(-taken, -taken))
        shares = _with(shares, number, shares[number].add(taken, 0))
        count -= taken
    return shares
