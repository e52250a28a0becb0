"""`optimal`: the best composition of blocks for one question, as a plan with its proof."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Literal

import numpy as np

from helmsman.lowering.lower import lower
from helmsman.lowering.placement import batches_together, known
from helmsman.planner.decide import Decision
from helmsman.planner.machine import Roles
from helmsman.planner.memory import memory_use
from helmsman.planner.predict import mean_step, pass_seconds
from helmsman.planner.strategies.optimal.alike import Alike
from helmsman.planner.strategies.optimal.block_ways import BlockWay, from_storage, in_groups, on_accelerator, on_host
from helmsman.planner.strategies.optimal.compose import Composition
from helmsman.planner.strategies.optimal.compositions import EFFORT, Aim, Compositions, Found
from helmsman.planner.strategies.optimal.label import contents, label, told_apart
from helmsman.planner.strategies.optimal.order import exchanged, ordered, roughly
from helmsman.planner.strategies.optimal.polish import Nearby
from helmsman.planner.strategies.optimal.resident import resident
from helmsman.planner.strategies.optimal.rules import Assignment, place
from helmsman.planner.strategies.optimal.several import AllBlocks, Ends
from helmsman.planner.strategies.optimal.stored_blocks import fullest, needs_store
from helmsman.planner.strategies.optimal.ways import Chosen
from helmsman.planner.strategies.streaming.place import Quarter
from helmsman.planner.strategies.streaming.question import Question, Recorded
from helmsman.scheduler.iteration import Phase, prefill
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.plan import Certificate
from helmsman.schemas.units import format_seconds

NAME = "optimal"

_FINALISTS = 2
"""So many compositions are predicted."""

_WORSE = 1.01
"""What seems to take so much longer than the best known is not."""

_Among = Literal["any", "even", "near", "plain"]
"""Of which ways: any, those for which not much more comes than for others on average, those that bring nothing from the
store, or those that keep nothing in 4-bit groups where they are used."""

_Try = tuple[int, float, _Among]

_TRIED: tuple[_Try, ...] = tuple((*each, "any") for each in ((1, 1.3), (1, 1.7), (1, inf), (1, 0.0), (2, 1.7)))
"""For how many blocks ahead there is room, and for how many times as long as a block works what it waits for may come,
until a plan is good: few blocks run ahead, so the more evenly they ask for the link the nearer are plans to what they
add up to."""

_ALL: _Try = (1, inf, "any")
"""All ways, with room for one block ahead."""

_FROM_STORE: tuple[_Try, ...] = (_ALL, (1, inf, "even"), (2, inf, "even"))
"""The same where weights come from a store: it is slow, and a block of which much comes from there is waited for."""

_WITHOUT_STORE: tuple[_Try, ...] = tuple((*each, "near") for each in ((1, 1.3), (1, 1.7), (1, inf), (2, 1.7)))
"""And these, where that was asked for."""

_PACKED: tuple[_Try, ...] = ((1, 1.7, "any"), _ALL, (2, inf, "even"), (1, inf, "plain"))
"""The same where weights may be in 4-bit groups: expanding those that are there keeps memory busy while it is used."""

_GOOD = 0.005
"""So near to its bound, as a share, a plan needs no other room for what is on its way."""

_EVEN = 1.3
"""So many times the mean seconds of the link a block may have, or a little more."""

_TRIES = 3
"""So often a search is repeated with less room."""

_FAR = 1.1
"""So far above its bound a plan for several accelerators is compared with those for one."""

LIMITS: Mapping[Phase, str] = {"prefill": "ttft", "decode": "tpot"}
"""What a limit of a phase is called."""

_ROUNDING = 1e-9
"""Relative difference that is none."""

_MARGIN = 1.001
"""A limit to ask for, as a multiple of what is reached."""


@dataclass(frozen=True)
class Finalist:
    """An assignment of one question's blocks, and its seconds under the objective as they are predicted."""

    question: Question
    chosen: Assignment
    seconds: float


