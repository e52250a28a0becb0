"""The compositions that are predicted block by block in order, and the bound on all of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import numpy as np

from helmsman.lowering.buffers import buffer_bytes
from helmsman.lowering.lower import lower
from helmsman.lowering.placement import batches_together, known
from helmsman.planner.machine import Roles
from helmsman.planner.memory import memory_use
from helmsman.planner.predict import mean_step, pass_seconds
from helmsman.planner.strategies.optimal.alike import Alike
from helmsman.planner.strategies.optimal.block_ways import in_groups, on_accelerator, on_host
from helmsman.planner.strategies.optimal.compose import Composition
from helmsman.planner.strategies.optimal.compositions import EFFORT, Aim, Compositions, Found
from helmsman.planner.strategies.optimal.order import ordered, roughly
from helmsman.planner.strategies.optimal.pace import Track
from helmsman.planner.strategies.optimal.polish import Estimate, Nearby
from helmsman.planner.strategies.optimal.resident import resident
from helmsman.planner.strategies.optimal.rules import Assignment, Ends, place
from helmsman.planner.strategies.optimal.settle import Settling
from helmsman.planner.strategies.optimal.several import AllBlocks
from helmsman.planner.strategies.optimal.stored_blocks import fullest, needs_store
from helmsman.planner.strategies.optimal.tightest import Tightest, saving
from helmsman.planner.strategies.optimal.tracks import Tracks
from helmsman.planner.strategies.optimal.tries import ALL, Among, Try, tried
from helmsman.planner.strategies.optimal.ways import Chosen
from helmsman.planner.strategies.streaming.place import Frame, Quarter
from helmsman.planner.strategies.streaming.question import Question
from helmsman.scheduler.iteration import prefill

_LINED_UP, _OF_SEVERAL, _FINALISTS = 4, 8, 2
"""So many compositions are brought into their best order, so many of several accelerators, whose patterns say less of
that, and so many predicted."""

_WORSE = 1.01
"""What seems to take so much longer than the best known is not."""

_APART = 2e-3
"""What seems to take more than another one on several accelerators by such a share does, where both stream."""

_GOOD = 0.005
"""So near to its bound, as a share, a plan needs no other room for what is on its way."""

_FINE, _CHANGED = 0.01, 2
"""So near to its bound, as a share, blocks of a plan are not changed; of so many plans they are."""

_EVEN = 1.3
"""So many times the mean seconds of the link a block may have, or a little more."""

_FAR, _SHARES = 0.03, (0.95, 0.9, 0.82, 0.74)
"""So far above the bound, as a share, what is composed must keep such shares of its limits."""

_AGAIN: Try = (1, 1.7, "any", 0.0)
"""Among such ways, then."""

_TRIES = 3
"""So often a search is repeated with less room."""


@dataclass(frozen=True)
class Finalist:
    """An assignment of one question's blocks, and its seconds under the objective as they are predicted."""

    question: Question
    chosen: Assignment
    seconds: float


