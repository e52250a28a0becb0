"""`optimal`: the best composition of blocks for one question, as a plan with its proof."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from helmsman.lowering.lower import lower
from helmsman.lowering.placement import batches_together
from helmsman.planner.decision import Decision
from helmsman.planner.options import Recorded
from helmsman.planner.prediction.predict import pass_seconds
from helmsman.planner.strategies.optimal.configurations.block_ways import BlockWay
from helmsman.planner.strategies.optimal.configurations.label import contents, label, told_apart
from helmsman.planner.strategies.optimal.configurations.rules import place
from helmsman.planner.strategies.optimal.configurations.too_large import too_large
from helmsman.planner.strategies.optimal.pricing.all_blocks import AllBlocks
from helmsman.planner.strategies.optimal.refusal import infeasible
from helmsman.planner.strategies.optimal.search.compositions import SLACK, Aim
from helmsman.planner.strategies.optimal.search.finalist import Finalist, predicted
from helmsman.planner.strategies.optimal.search.finalists import Finalists
from helmsman.planner.strategies.streaming.question import Question
from helmsman.scheduler.iteration import Phase, prefill
from helmsman.schemas.plan import Certificate

NAME = "optimal"

_SAME = 1e-6
"""Relative difference of a bound that is none."""

_ROUNDING = 1e-9
"""Relative difference that is none."""


@dataclass(frozen=True)
class Optimal:
    """The best plan for one question under `aim`."""

    question: Question
    aim: Aim

    def decide(self, recorded: Recorded) -> Decision:
        """The plan with its certificate. Raises InfeasibleError when nothing fits, with the smallest change."""
        if not self.finalists:
            raise infeasible(self, NAME)
        best = self._prompts(self.finalists[0])
        frame = best.question.frame
        decision = best.question.decision(NAME, label(frame, best.chosen), place(frame, best.chosen), recorded)
        others = [device.name for device in self.question.frame.roles.others]
        return replace(
            decision,
            drafted=decision.plan.model_copy(update={"certificate": self._certificate(best)}),
            seconds=best.counted,
            runner_ups=tuple(self._runner_ups(best)),
            unused=tuple(name for name in decision.unused if name not in others),
            evaluated=self.searched,
        )

    def _runner_ups(self, best: Finalist) -> Iterator[tuple[str, float]]:
        """Other compositions, each in its best order, and their seconds of the objective, the fewest first."""
        first, *rest = (
            (contents(finalist.question.frame, finalist.chosen), finalist) for finalist in (best, *self.finalists)
        )
        others = {key: other for key, other in reversed(rest) if key != first[0] and key != rest[0][0]}
        shown = [best, *sorted(others.values(), key=lambda other: other.counted)]
        texts = told_apart([(finalist.question.frame, finalist.chosen) for finalist in shown])
        yield from ((text, finalist.counted) for text, finalist in list(zip(texts, shown, strict=True))[1:])

    @cached_property
    def _proved(self) -> "Optimal":
        """The search whose bound is proved: for the objective alone, without what breaks its ties."""
        if self.aim.tie is None:
            return self
        return replace(self, aim=Aim(self.aim.name, self.aim.counted, self.aim.limits))

    def _certificate(self, best: Finalist) -> Certificate:
        seconds, bound = best.counted, self._proved.bound
        if best.question is self.with_one.question:
            bound = min(bound, self._proved.with_one.bound)
        assert bound <= seconds * (1 + _SAME), f"{seconds} s lie below their bound {bound} s"
        bound = min(bound, seconds)
        return Certificate(
            objective=self.aim.name,
            seconds=seconds,
            lower_bound=bound,
            gap=seconds / bound - 1 if bound else 0.0,
            ways=self.searched,
        )

    @property
    def bound(self) -> float:
        """Seconds of the objective that no composition beats, nor a side alone."""
        return self.search.bound

    @property
    def searched(self) -> int:
        """Ways to run a block that were searched."""
        return len(self.blocks.ways) if self.search.composable else len(self.search.alone)

    @cached_property
    def finalists(self) -> tuple[Finalist, ...]:
        """The best that fit, as they are predicted, best first: by seconds of the objective, and by what breaks ties
        where those are the same but for rounding."""
        fitting, bound = list(self.search.answer[0]), self.search.answer[1]
        best = min((finalist.seconds for finalist in fitting), default=float("inf"))
        large = too_large(self.question.frame)
        others = self.question.frame.roles.others and not large
        if others and best > bound * (1 + SLACK) and self.with_one.search.floor < best:
            fitting += self.with_one.finalists
        fitting = fitting or ([] if large else list(self._just_within()))
        least = min((finalist.counted for finalist in fitting), default=0.0) * (1 + _ROUNDING)
        return tuple(sorted(fitting, key=lambda finalist: (max(least, finalist.counted), finalist.seconds)))

    @property
    def fits(self) -> bool:
        """Whether anything is found that fits, limits of phases included; asks for less than all `finalists`."""
        return self.search.any_fits or (bool(self.question.frame.roles.others) and self.with_one.fits)

    @cached_property
    def search(self) -> Finalists:
        """Return what is searched."""
        return Finalists(self.question, self.aim)

    @property
    def blocks(self) -> AllBlocks:
        """The ways to run a block."""
        return self.search.blocks

    @cached_property
    def with_one(self) -> "Optimal":
        """Return the same question for the first accelerator alone."""
        frame = replace(self.question.frame, roles=replace(self.question.frame.roles, others=()))
        return replace(self, question=replace(self.question, frame=frame))

    def _repredicted(self, finalists: Iterable[Finalist]) -> Iterator[Finalist]:
        """Yield what another aim found, as it is predicted under this one, where it keeps the limits."""
        for finalist in finalists:
            kept = predicted(finalist.question, finalist.chosen, self.aim)
            if kept is not None:
                yield kept

    def _just_within(self) -> Iterator[Finalist]:
        """Yield what keeps the limits among the plans that are fastest in one limited phase: compositions that keep
        them as they add up may not as they are predicted."""
        for phase in self.aim.limits:
            yield from self._repredicted(self.fastest(phase).finalists)

    def fastest(self, phase: Phase) -> "Optimal":
        """The plans that are fastest in a phase, within the other limits."""
        return self._fastest[phase]

    @cached_property
    def _fastest(self) -> dict[Phase, "Optimal"]:
        """The same, by limited phase."""
        limits = self.aim.limits
        others = {phase: {limited: value for limited, value in limits.items() if limited != phase} for phase in limits}
        return {phase: replace(self, aim=Aim(self.aim.name, {phase: 1.0}, rest)) for phase, rest in others.items()}

    def _prompts(self, best: Finalist) -> Finalist:
        """Return the same decode steps with prompts on the accelerator, where the objective leaves that open, it has
        cores of its own and they are faster there."""
        roles = best.question.frame.roles
        if "prefill" in self.aim.phases or roles.accelerator is None or roles.accelerator.name in roles.host.excludes:
            return best
        blocks = tuple(_prompts_away(best.chosen.blocks))
        if blocks == best.chosen.blocks:
            return best
        moved = predicted(best.question, replace(best.chosen, blocks=blocks), self.aim)
        if moved is None or moved.seconds > best.seconds * (1 + _ROUNDING):
            return best
        return min((best, moved), key=self._prompt_seconds)

    @staticmethod
    def _prompt_seconds(finalist: Finalist) -> float:
        placed = place(finalist.question.frame, finalist.chosen)
        graph = lower(placed, prefill(placed.workload, batches_together(placed)))
        return pass_seconds(graph, finalist.question.costs(placed))


def _prompts_away(blocks: Sequence[BlockWay]) -> Iterator[BlockWay]:
    """Ways with prompts on their accelerator, or that of the block before, where it can have them there."""
    on = 0
    for way in blocks:
        on = on if way.alone else way.on
        moved = replace(way, prompt="accelerator", on=on)
        yield way if moved.half_comes or set(way.parts) == {"accelerator"} else moved