@dataclass(frozen=True)
class Optimal:
    """The best plan for one question under `aim`; `effort`: of how many partial compositions a search consists at most
    beside those around its relaxation."""

    question: Question
    aim: Aim
    effort: int = EFFORT

    def decide(self, recorded: Recorded) -> Decision:
        """The plan with its certificate. Raises InfeasibleError when nothing fits, with the smallest change."""
        if not self.finalists:
            raise self._infeasible()
        best = self._prompts(self.finalists[0])
        frame = best.question.frame
        decision = best.question.decision(NAME, label(frame, best.chosen), place(frame, best.chosen), recorded)
        others = [device.name for device in self.question.frame.roles.others]
        return replace(
            decision,
            plan=decision.plan.model_copy(update={"certificate": self._certificate(best)}),
            seconds=best.seconds,
            runner_ups=tuple(self._runner_ups(best)),
            unused=tuple(name for name in decision.unused if name not in others),
            evaluated=self.searched,
        )

    def _runner_ups(self, best: Finalist) -> Iterator[tuple[str, float]]:
        """Other compositions, each in its best order, and their seconds."""
        first, *rest = ((contents(each.question.frame, each.chosen), each) for each in (best, *self.finalists))
        others = {key: each for key, each in reversed(rest) if key != first[0] and key != rest[0][0]}
        shown = [best, *sorted(others.values(), key=lambda each: each.seconds)]
        texts = told_apart([(each.question.frame, each.chosen) for each in shown])
        yield from ((text, each.seconds) for text, each in list(zip(texts, shown, strict=True))[1:])

    def _certificate(self, best: Finalist) -> Certificate:
        bound = min(self.bound, best.seconds)
        return Certificate(
            objective=self.aim.name,
            seconds=best.seconds,
            lower_bound=bound,
            gap=best.seconds / bound - 1 if bound else 0.0,
            ways=self.searched,
        )

    @property
    def bound(self) -> float:
        """Seconds of the objective that no composition beats, nor a side alone."""
        return self._answer[1]

    @property
    def searched(self) -> int:
        """Ways to run a block that were searched."""
        return len(self.blocks.ways) if self._composable else len(self._alone)

    @cached_property
    def finalists(self) -> tuple[Finalist, ...]:
        """The best that fit, as they are predicted, best first."""
        return self._answer[0]

    @cached_property
    def _answer(self) -> tuple[tuple[Finalist, ...], float]:
        """The finalists and the bound."""
        if self._too_large:
            return (), inf
        found = list(self._alone)
        bound, alone = self._floor, min((each.seconds for each in found), default=inf)
        for ahead, most, among in self._tried:
            best = min((each.seconds for each in found), default=inf)
            if best <= min(alone, bound) * (1 + _GOOD):
                break
            spaces = ((space, self._found(space, best)) for space in self._spaces(ahead, most, among))
            for space, composed in spaces:
                self._composed[ahead, most, among] = space, composed
                found += self._predicted(space, composed, best)
                if (ahead, most, among) == _ALL and not self.blocks.alike:
                    bound = max(bound, composed.bound)
        bound = min(alone, bound)
        best = min((each.seconds for each in found), default=inf)
        if self.question.frame.roles.others and best > bound * _FAR and self.with_one._floor < best:
            found += self.with_one.finalists
        found = found or list(self._just_within())
        return tuple(sorted(found, key=lambda each: each.seconds)), bound

    @property
    def fits(self) -> bool:
        """Whether anything is found that fits, limits of phases included; asks for less than all `finalists`."""
        if self._too_large:
            return False
        spaces = self._spaces(*_ALL) if self._composable else ()
        if self._alone or any(True for space in spaces for _ in self._predicted(space, self._found(space, inf), inf)):
            return True
        return bool(self.question.frame.roles.others) and self.with_one.fits

    @cached_property
    def with_one(self) -> "Optimal":
        """The same question for the first accelerator alone."""
        frame = replace(self.question.frame, roles=replace(self.question.frame.roles, others=()))
        return replace(self, question=replace(self.question, frame=frame))

    @property
    def _quarters(self) -> tuple[Quarter, ...]:
        """What may be in 4-bit groups, where anything can come to an accelerator."""
        return self.question.frame.quarters if self.question.frame.roles.separate else ()

    @property
    def _too_large(self) -> bool:
        """Whether weights and caches exceed all memories together."""
        frame = self.question.frame
        least = in_groups(frame.model, self._quarters) if self._quarters else on_host(frame.model)
        uses = memory_use(place(frame, Assignment((least,) * frame.model.layers, "host", "host", {})))
        return sum(use.weights + use.kv for use in uses) > sum(use.available for use in uses)

    def _just_within(self) -> Iterator[Finalist]:
        """What keeps the limits among the plans that are fastest in one limited phase: compositions that keep them as
        they add up may not as they are predicted."""
        for phase in self.aim.limits:
            for each in self._fastest(phase).finalists:
                kept = self._finalist(each.question, each.chosen)
                if kept is not None:
                    yield kept

    def _fastest(self, phase: Phase) -> "Optimal":
        """The plans that are fastest in a phase, within the other limits."""
        others = {each: value for each, value in self.aim.limits.items() if each != phase}
        return replace(self, aim=Aim(self.aim.name, {phase: 1.0}, others))

    @property
    def _tried(self) -> tuple[_Try, ...]:
        """What is tried; several accelerators have buffers of their own, and two searches."""
        several = len(self.question.frame.roles.accelerators) > 1
        several = len(self.question.frame.roles.accelerators) > 1
        if not self._composable or several:
            return _TRIED[1:3] if several else ()
        if self.blocks.frame.store is not None:
            return (*_FROM_STORE, *_WITHOUT_STORE) if self.blocks.frame.store.asked else _FROM_STORE
        return _PACKED if "weights" in self._quarters else _TRIED

    @cached_property
    def _composable(self) -> bool:
        """Whether blocks may be divided among a host and an accelerator."""
        return self.question.frame.roles.accelerator is not None

    @cached_property
    def _alone(self) -> tuple[Finalist, ...]:
        """One side with everything, where it fits: the processor with all of its cores, or the accelerator."""
        frame = self.question.frame
        roles, layers, model = frame.roles, frame.model.layers, frame.model
        solo = replace(frame, roles=Roles(roles.hardware, roles.solo, roles.solo, roles.accelerator))
        asked = [(solo, Assignment((on_host(model),) * layers, "host", "host", {}))]
        away = (on_accelerator(model),) * layers
        ends: tuple[Ends, ...] = (("accelerator", "accelerator"), ("host", "accelerator"), ("host", "host"))
        asked += [(frame, Assignment(away, *each, {})) for each in ends if roles.accelerator is not None]
        if roles.others:
            asked += [(frame, each) for each in resident(frame)]
        questions = (
            (self.question if each is frame else replace(self.question, frame=each), chosen) for each, chosen in asked
        )
        found = (self._finalist(question, chosen) for question, chosen in questions)
        return tuple(sorted((each for each in found if each is not None), key=lambda each: each.seconds))

    def _predicted(self, space: Compositions, found: Found, beat: float) -> Iterator[Finalist]:
        """The compositions that take least in order, and one near the best of them, as they are predicted."""
        if isinstance(space.blocks, Alike) or len(self.question.frame.roles.accelerators) > 1:
            yield from self._ranged(space, found, beat)
            return
        estimates = []
        for ends in dict.fromkeys(ends for ends, _ in found.best):
            near = Nearby(space, self.aim, ends, self.blocks.track(ends))
            pool = [composition for there, composition in found.best if there == ends]
            known = sorted((near.estimate(each) for each in pool), key=lambda each: each.seconds)
            estimates += [(ends, each) for each in (near.polished(known[0], pool), *known)]
        estimates.sort(key=lambda each: each[1].seconds)
        for ends, estimate in estimates[:_FINALISTS]:
            if estimate.seconds >= beat * (inf if self._quarters else _WORSE):
                return
            rows = exchanged(estimate.arranged.rows, self.blocks.track(ends), 1 + space.prefetch)
            chosen = self._assignment(space, ends, rows)
            if (chosen.blocks, ends, chosen.prefetch) not in self._seen:
                self._seen.add((chosen.blocks, ends, chosen.prefetch))
                predicted = self._finalist(self.question, chosen)
                if predicted is not None:
                    yield predicted

    @cached_property
    def _composed(self) -> dict[_Try, tuple[Compositions, Found]]:
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
            counts, track = self._counts(space, each[1]), self.blocks.track(each[0])
            return max(each[1].seconds, roughly(counts, track, 1 + space.prefetch))

        best = sorted((each for each in found.best if each[1].seconds < beat), key=took)[:_FINALISTS]
        better: int | None = None
        for ends, composition in best:
            orders = self._orders(space, ends, composition)
            if better is not None:
                orders = orders[min(better, len(orders) - 1) :][:1]
            predicted = [self._finalist(self.question, each) for each in orders]
            fitting = {number: each for number, each in enumerate(predicted) if each is not None}
            yield from fitting.values()
            if better is None and fitting:
                better = min(fitting, key=lambda number: fitting[number].seconds)

    @staticmethod
    def _counts(space: Compositions, composition: Composition) -> dict[int, int]:
        """Blocks of each way, by row."""
        return space.blocks.spread({space.name(way): count for way, count in composition.counts})

    def _orders(self, space: Compositions, ends: Ends, composition: Composition) -> list[Assignment]:
        """A composition's blocks in order: as it seems best, and in one range for each device where there are more."""
        orders = ordered(self._counts(space, composition), self.blocks.track(ends), 1 + space.prefetch)
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
        counts = self._counts(space, composition)
        best = self._assignment(space, ends, [row for row, count in counts.items() for _ in range(count)])
        return space.blocks.own(self.question.lacks(place(self.question.frame, best)))

    def _spaces(self, ahead: int, most: float, among: _Among) -> Iterator[Compositions]:
        """What is composed: where accelerators are alike the part of each, and all with one to which anything comes."""
        smooth = np.intersect1d(self.blocks.smooth(most), self._rows(among))
        if not self.blocks.alike:
            yield Compositions(self.blocks, ahead, self.effort, among=smooth)
            return
        each = Alike(self.blocks, "each")
        yield Compositions(each, ahead, self.effort, among=each.smooth(most))
        if most < inf:
            yield Compositions(self.blocks, ahead, self.effort, among=np.intersect1d(smooth, self.blocks.lopsided()))

    def _rows(self, among: _Among) -> Chosen:
        """The rows of such ways."""
        if among == "any":
            return np.arange(len(self.blocks.ways))
        if among == "even":
            return self._even
        if among == "near":
            return np.flatnonzero([not way.stored for way in self.blocks.ways])
        return np.flatnonzero(["resident" not in way.q4 for way in self.blocks.ways])

    @cached_property
    def _even(self) -> Chosen:
        """Ways whose link is not busy for much longer than on average in the best composition of all."""
        (space, found), link = self._composed[_ALL], self.blocks.coming
        counts = (pair for _, composition in found.best[:1] for pair in composition.counts)
        mean = sum(link[space.name(way)] * count for way, count in counts) / self.blocks.count
        return np.flatnonzero(link <= max(_EVEN * mean, link[link >= mean].min(initial=0.0)))

    @property
    def _floor(self) -> float:
        """Seconds that no composition beats."""
        return min(self._floors.values()) if self._composable else inf

    @cached_property
    def _floors(self) -> Mapping[Ends, float]:
        """The same, by where the ends are."""
        return Compositions(Alike(self.blocks, "together") if self.blocks.alike else self.blocks).floors(self.aim)

    @cached_property
    def blocks(self) -> AllBlocks:
        """The ways to run a block, priced as if the accelerator kept all that it can."""
        frame = self.question.frame
        asked = frame if needs_store(frame) else replace(frame, store=None)
        return AllBlocks(asked, self.question.costs(place(frame, fullest(asked))), self.aim.phases)

    def _finalist(self, question: Question, chosen: Assignment) -> Finalist | None:
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

    def _prompts(self, best: Finalist) -> Finalist:
        """The same decode steps with prompts on the accelerator, where the objective leaves that open and they are
        faster there."""
        if "prefill" in self.aim.phases or not self._composable:
            return best
        blocks = tuple(_prompts_away(best.chosen.blocks))
        moved = self._finalist(best.question, replace(best.chosen, blocks=blocks))
        if moved is None or moved.seconds > best.seconds * (1 + _ROUNDING):
            return best
        return min((best, moved), key=self._prompt_seconds)

    @staticmethod
    def _prompt_seconds(finalist: Finalist) -> float:
        placed = place(finalist.question.frame, finalist.chosen)
        graph = lower(placed, prefill(placed.workload, batches_together(placed)))
        return pass_seconds(graph, finalist.question.costs(placed))

    def _infeasible(self) -> InfeasibleError:
        """What would have to change for anything to fit."""
        free = replace(self.aim, limits={})
        if self.aim.limits and Optimal(self.question, free).finalists:
            return self._too_slow()
        frame = self.question.frame
        simple = [Assignment((on_host(frame.model),) * frame.model.layers, "host", "host", {})]
        if self._composable:
            away = on_accelerator(frame.model, resident=False)
            ways = [away, *([from_storage(frame.model)] if frame.store is not None else [])]
            ways += [in_groups(frame.model, self._quarters, here) for here in (False, True) if self._quarters]
            simple += [Assignment((way,) * frame.model.layers, "host", "host", {}) for way in ways]
        placed = min((place(frame, each) for each in simple), key=lambda each: sum(self.question.lacks(each).values()))
        return self.question.infeasible(NAME, placed, lambda asked: Optimal(asked, free).fits)

    def _both_loosened(self) -> str:
        """Limits that can be kept together where none can be kept beside the others: the first as low as it can be."""
        kept: dict[Phase, float] = {}
        for phase in self.aim.limits:
            least = replace(self, aim=Aim(self.aim.name, {phase: 1.0}, dict(kept))).finalists
            kept[phase] = least[0].seconds * _MARGIN
        return ",".join(f"{LIMITS[phase]}={seconds:.4g}s" for phase, seconds in kept.items())

    def _too_slow(self) -> InfeasibleError:
        """The smallest change of a limit that would do, the others kept."""
        found = []
        for phase, limit in self.aim.limits.items():
            least = self._fastest(phase).finalists
            if least:
                found.append((least[0].seconds / limit, f"{LIMITS[phase]}={least[0].seconds * _MARGIN:.4g}s"))
        remedy = f"the smallest change: {min(found)[1] if found else self._both_loosened()}"
        text = ", ".join(f"{LIMITS[phase]} of {format_seconds(limit)}" for phase, limit in self.aim.limits.items())
        return InfeasibleError(f"no plan reaches {text}", field="--slo", remedy=remedy)


def _prompts_away(blocks: Sequence[BlockWay]) -> Iterator[BlockWay]:
    """Ways with prompts on their accelerator, or that of the block before, where it can have them there."""
    on = 0
    for way in blocks:
        on = on if way.alone else way.on
        moved = replace(way, prompt="accelerator", on=on)
        yield way if moved.half_comes or set(way.parts) == {"accelerator"} else moved