@dataclass(frozen=True)
class Finalists:
    """The search for one question under `aim`; `effort`: of how many partial compositions it consists at most beside
    those around its relaxation."""

    question: Question
    aim: Aim
    effort: int = EFFORT

    @cached_property
    def answer(self) -> tuple[tuple[Finalist, ...], float]:
        """The best that fit, as they are predicted, and seconds that no composition beats, nor a side alone."""
        if self.too_large:
            return (), inf
        found, bound = list(self.alone), self.floor
        alone = _least(found)
        for each in self._tried if self.composable else ():
            best = _least(found)
            if best <= min(alone, bound) * (1 + _GOOD):
                break
            for space in self._spaces(*each):
                composed = self._found(space, best)
                self._composed[each] = space, composed
                found += self._predicted(space, composed, best)
                if each == ALL and isinstance(space.blocks, AllBlocks):
                    bound = max(bound, composed.bound)
                if not found and not self.aim.limits:
                    found += self._tight
                    if not found:
                        return (), self.floor
        if self.aim.limits and self._composed and _least(found) > min(alone, bound) * (1 + _FAR):
            found += self._within_less(_least(found))
        return (*found, *self._changed(found, min(alone, bound))), min(alone, bound)

    def _changed(self, found: Sequence[Finalist], bound: float) -> Iterator[Finalist]:
        """The best of those composed with blocks changed while that helps, if they are far from the bound."""
        composed = [each for each in found if self._stepwise and len(set(each.chosen.blocks)) > 1]
        if not composed or _least(found) <= bound * (1 + _FINE):
            return
        spaces = sorted((space for space, _ in self._composed.values()), key=lambda space: len(space.names))
        ahead = {space.prefetch: space for space in spaces}
        for each in sorted(composed, key=lambda each: each.seconds)[:_CHANGED]:
            changed = tuple(self._settled(ahead[each.chosen.prefetch], each.chosen))
            yield from changed
            if _least(changed) <= bound * (1 + _FINE):
                return

    def _settled(self, space: Compositions, chosen: Assignment) -> Iterator[Finalist]:
        ends = chosen.embedding, chosen.output
        rows = np.array([self.blocks.ways.index(way) for way in chosen.blocks], dtype=np.intp)
        settled = Settling(space, self._tracks, self.aim, ends).settled(rows)
        found = self.predicted(self.question, self._assignment(space, ends, settled.tolist()))
        if found is not None:
            yield found

    @property
    def _stepwise(self) -> bool:
        """Whether one batch passes blocks of one accelerator, without limits."""
        frame = self.question.frame
        single = self.composable and len(frame.roles.accelerators) == 1 and frame.roles.separate
        return single and frame.workload.batches == 1 and not self.aim.limits

    @property
    def _tried(self) -> tuple[Try, ...]:
        return tried(self.blocks.frame, self.quarters, "prefill" in self.aim.phases)

    def _within_less(self, beat: float) -> Iterator[Finalist]:
        """What keeps lower limits as it adds up: what comes late adds to that."""
        for share in _SHARES:
            aim = replace(self.aim, limits={phase: share * limit for phase, limit in self.aim.limits.items()})
            for space in self._spaces(*_AGAIN):
                near = list(self._predicted(space, space.search(aim, self._floors, beat), beat, aim))
                beat = min(beat, _least(near))
                yield from near

    @property
    def any_fits(self) -> bool:
        """Whether anything fits, limits of phases included, of what needs least; asks for less than the answer."""
        return not self.too_large and (bool(self.alone) or next(self._tight, None) is not None)

    @property
    def _tight(self) -> Iterator[Finalist]:
        """What needs least of one memory or another, as it is predicted, where that fits."""
        for memory in self.memories:
            least = self.least(memory)
            found = None if least is None else self.predicted(self.question, least)
            if found is not None:
                yield found

    @property
    def memories(self) -> tuple[str, ...]:
        """The memories of host, accelerators and store, where blocks may be divided."""
        return self._tightest.blocks.memories if self.composable else ()

    def least(self, memory: str) -> Assignment | None:
        """What needs least of one of the memories, and lacks nothing of others."""
        return self._tightest.least(memory)

    @cached_property
    def _tightest(self) -> Tightest:
        blocks = saving(self._frame, self.question.costs(place(self._frame, fullest(self._frame))))
        return Tightest(blocks, lambda chosen: self.question.lacks(place(self.question.frame, chosen)))

    @property
    def quarters(self) -> tuple[Quarter, ...]:
        """What may be in 4-bit groups, where anything can come to an accelerator."""
        return self.question.frame.quarters if self.question.frame.roles.separate else ()

    @property
    def too_large(self) -> bool:
        """Whether weights and caches exceed all memories together, without those whose devices have no room to work in:
        of many batches, which would take long to lower."""
        frame = self.question.frame
        least = in_groups(frame.model, self.quarters) if self.quarters else on_host(frame.model)
        placed = place(frame, Assignment((least,) * frame.model.layers, "host", "host", {}))
        uses = memory_use(placed)
        free = {use.memory: use.available for use in uses}
        work = buffer_bytes(frame.model, frame.workload, batches=batches_together(placed))
        away = {device.memory for device in frame.roles.accelerators if frame.roles.separate}
        free |= {memory: max(0, free[memory] - work) for memory in away}
        if not any(free[memory] for memory in away):
            free[frame.roles.host.memory] -= work
        return sum(use.weights + use.kv for use in uses) > sum(free.values())

    @cached_property
    def composable(self) -> bool:
        """Whether blocks may be divided among a host and an accelerator."""
        return self.question.frame.roles.accelerator is not None

    @cached_property
    def alone(self) -> tuple[Finalist, ...]:
        """One side with everything, where it fits: the processor with all of its cores, or the accelerator."""
        found = (self.predicted(question, chosen) for question, chosen in self.sides)
        return tuple(sorted((each for each in found if each is not None), key=lambda each: each.seconds))

    @property
    def sides(self) -> Iterator[tuple[Question, Assignment]]:
        """One side with everything, whether it fits or not."""
        frame = self.question.frame
        roles, layers, model = frame.roles, frame.model.layers, frame.model
        solo = replace(frame, roles=Roles(roles.hardware, roles.solo, roles.solo, roles.accelerator))
        yield replace(self.question, frame=solo), Assignment((on_host(model),) * layers, "host", "host", {})
        away = (on_accelerator(model),) * layers
        ends: tuple[Ends, ...] = (("accelerator", "accelerator"), ("host", "accelerator"), ("host", "host"))
        for each in ends if roles.accelerator is not None else ():
            yield self.question, Assignment(away, *each, {})
        if roles.others:
            yield from ((self.question, each) for each in resident(frame))

    def _predicted(self, space: Compositions, found: Found, beat: float, aim: Aim | None = None) -> Iterator[Finalist]:
        """The compositions that take least in order, and one near the best of them, as they are predicted; `aim`: as
        they were composed, if not for the own one."""
        if len(self.question.frame.roles.accelerators) > 1 and self.question.frame.workload.batches > 1:
            yield from self._ranged(space, found, beat)
            return
        estimates: dict[tuple[Ends, object], tuple[Estimate, Nearby]] = {}
        own = self.blocks.ways.index(on_accelerator(self.question.frame.model))
        prompts = self.aim.leading == "prefill"
        for ends in dict.fromkeys((*(ends for ends, _ in found.best), *(space.blocks.arrangements if prompts else ()))):
            near = Nearby(space, aim or self.aim, ends, self._track(ends))
            pool = [composition for there, composition in found.best if there == ends]
            plain = near.simple(own) if prompts else ()
            known = sorted(near.estimates((*pool, *plain)), key=_seconds)
            for each in (*known, *(near.polished(each, pool) for each in known[:1] if pool)):
                estimates[ends, each.composition.counts] = each, near
        best = sorted(estimates.values(), key=lambda pair: pair[0].seconds)
        ordered = sorted(self._lined_up(best), key=lambda pair: pair[0].seconds)
        for estimate, ends in ordered[:_FINALISTS]:
            worse = estimate.seconds > ordered[0][0].seconds * (1 + _APART) and self.question.frame.roles.others
            if worse or estimate.seconds >= beat * (inf if self.quarters else _WORSE):
                return
            chosen = self._assignment(space, ends, estimate.arranged.rows)
            if (chosen.blocks, ends, chosen.prefetch) not in self._seen:
                self._seen.add((chosen.blocks, ends, chosen.prefetch))
                predicted = self.predicted(self.question, chosen)
                if predicted is not None:
                    yield predicted

    def _lined_up(self, best: Sequence[tuple[Estimate, Nearby]]) -> Iterator[tuple[Estimate, Ends]]:
        """The best few in their best order, and where their ends are; those of several accelerators that may take less
        than others do."""
        others, least = bool(self.question.frame.roles.others), inf
        for each, near in best[: _OF_SEVERAL if others else _LINED_UP]:
            if not others or each.composition.seconds < least:
                found = near.lined_up(each)
                least = min(least, found.seconds)
                yield found, near.ends

    @cached_property
    def _composed(self) -> dict[Try, tuple[Compositions, Found]]:
        return {}

    @cached_property
    def _seen(self) -> set[tuple[object, ...]]:
        return set()

    def _assignment(self, space: Compositions, ends: Ends, rows: Sequence[int]) -> Assignment:
        blocks = tuple(self.blocks.ways[row] for row in rows)
        return Assignment(blocks, *ends, self.blocks.shares, space.prefetch)

    def _ranged(self, space: Compositions, found: Found, beat: float) -> Iterator[Finalist]:
        """Of those that take least in order the first in every order, others in its best."""

        def took(each: tuple[Ends, Composition]) -> float:
            counts, track = space.counted(each[1]), self._track(each[0])
            return max(each[1].seconds, roughly(counts, track, 1 + space.prefetch))

        best = sorted((each for each in found.best if each[1].seconds < beat), key=took)[:_FINALISTS]
        better: int | None = None
        for ends, composition in best:
            orders = self._orders(space, ends, composition)
            if better is not None:
                orders = orders[min(better, len(orders) - 1) :][:1]
            predicted = [self.predicted(self.question, each) for each in orders]
            fitting = {number: each for number, each in enumerate(predicted) if each is not None}
            yield from fitting.values()
            if better is None and fitting:
                better = min(fitting, key=lambda number: fitting[number].seconds)

    def _track(self, ends: Ends) -> Track:
        return self._tracks.track(ends, self.aim.weights)

    def _orders(self, space: Compositions, ends: Ends, composition: Composition) -> list[Assignment]:
        """A composition's blocks in order: as it seems best, and in one range for each device where there are more."""
        orders = ordered(space.counted(composition), self._track(ends), 1 + space.prefetch)
        return [self._assignment(space, ends, rows) for rows in orders]

    def _found(self, space: Compositions, beat: float) -> Found:
        """The search, repeated with less room while its best lacks something after all; the bound is that of the
        first."""
        found = first = space.search(self.aim, self._floors, beat)
        for _ in range(_TRIES):
            lacking = self._lacking(space, found)
            if not lacking:
                break
            space.less = {name: space.less.get(name, 0) + size for name, size in lacking.items()}
            found = space.search(self.aim, self._floors, beat)
        return replace(found, bound=first.bound)

    def _lacking(self, space: Compositions, found: Found) -> dict[str, int]:
        """What the best composition lacks; nothing if there is none."""
        if not found.best:
            return {}
        ends, composition = found.best[0]
        counts = space.counted(composition)
        best = self._assignment(space, ends, [row for row, count in counts.items() for _ in range(count)])
        return self.question.lacks(place(self.question.frame, best))

    def _spaces(self, ahead: int, most: float, among: Among, lost: float) -> Iterator[Compositions]:
        """What is composed: where accelerators are alike the part of each, and all with one to which anything comes."""
        smooth = np.intersect1d(self._tracks.smooth(most, self.aim.leading), self._rows(among))
        if self.blocks.alike and most < inf:
            smooth = np.intersect1d(smooth, self.blocks.lopsided())
        waiting = lost * self._tracks.waiting if lost else None
        yield Compositions(self.blocks, ahead, self.effort, among=smooth, lost=waiting)

    def _rows(self, among: Among) -> Chosen:
        """The rows of such ways."""
        if among == "any":
            return np.arange(len(self.blocks.ways))
        if among == "even":
            return self._even
        if among == "undivided":
            return np.flatnonzero([way.prompt != "divided" for way in self.blocks.ways])
        if among == "near":
            return np.flatnonzero([not way.stored for way in self.blocks.ways])
        return np.flatnonzero(["resident" not in way.q4 for way in self.blocks.ways])

    @cached_property
    def _even(self) -> Chosen:
        """Ways whose link is not busy for much longer than on average in the best composition of all."""
        (space, found), link = self._composed[ALL], self._tracks.coming(self.aim.leading)
        counts = (pair for _, composition in found.best[:1] for pair in composition.counts)
        mean = sum(link[space.name(way)] * count for way, count in counts) / self.blocks.count
        return np.flatnonzero(link <= max(_EVEN * mean, link[link >= mean].min(initial=0.0)))

    @property
    def floor(self) -> float:
        """Seconds that no composition beats."""
        return min(self._floors.values()) if self.composable else inf

    @cached_property
    def _floors(self) -> Mapping[Ends, float]:
        """The same, by where the ends are."""
        return Compositions(Alike(self.blocks, "together") if self.blocks.alike else self.blocks).floors(self.aim)

    @cached_property
    def blocks(self) -> AllBlocks:
        """The ways to run a block, priced as if the accelerator kept all that it can."""
        return AllBlocks(self._frame, self.question.costs(place(self._frame, fullest(self._frame))), self.aim.phases)

    @cached_property
    def _tracks(self) -> Tracks:
        return Tracks(self.blocks)

    @cached_property
    def _frame(self) -> Frame:
        """The frame with a store where that can matter."""
        frame = self.question.frame
        return frame if needs_store(frame) else replace(frame, store=None)

    def predicted(self, question: Question, chosen: Assignment) -> Finalist | None:
        """An assignment as it is predicted; None if it does not fit, or is over a limit."""
        placed = known(place(question.frame, chosen))
        if not question.fits(placed):
            return None
        costs, together, work = question.costs(placed), batches_together(placed), placed.workload
        passes = {"prefill": prefill(work, together), "decode": mean_step(work, together)}
        took = {phase: pass_seconds(lower(placed, passes[phase]), costs) for phase in self.aim.phases}
        if any(took[phase] > limit for phase, limit in self.aim.limits.items()):
            return None
        return Finalist(question, chosen, sum(weight * took[phase] for phase, weight in self.aim.weights.items()))


def _seconds(each: Estimate) -> float:
    return each.seconds


def _least(found: Sequence[Finalist]) -> float:
    """The least seconds."""
    return min((each.seconds for each in found), default=inf)
