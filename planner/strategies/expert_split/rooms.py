"""The bytes of layouts of `expert-split` in the accelerator's memory and the host's, without placing every one."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from helmsman.lowering.routing import experts_of
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import block_tensors, embedding_tensors, output_tensors
from helmsman.planner.memory.cache_bytes import kv_block_bytes, state_block_bytes
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.strategies.expert_split.layout import (
    ExpertLayout,
    cached_layers,
    expert_count,
    expert_layers,
    place,
)
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.tensor_formats import size_in

_STAGES = 2
"""Stages whose streamed experts are held: the one that is computed, and the one that comes."""


@dataclass(frozen=True)
class Rooms:
    """The rooms of a question: what memories have left beside a layout."""

    frame: Frame

    def fit(self, layout: ExpertLayout) -> bool:
        """Whether both memories have room for a layout."""
        return self.on_accelerator(layout) >= 0 and (self._host_holds_all or self.on_host(layout) >= 0)

    def on_accelerator(self, layout: ExpertLayout) -> int:
        """Return bytes of the accelerator's memory that a layout leaves; below 0: that it lacks."""
        available = self._available(self.frame.accelerator.memory)
        if layout.host == self.frame.model.layers:
            return available
        experts = self._experts_from[layout.host] - self._away_bytes(layout) + self._held(layout)
        used = self._buffers(layout)[self.frame.accelerator.memory] + self._dense_from[layout.host] + experts
        used += self._spare(layout) - self._cached_away(layout)
        return available - used - self._arriving(layout) - (self._entry if layout.entry else 0)

    def on_host(self, layout: ExpertLayout) -> int:
        """Return bytes of the host's memory that a layout leaves; below 0: that it lacks."""
        whole = self._dense_from[0] - self._dense_from[layout.host]
        whole += self._experts_from[0] - self._experts_from[layout.host]
        away = self._away_bytes(layout) - (0 if layout.rule is not None else self._held(layout))
        ends = self._ends - self._tied if layout.host == self.frame.model.layers else 0
        used = self._buffers(layout)[self.frame.roles.host.memory] + whole + away + ends + self._cached_away(layout)
        return self._available(self.frame.roles.host.memory) - used

    def most_held(self, layout: ExpertLayout) -> int:
        """Return how many experts of each layer whose others are on the host fit the accelerator's memory."""
        away, left = self._away_bytes(layout), self.on_accelerator(layout)
        if not away or left <= 0:
            return 0
        per_expert = away // self.experts
        if layout.streamed:
            per_expert -= _STAGES * self.most_bytes // self.experts
        return min(self.experts - 1, left // per_expert) if per_expert > 0 else self.experts - 1

    def cached(self) -> int:
        """Return bytes of the caches that may be on the host by themselves."""
        return self._cached_sums[-1]

    def _cached_away(self, layout: ExpertLayout) -> int:
        """Return bytes of the caches that are on the host while their blocks are not."""
        if not layout.attended:
            return 0
        first = self._cached_before[layout.host]
        last = min(first + layout.attended, len(self._cached_sums) - 1)
        return self._cached_sums[last] - self._cached_sums[first]

    def slots_in_all(self, layout: ExpertLayout) -> int:
        """Return how many slots of all layers together fit the accelerator's memory beside a layout without any."""
        return max(0, self.on_accelerator(layout)) * self.experts // self.most_bytes

    def _away(self, layout: ExpertLayout) -> tuple[int, ...]:
        """Return the layers that have experts on the host, but are not there whole."""
        first = self._experts_before[layout.host]
        return self._layers[first : first + layout.away]

    def _away_bytes(self, layout: ExpertLayout) -> int:
        """Return bytes of the experts of these layers."""
        first = self._experts_before[layout.host]
        after = self._layers[first + layout.away :]
        return self._experts_from[layout.host] - self._experts_from[after[0] if after else self.frame.model.layers]

    def _held(self, layout: ExpertLayout) -> int:
        """Return bytes of experts on the accelerator of layers whose others are on the host."""
        if not layout.by_layer:
            held = layout.kept if layout.rule is None else layout.slots
            return round(self._away_bytes(layout) * held / self.experts)
        sizes = (self._experts_from[layer] - self._experts_from[layer + 1] for layer in self._away(layout))
        return round(sum(size * slots for size, slots in zip(sizes, layout.by_layer, strict=False)) / self.experts)

    def _spare(self, layout: ExpertLayout) -> int:
        """Return bytes of slots for experts that come to prompts beside pinned ones: as many as a token chooses."""
        rule = layout.rule
        if rule is None or rule.eviction != "popularity" or not layout.streamed:
            return 0
        experts = experts_of(self.frame.model, self._layers[0])
        return 0 if experts is None else experts.chosen * self.most_bytes // self.experts

    def _arriving(self, layout: ExpertLayout) -> int:
        """Return bytes in which streamed experts arrive: those of a layer that are not there, twice."""
        if not layout.streamed or not self._away(layout):
            return 0
        least = layout.kept
        if layout.rule is not None:
            least = min(map(layout.slots_of, range(len(self._away(layout)))))
        return _STAGES * round(self.most_bytes * (1 - least / self.experts))

    def _available(self, memory: str) -> int:
        return self.frame.roles.hardware.memory(memory).available

    @cached_property
    def _host_holds_all(self) -> bool:
        """Whether the host has room for everything, wherever experts are."""
        return self.on_host(ExpertLayout(self.frame.model.layers, 0)) >= 0

    @cached_property
    def experts(self) -> int:
        """Return how many experts a layer has."""
        return expert_count(self.frame.model)

    @cached_property
    def _layers(self) -> tuple[int, ...]:
        return expert_layers(self.frame.model)

    @cached_property
    def _experts_before(self) -> tuple[int, ...]:
        experts = set(self._layers)
        return tuple(accumulate((layer in experts for layer in range(self.frame.model.layers)), initial=0))

    @cached_property
    def most_bytes(self) -> int:
        """Return bytes of all experts of the layer that has most."""
        return max(self._experts_from[layer] - self._experts_from[layer + 1] for layer in self._layers)

    @cached_property
    def _ends(self) -> int:
        """Return bytes of what follows the blocks, and is on the accelerator where any block is."""
        return sum(self._size(tensor) for tensor in output_tensors(self.frame.model))

    def _size(self, tensor: Tensor) -> int:
        return size_in(tensor, self.frame.formats, self.frame.weights)

    @cached_property
    def _entry(self) -> int:
        """Return bytes of what is before the blocks, but for a table that a tied head is anyway."""
        return sum(self._size(tensor) for tensor in embedding_tensors(self.frame.model)) - self._tied

    @cached_property
    def _tied(self) -> int:
        """Return bytes of these that the host has anyway: a tied head is the embedding's table."""
        tensors = output_tensors(self.frame.model)
        return sum(self._size(tensor) for tensor in tensors if tensor.tied_to is not None)

    def _sizes(self, layer: int) -> tuple[int, int]:
        """Return bytes of a layer beside its experts, with its caches and states, and of its experts."""
        model, work = self.frame.model, self.frame.workload
        members = block_tensors(model, layer)
        formats, otherwise = self.frame.formats, self.frame.weights
        experts = sum(size_in(tensor, formats, otherwise) for tensor in members if tensor.stacked)
        dense = sum(size_in(tensor, formats, otherwise) for tensor in members) - experts
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
        pattern = self.frame.model.pattern
        of = {letter: self._sizes(pattern.index(letter))[which] for letter in dict.fromkeys(pattern)}
        own = bool(self.frame.formats)  # layers of one letter may differ in them
        sizes = [self._sizes(layer)[which] if own else of[letter] for layer, letter in enumerate(pattern)]
        backwards = accumulate(reversed(sizes), initial=0)
        return tuple(backwards)[::-1]

    def _buffers(self, layout: ExpertLayout) -> Mapping[str, int]:
        """Return by memory bytes beside blocks and caches."""
        return self._buffers_attending if layout.attended else self._buffers_alone

    @cached_property
    def _buffers_alone(self) -> Mapping[str, int]:
        """Return the same where all experts, and no caches, are on the host."""
        return self._beside(ExpertLayout(0, len(self._layers)))

    @cached_property
    def _buffers_attending(self) -> Mapping[str, int]:
        """Return the same where all caches are on the host as well."""
        return self._beside(ExpertLayout(0, len(self._layers), attended=len(cached_layers(self.frame.model))))

    def _beside(self, layout: ExpertLayout) -> Mapping[str, int]:
        used = {use.memory: use.used for use in memory_use(place(self.frame, layout))}
        accelerator, host = self.frame.accelerator.memory, self.frame.roles.host.memory
        cached = self._cached_away(layout)
        return {
            accelerator: used[accelerator] - self._dense_from[0] + cached,
            host: used[host] - self._experts_from[0] - cached,
        }

    @cached_property
    def _cached_before(self) -> tuple[int, ...]:
        """Return by layer how many layers before it have caches of their own."""
        cached = set(cached_layers(self.frame.model))
        return tuple(accumulate((layer in cached for layer in range(self.frame.model.layers)), initial=0))

    @cached_property
    def _cached_sums(self) -> tuple[int, ...]:
        """Return bytes of the caches of the first 0, 1, ... layers that have some."""
        model, work = self.frame.model, self.frame.workload
        sizes = (kv_block_bytes(model, work, self.frame.kv, layer) for layer in cached_layers(model))
        return tuple(accumulate(sizes, initial=0))
