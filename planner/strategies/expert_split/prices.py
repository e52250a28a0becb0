"""The seconds and bytes of blocks in every configuration of `expert-split`: the closed form by which it searches.

A block's seconds are by how much a pass over a few more such blocks takes longer, so that what overlaps within a block
counts once, and what passes only at the ends of a model not at all."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Literal

from helmsman.lowering.lower import lower
from helmsman.lowering.tensors import block_tensors
from helmsman.planner.cost.model import CostModel
from helmsman.planner.memory.cache_bytes import kv_block_bytes, state_block_bytes
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.prediction.predict import mean_step, pass_seconds
from helmsman.planner.strategies.expert_split.layout import (
    ExpertLayout,
    expert_count,
    expert_layers,
    place,
)
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.scheduler.iteration import Iteration, Phase, prefill

_FEW, _MORE = 2, 4
"""Blocks of the models whose difference gives the seconds of one: two follow each other in both, as in a long model."""

Configuration = Literal["host", "away", "accelerator"]
"""Where a block is: wholly on the host, but for experts on the accelerator, or wholly there."""


@dataclass(frozen=True)
class BlockPrices:
    """The prices of a question's blocks. `costs`: of the machine."""

    frame: Frame
    costs: CostModel

    def seconds(self, layout: ExpertLayout, phase: Phase) -> float:
        """Return the closed form of a pass: the sum over its blocks, and what passes at the ends of the model."""
        host, rest = self._added_up("host", phase), self._added_up("accelerator", phase)
        first = self._experts_before[layout.host]
        moved = self._moved(layout.kept, layout.streamed, phase)
        last = min(first + layout.away, len(moved) - 1)
        on_accelerator = rest[-1] - rest[layout.host]
        return self._ends(phase, layout.host) + host[layout.host] + on_accelerator + moved[last] - moved[first]

    def _added_up(self, where: Configuration, phase: Phase) -> tuple[float, ...]:
        """Return the seconds of the first 0, 1, ... blocks where all of them are in one configuration."""
        key = where, phase
        if key not in self._sums_of:
            blocks = (self._block(letter, where, 0, False, phase) for letter in self.frame.model.pattern)
            self._sums_of[key] = tuple(accumulate(blocks, initial=0.0))
        return self._sums_of[key]

    def _moved(self, kept: int, streamed: bool, phase: Phase) -> tuple[float, ...]:
        """Return by how much the first 0, 1, ... layers with experts take longer with experts on the host."""
        key = kept, streamed, phase
        if key not in self._moved_of:
            pattern = self.frame.model.pattern
            letters = [pattern[layer] for layer in expert_layers(self.frame.model)]
            more = (
                self._block(letter, "away", kept, streamed, phase) - self._block(letter, "accelerator", 0, False, phase)
                for letter in letters
            )
            self._moved_of[key] = tuple(accumulate(more, initial=0.0))
        return self._moved_of[key]

    @cached_property
    def _experts_before(self) -> tuple[int, ...]:
        """Return by layer how many layers before it have experts."""
        experts = set(expert_layers(self.frame.model))
        return tuple(accumulate((layer in experts for layer in range(self.frame.model.layers)), initial=0))

    def _block(self, letter: str, where: Configuration, kept: int, streamed: bool, phase: Phase) -> float:
        key = letter, where, kept, streamed, phase
        if key not in self._known:
            few, more = (self._pass(letter * count, where, kept, streamed, phase) for count in (_FEW, _MORE))
            self._known[key] = (more - few) / (_MORE - _FEW)
        return self._known[key]

    def _pass(self, pattern: str, where: Configuration, kept: int, streamed: bool, phase: Phase) -> float:
        frame = replace(self.frame, model=self.frame.model.with_pattern(pattern))
        blocks = len(pattern)
        layout = {
            "host": ExpertLayout(blocks, 0),
            "away": ExpertLayout(0, blocks, kept, streamed),
            "accelerator": ExpertLayout(0, 0),
        }[where]
        return pass_seconds(lower(place(frame, layout), self.iteration(phase)), self.costs)

    def _ends(self, phase: Phase, host: int) -> float:
        """Return what a pass takes beside its blocks, where they are on the accelerator, or where the last ones are."""
        where: Configuration = "host" if host == self.frame.model.layers else "accelerator"
        letter = self.frame.model.pattern[-1]
        if (where, phase) not in self._ends_of:
            few = self._pass(letter * _FEW, where, 0, False, phase)
            self._ends_of[where, phase] = few - _FEW * self._block(letter, where, 0, False, phase)
        return self._ends_of[where, phase]

    def iteration(self, phase: Phase) -> Iteration:
        """Return the pass that stands for a phase."""
        work = self.frame.workload
        return prefill(work) if phase == "prefill" else mean_step(work)

    def room(self, layout: ExpertLayout) -> int:
        """Return bytes of the accelerator's memory that a candidate leaves; below 0: that it lacks."""
        away = self._away(layout)
        experts = self._experts_from[layout.host] - self._expert_bytes * away
        experts += round(self._expert_bytes * away * layout.kept / self._count)
        used = self._buffers(layout.streamed) + self._dense_from[layout.host] + experts
        return self._available - used

    def _away(self, layout: ExpertLayout) -> int:
        """Return how many layers have experts on the host, but are not there whole."""
        return min(layout.away, self._experts_before[-1] - self._experts_before[layout.host])

    def most_kept(self, layout: ExpertLayout) -> int:
        """Return how many experts of each layer whose others are on the host fit the accelerator's memory."""
        away = self._away(layout)
        left = self.room(replace(layout, kept=0))
        if not away or left <= 0:
            return 0
        return min(self._count - 1, left * self._count // (self._expert_bytes * away))

    @cached_property
    def _known(self) -> dict[tuple[str, Configuration, int, bool, Phase], float]:
        return {}

    @cached_property
    def _sums_of(self) -> dict[tuple[Configuration, Phase], tuple[float, ...]]:
        return {}

    @cached_property
    def _moved_of(self) -> dict[tuple[int, bool, Phase], tuple[float, ...]]:
        return {}

    @cached_property
    def _ends_of(self) -> dict[tuple[Configuration, Phase], float]:
        return {}

    @cached_property
    def _available(self) -> int:
        return self.frame.roles.hardware.memory(self.frame.accelerator.memory).available

    @cached_property
    def _count(self) -> int:
        return expert_count(self.frame.model)

    @cached_property
    def _expert_bytes(self) -> int:
        """Return bytes of all experts of one layer."""
        return self._sizes(expert_layers(self.frame.model)[0])[1]

    def _sizes(self, layer: int) -> tuple[int, int]:
        """Return bytes of a layer beside its experts, with its caches and states, and of its experts."""
        model, work = self.frame.model, self.frame.workload
        members = block_tensors(model, layer)
        experts = sum(tensor.size(self.frame.weights) for tensor in members if tensor.stacked)
        dense = sum(tensor.size(self.frame.weights) for tensor in members) - experts
        cached = kv_block_bytes(model, work, self.frame.kv, layer) + state_block_bytes(model, work, layer)
        return dense + cached, experts

    @cached_property
    def _dense_from(self) -> tuple[int, ...]:
        """Return by layer the bytes beside experts of it and all after it, and 0."""
        return self._sums(0)

    @cached_property
    def _experts_from(self) -> tuple[int, ...]:
        return self._sums(1)

    def _sums(self, which: int) -> tuple[int, ...]:
        model = self.frame.model
        sizes = {letter: self._sizes(model.pattern.index(letter))[which] for letter in dict.fromkeys(model.pattern)}
        backwards = accumulate((sizes[letter] for letter in reversed(model.pattern)), initial=0)
        return tuple(backwards)[::-1]

    def _buffers(self, streamed: bool) -> int:
        """Return bytes of the accelerator's memory beside blocks, where all experts are on the host."""
        if streamed not in self._buffer_bytes:
            layout = ExpertLayout(0, len(expert_layers(self.frame.model)), 0, streamed)
            placed = place(self.frame, layout)
            used = {use.memory: use.used for use in memory_use(placed)}[self.frame.accelerator.memory]
            self._buffer_bytes[streamed] = used - self._dense_from[0]
        return self._buffer_bytes[streamed]

    @cached_property
    def _buffer_bytes(self) -> dict[bool, int]:
        return {}
