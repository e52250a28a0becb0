"""Experts in slots, pass by pass: which are looked up, which come and which leave.

`scheduler.expert_cache` says what slots hold after a pass; here experts are copied so that they do. Where misses are
computed beside the slots, on the host, they enter behind the pass. Where they are fetched, they come in rounds in
ascending order, as many at a time as slots hold, so that sums have the order that they would have without slots.
Whoever looks up experts or ends a pass starts their copies after that (`SlotTable.start`), once others know what they
are to compute."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.devices.parts import CopyEngine
from helmsman.executor.passes.phase_pass import SlotMode
from helmsman.executor.routing.slot_room import ABSENT, SlotRoom, SlotRooms
from helmsman.executor.routing.slot_table import SlotTable
from helmsman.lowering.expert_parts import fetched_experts
from helmsman.lowering.routing import experts_of, pinned_experts
from helmsman.scheduler.expert_cache import CachePass, ExpertCache
from helmsman.schemas.expert_cache import ExpertCacheCounts
from helmsman.schemas.plan import Plan

Ids = NDArray[np.int32]
"""(rows, chosen): the experts of every row of a pass."""


_FEW = 256
"""Choices up to which a set is made sooner of a list than of an array."""


class PassCounts(NamedTuple):
    """Counts what slots of a layer did in a pass; see `schemas.expert_cache`."""

    hits: int = 0
    misses: int = 0
    fetched: int = 0
    evictions: int = 0

    def plus(self, other: "PassCounts") -> "PassCounts":
        """Return the counts of both."""
        return PassCounts(*map(sum, zip(self, other, strict=True)))


NO_EXPERTS = PassCounts()
"""The counts of slots that there are not."""


@dataclass
class LayerSlots:
    """The slots of a layer. A pass begins, looks up the experts of its rows, chunk after chunk, and ends in the same
    mode; `counts`: of the passes since a run began; `looked_up`: when the latest was, in seconds."""

    table: SlotTable
    cache: ExpertCache
    counts: list[PassCounts] = field(default_factory=list)
    looked_up: float = 0.0
    _chosen: set[int] = field(default_factory=set)
    _used: set[int] = field(default_factory=set)
    _before: frozenset[int] = frozenset()
    _late: frozenset[int] = frozenset()
    _waiting: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.cache.pinned:
            self.table.admit(self.cache.experts, ())
            self.table.settle()

    def counted(self, layer: int) -> ExpertCacheCounts:
        """Return what slots did since a run began, as block `layer` of run 0."""
        columns = zip(*self.counts, strict=True) if self.counts else ((),) * len(PassCounts._fields)
        hits, misses, fetched, evictions = (tuple(column) for column in columns)
        return ExpertCacheCounts(
            run=0,
            layer=layer,
            iterations=tuple(range(len(self.counts))),
            hits=hits,
            misses=misses,
            fetched=fetched,
            evictions=evictions,
        )

    def restart(self) -> None:
        """A run begins: slots are empty, unless their experts are pinned."""
        self.counts.clear()
        if not self.cache.pinned:
            self.table.clear()
            self.cache.experts.clear()
            self._waiting = ()

    def beside(self, ids: Ids, message: Ids | None, first: bool) -> frozenset[int]:
        """Let stages compute the hits among the experts of some rows, and take them out of the `message` that says what
        is computed elsewhere; return them."""
        chosen = self._look_up(ids, first)
        hits = self._before & chosen
        self.table.show(hits, self._late)
        self._take_out(message)
        return hits

    def end_beside(self, busy: AbstractSet[int] = frozenset()) -> None:
        """End a pass whose misses are computed elsewhere: those enter that stay, but to no slot that is `busy`."""
        result = self.cache.use(self._chosen)
        self.table.end()
        self._waiting = self._enter(result.entering, busy)
        self._count(result)

    def divided(self, ids: Ids, message: Ids | None, first: bool) -> None:
        """Let stages compute the hits among the experts of some rows, and the first of those that missed: the share
        that is fetched, as far as slots hold no others of this pass; the `message` says what is computed elsewhere."""
        chosen = self._look_up(ids, first)
        hits = {expert for expert in chosen if expert in self.table.slot_of}
        self._used |= hits
        missing, rule = sorted(chosen - hits), self.table.room.rule
        most = min(fetched_experts(len(missing), rule.fetched or 0.0), rule.slots - len(self._used)) if missing else 0
        fetched, victims = missing[: max(0, most)], [e for e in self._least_recent() if e not in self._used]
        self.table.admit(fetched, victims)
        self._used.update(fetched)
        self.table.show(hits.union(fetched), fetched)
        self._take_out(message)

    def end_divided(self) -> None:
        """End a pass whose misses came in part."""
        result = self.cache.use(self._used)
        self._count(result._replace(misses=tuple(sorted(self._chosen - set(result.hits)))))

    def rounds(self, ids: Ids, first: bool) -> Iterator[None]:
        """Bring the experts of some rows; yields when stages are to compute those of a round, but for the last."""
        wanted, done = sorted(self._look_up(ids, first)), 0
        while done < len(wanted):
            now, misses, victims = self._round(wanted, done)
            self.table.admit(misses, victims)
            self.table.show(now, {*misses, *self._late}, on=done > 0)
            done += len(now)
            if done < len(wanted):
                yield

    def end_rounds(self) -> None:
        """End a pass whose experts came in rounds."""
        result = self.cache.use(self._chosen)
        self._waiting = tuple(expert for expert in self.cache.experts if expert not in self.table.slot_of)
        self._count(result)

    def end(self, mode: SlotMode) -> None:
        """End a pass whose experts were looked up in this mode, once all of them have been computed."""
        match mode:
            case "host":
                self.end_beside()
            case "divided":
                self.end_divided()
            case "fetched":
                self.end_rounds()

    def _take_out(self, message: Ids | None) -> None:
        """What stages compute here is computed nowhere else."""
        if message is not None:
            message[self.table.shown(message)] = ABSENT

    def _look_up(self, ids: Ids, first: bool) -> set[int]:
        """Return the experts of some rows; with the first ones of a pass, see what slots hold."""
        self.table.leave_spare()
        if first:
            self.table.begin()
            self._chosen, self._used = set(), set()
            self._before, self._late = frozenset(self.cache.experts), frozenset(self._waiting)
            self._enter(self._waiting, frozenset())
            self.table.copied = 0  # they have been counted
        chosen = set[int](ids.ravel().tolist() if ids.size <= _FEW else np.unique(ids).tolist())
        self._chosen |= chosen
        return chosen

    def _enter(self, experts: Sequence[int], busy: AbstractSet[int]) -> tuple[int, ...]:
        """Copy experts to the slots of those that the cache has dropped, unless these are `busy`; return those that
        must wait for the next pass."""
        if not experts:
            return ()
        kept = {*self.cache.experts, *busy}
        return self.table.admit(experts, [expert for expert in self.table.slot_of if expert not in kept])

    def _round(self, wanted: Sequence[int], done: int) -> tuple[Sequence[int], list[int], list[int]]:
        """Return the next experts that are in slots together, those of them that must come, and whose slots they take:
        first of experts that nobody wants, least recent first, then of those that are done; if every slot holds one
        that is still wanted, of the last of these."""
        slot_of, pinned = self.table.slot_of, set(self.cache.experts) if self.cache.pinned else set[int]()
        later = [expert for expert in wanted[done:] if expert in slot_of]
        room, misses, stop = self.table.room.count - len(pinned.union(later)), list[int](), done
        if room == 0 and wanted[done] not in slot_of:
            room, dropped = 1, later.pop()
        else:
            dropped = None
        while stop < len(wanted) and (wanted[stop] in later or len(misses) < room):
            if wanted[stop] not in later:
                misses.append(wanted[stop])
            stop += 1
        unwanted = [expert for expert in self._least_recent() if expert not in wanted and expert not in pinned]
        past = [expert for expert in wanted[:done] if expert in slot_of and expert not in pinned]
        return wanted[done:stop], misses, [*unwanted, *past, *([] if dropped is None else [dropped])]

    def _least_recent(self) -> list[int]:
        """Return who is in slots, as the cache has them; others first."""
        order = {expert: place for place, expert in enumerate(self.cache.experts)}
        return sorted(self.table.slot_of, key=lambda expert: order.get(expert, -1))

    def _count(self, result: CachePass) -> None:
        fetched = self.table.copied + len(self._waiting) * self.table.room.expert_bytes
        self.counts.append(PassCounts(len(result.hits), len(result.misses), fetched, len(result.leaving)))


def layer_slots(plan: Plan, rooms: SlotRooms, engines: Mapping[str, CopyEngine]) -> dict[int, LayerSlots]:
    """Return the slots of all layers that have some. `engines`: of links, by name."""
    result = {}
    for layer, room in sorted(rooms.of_layer.items()):
        link = plan.hardware.link(next(iter(room.matrices.values())).home.memory, room.rule.memory)
        assert link is not None, "opened with the plan's lanes"
        result[layer] = LayerSlots(SlotTable(room, engines[link.name]), _cache(plan, room, layer))
    return result


def _cache(plan: Plan, room: SlotRoom, layer: int) -> ExpertCache:
    if room.rule.eviction == "least-recent":
        return ExpertCache(room.rule.slots)
    routing, experts = plan.workload.routing, experts_of(plan.model, layer)
    assert experts is not None, "a layer with slots"
    own = None if routing is None else routing.of_layer.get(layer)
    return ExpertCache.of_popular(pinned_experts(experts, room.rule.slots, own))
