"""`twinpilots`: blocks are pinned on the accelerator or not; of those that are not, the host computes some while the
others come to the accelerator, so that its work hides the transfers (HELM-90; TwinPilots, Yu et al., SYSTOR 2024).

A step takes T(p, s, h) = max(s d, (p + s) a + h c) + ends: p pinned, s streamed and h host blocks, a, c the seconds
of one on either device, d to bring one. The streamed ones lie at equal distances in time: as many seconds of other
blocks' work stand before each as its transfer takes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice

from helmsman.lowering.lower import lower
from helmsman.lowering.placement import Placement, batches_together
from helmsman.planner.decision import Decision
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.options import Recorded
from helmsman.planner.prediction.objective import phase_weights, weighted_seconds
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.registry import Method
from helmsman.planner.strategies.common_options import TableOptions
from helmsman.planner.strategies.streaming.ends import End
from helmsman.planner.strategies.streaming.framing import decide_framed
from helmsman.planner.strategies.streaming.question import Question
from helmsman.planner.strategies.streaming.whole_blocks import Order, Role, place
from helmsman.scheduler.iteration import Phase, prefill
from helmsman.schemas.predicted import MemoryUse

NAME = "twinpilots"

_FINALISTS = 8
"""Counts that are predicted task by task, the best by T."""


@dataclass(frozen=True, slots=True)
class BlockSeconds:
    """Seconds of one block: on the accelerator, on the host, and to bring its weights."""

    accelerator: float
    host: float
    transfer: float


@dataclass(frozen=True, slots=True)
class RoleCounts:
    """How many blocks have each role, and where the output is."""

    pinned: int
    streamed: int
    host: int
    end: End = "accelerator"

    def seconds(self, block: BlockSeconds) -> float:
        """T of the blocks: the longer of the transfers and of the work, of which none is before the last transfer."""
        work = (self.pinned + self.streamed) * block.accelerator + self.host * block.host
        brought = self.streamed * block.transfer + (block.accelerator if self.streamed else 0.0)
        return max(work, brought)

    def prompt_seconds(self, accelerator: float, transfer: float) -> float:
        """Return the seconds of prompts, where the accelerator computes every block and the host's blocks come to it as
        well."""
        brought = self.streamed + self.host
        work = (self.pinned + brought) * accelerator
        return max(work, brought * transfer + (accelerator if brought else 0.0))


def spread(counts: RoleCounts) -> Order:
    """The order of blocks: before every streamed one an equal part of the pinned and of the host's, these together."""
    result: list[Role] = []
    for number in range(max(1, counts.streamed)):
        result += ["pinned"] * _part(counts.pinned, counts.streamed, number)
        result += ["host"] * _part(counts.host, counts.streamed, number)
        result += ["streamed"] * min(1, counts.streamed)
    return tuple(result)


def _part(count: int, parts: int, number: int) -> int:
    """Return what part `number` gets of `count` things that are divided evenly."""
    parts = max(1, parts)
    return count * (number + 1) // parts - count * number // parts


