"""The runs of a contest: every side once in a round, in a fresh process, and what it takes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from helmsman.engines.contestants import Contestant, absence
from helmsman.engines.sides import EngineSide
from helmsman.executor.measuring.bench import Test
from helmsman.executor.system.interference import cpu_times, others_share
from helmsman.gate.interleaving import alternating
from helmsman.schemas.engine_contest import ContestAbsence
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.plan import Plan

MOST_STEPS = 32
"""Decode steps that are timed in a run; a request is as many as it has."""


@dataclass(frozen=True, slots=True)
class ContestShape:
    """The tests that stand for a request: its prompt, and `steps` of its `decode` steps after as many tokens as the
    mean one has before it."""

    prompt: int
    decode: int
    steps: int
    depth: int

    @classmethod
    def of(cls, plan: Plan) -> "ContestShape":
        """Return the tests of a plan's request."""
        work = plan.workload
        steps = min(MOST_STEPS, work.decode_steps)
        return cls(work.prompt_tokens, work.decode_steps, steps, max(1, work.mean_context - steps // 2))

    @property
    def tests(self) -> tuple[Test, ...]:
        """Return the prompt, and the steps where there are any."""
        steps = (Test(0, self.steps, self.depth),) if self.steps else ()
        return (Test(self.prompt, 0, 0), *steps)

    @property
    def context(self) -> int:
        """Return the tokens for which there has to be room."""
        return max(test.context for test in self.tests)

    def request(self, seconds: Sequence[float]) -> float:
        """Return the seconds of a request from those of its tests."""
        return seconds[0] + (seconds[1] / self.steps * self.decode if self.steps else 0.0)


@dataclass(frozen=True)
class Entrant:
    """A contestant with what runs it, and the seconds of every test in each of its runs."""

    contestant: Contestant
    side: EngineSide
    seconds: list[tuple[float, ...]] = field(default_factory=list)

    def requests(self, shape: ContestShape) -> tuple[float, ...]:
        """Return the seconds of a request by run."""
        return tuple(map(shape.request, self.seconds))


@dataclass(frozen=True, slots=True)
class Rounds:
    """The sides that ran, the plan's first; those that did not, with the reason; and the median share of processor time
    that others took during a run, None where the system does not tell."""

    ran: list[Entrant]
    absent: list[ContestAbsence]
    others: float | None


def run_rounds(entrants: Sequence[Entrant], tests: Sequence[Test], rounds: int, tell: Callable[[str], None]) -> Rounds:
    """Run every side so many times, in turns. The plan's is the first; another one with which the engine does not run
    at all, since memory is too small for its layers, is left out. Raises BadInputError where a side fails otherwise."""
    absent, shares = dict[int, ContestAbsence](), list[float]()
    for number in alternating(range(len(entrants)), rounds):
        if number in absent:
            continue
        entrant, before = entrants[number], cpu_times()
        try:
            entrant.seconds.append(entrant.side.seconds(tests))
        except BadInputError as error:
            if number == 0 or entrant.seconds:
                raise
            one = entrant.contestant
            absent[number] = absence(one.name, one.settings, f"the engine does not run with it: {error.message}")
            continue
        share = others_share(before, cpu_times())
        shares += [] if share is None else [share]
        tell(entrant.contestant.name)
    ran = [entrant for number, entrant in enumerate(entrants) if number not in absent]
    return Rounds(ran, list(absent.values()), median(shares) if shares else None)