@dataclass(frozen=True)
class TwinPilots:
    """TwinPilots' plan for one question."""

    question: Question

    def decide(self, recorded: Recorded) -> Decision:
        """The plan. Raises InfeasibleError when it does not fit, UsageError without a separate accelerator."""
        self.question.check(NAME)
        fitting = self.finalists()
        if not fitting:
            least = self._least()
            raise self.question.infeasible(
                NAME, self.placement(least), lambda question: bool(TwinPilots(question).finalists())
            )
        best = min(fitting, key=lambda counts: self.question.seconds(self.placement(counts)))
        return self.question.decision(NAME, self.label(best), self.placement(best), recorded, len(fitting))

    def finalists(self) -> list[RoleCounts]:
        """The counts that fit with the least T of decode steps, and of whole requests, to be predicted task by task."""
        candidates, work, block = list(self.candidates()), self.question.frame.workload, self.block
        prompt, _ = self._seconds("pinned", "prefill")
        request = phase_weights("request", work, together=work.batches)

        def step_seconds(counts: RoleCounts) -> float:
            return counts.seconds(block)

        def request_seconds(counts: RoleCounts) -> float:
            passes: Mapping[Phase, float] = {
                "prefill": counts.prompt_seconds(prompt, block.transfer),
                "decode": counts.seconds(block),
            }
            return weighted_seconds(request, lambda phase: passes[phase])

        proposed = (*self._first(candidates, step_seconds), *self._first(candidates, request_seconds))
        return list(dict.fromkeys(proposed))

    def _first(self, candidates: Iterable[RoleCounts], seconds: Callable[[RoleCounts], float]) -> Iterator[RoleCounts]:
        """The best by a closed form of those that fit."""
        ranked = sorted(candidates, key=seconds)
        return islice((counts for counts in ranked if self.question.fits(self.placement(counts))), _FINALISTS)

    def placement(self, counts: RoleCounts) -> Placement:
        """The rules of so many blocks of each role."""
        return place(self.question.frame, spread(counts), counts.end)

    def label(self, counts: RoleCounts) -> str:
        """`twinpilots cuda[12 pinned, 4 streamed] cpu[20]`."""
        roles = self.question.frame.roles
        away = f"{counts.pinned} pinned, {counts.streamed} streamed"
        return f"{NAME} {self.question.frame.accelerator.kind}[{away}] {roles.host.kind}[{counts.host}]"

    def candidates(self) -> Iterator[RoleCounts]:
        """All blocks pinned, which needs no buffers for what comes; and for every number of streamed ones and either
        home of the output as many pinned ones as fit."""
        layers = self.question.frame.model.layers
        ends: tuple[End, End] = ("accelerator", "host")
        for end in ends:
            yield RoleCounts(layers, 0, 0, end)
            room = self._room(end)
            for streamed in range(layers + 1):
                pinned = room.most(streamed, layers)
                if pinned is not None:
                    yield RoleCounts(pinned, streamed, layers - pinned - streamed, end)

    @cached_property
    def block(self) -> BlockSeconds:
        """Seconds of one block, all batches together."""
        kept, brought, host = (self._seconds(role) for role in ("pinned", "streamed", "host"))
        return BlockSeconds(kept[0], host[0], brought[1])

    def _seconds(self, role: Role, phase: Phase = "decode") -> tuple[float, float]:
        """Of the only block of a model: of its operations, and of its weights on their way."""
        one = self.question.of(layers=1)
        placed = place(one.frame, (role,), "accelerator")
        costs = one.costs(placed)
        workload, together = placed.workload, batches_together(placed)
        graph = lower(placed, mean_step(workload, together) if phase == "decode" else prefill(workload, together))
        block = [task for task in graph.tasks if task.layer is not None]
        work = [task for task in block if task.kind != "transfer"]
        coming = [task for task in block if task.kind == "transfer" and task.payload == "weights"]
        return sum(costs.price(task).mid for task in work), sum(costs.price(task).mid for task in coming)

    def _room(self, end: End) -> "_FreeBytes":
        """From three orders: bytes are sums over blocks, but for buffers, which those that all have are counted for."""
        layers = self.question.frame.model.layers
        none, pinned, streamed = (
            self._used(RoleCounts(one, two, layers - one - two, end)) for one, two in ((0, 0), (1, 0), (0, 1))
        )
        return _FreeBytes(
            {use.memory: use.available - use.used for use in none.values()},
            {name: pinned[name].used - use.used for name, use in none.items()},
            {name: streamed[name].used - use.used for name, use in none.items()},
        )

    def _least(self) -> RoleCounts:
        """Return what fits if anything does: as many pinned blocks as there is room for, all else with the host."""
        layers = self.question.frame.model.layers
        pinned = max(0, self._room("host").limit(0, layers))
        return RoleCounts(pinned, 0, layers - pinned, "host")

    def _used(self, counts: RoleCounts) -> dict[str, MemoryUse]:
        return {use.memory: use for use in memory_use(self.placement(counts))}


@dataclass(frozen=True, slots=True)
class _FreeBytes:
    """By memory, bytes that are free when the host has every block, and what a block of another role takes there."""

    free: Mapping[str, int]
    pinned: Mapping[str, int]
    streamed: Mapping[str, int]

    def most(self, streamed: int, layers: int) -> int | None:
        """Return as many pinned blocks beside `streamed` ones as fit; None if the host's do not fit then."""
        limit, left = self.limit(streamed, layers), self._left(streamed)
        fits = limit >= 0 and all(left[name] >= limit * size for name, size in self.pinned.items())
        return limit if fits else None

    def limit(self, streamed: int, layers: int) -> int:
        """Return as many as the memory to which they add something has room for; less than none if it has too
        little."""
        left = self._left(streamed)
        return min([layers - streamed, *(left[name] // size for name, size in self.pinned.items() if size > 0)])

    def _left(self, streamed: int) -> dict[str, int]:
        return {name: free - streamed * self.streamed[name] for name, free in self.free.items()}


_decide = partial(decide_framed, TwinPilots)

STRATEGY = Method(
    "twinpilots",
    "TwinPilots: blocks pinned, streamed, or left to the host",
    TableOptions,
    _decide,
    slow=True,
)
