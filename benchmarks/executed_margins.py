"""Does the plan that `optimal` prefers over every published strategy beat the best of them where both are executed?

    python -m benchmarks.executed_margins --checkpoint DIR --hardware FILE --ram-avail 2.6GB --vram-avail 1.5GB

Every strategy is asked as a user would ask `helm-plan`, with the memories cut so that plans differ; those that do not
fit are named. `optimal` and the best other by prediction of those that are executed then take turns, changing who goes
first, every execution between probes and repeated while others are at work on this machine. A margin is how much faster
`optimal` is: predicted, measured pair by pair, and measured with every step put at the speeds of the profile by the
probes beside it (rule 7 of measuring). The bar is 70 % of the predicted margin, on the last; exit code 4 below it, and
where no other plan is slower by prediction. `benchmarks.default_pairs` does the same for whole requests."""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.baselines import Executed, arguments, executed_round, fitting, planned
from benchmarks.machine import print_machine
from helmsman.cli.isa import select_from_environment
from helmsman.planner.registry import OF_DENSE
from helmsman.schemas.errors import HelmError

OURS = "optimal"
BAR = 0.7
"""Of the predicted margin."""
STEPS, ROUNDS = 16, 7
"""More than `benchmarks.baselines` takes: of 4 steps a margin moved by 10 points from round to round."""


@dataclass(frozen=True)
class Margins:
    """How much faster `ours` is than `theirs`."""

    ours: Executed
    theirs: Executed

    @property
    def predicted(self) -> float:
        """By the plans."""
        return self.theirs.predicted / self.ours.predicted - 1

    @property
    def measured(self) -> list[float]:
        """Pair by pair, as measured."""
        pairs = zip(self.ours.rounds, self.theirs.rounds, strict=True)
        return [their.measured / our.measured - 1 for our, their in pairs]

    @property
    def scaled(self) -> list[float]:
        """Pair by pair, every step at the speeds at which the machine was profiled."""
        pairs = zip(self.ours.at_speed, self.theirs.at_speed, strict=True)
        return [(1 + self.predicted) * their / our - 1 for our, their in pairs]

    @property
    def holds(self) -> bool:
        """Whether enough of a predicted margin is there."""
        return self.predicted > 0 and statistics.median(self.scaled) >= BAR * self.predicted


def main() -> int:
    """Plan all, execute the two, and print the margins."""
    parser = arguments(__doc__ or "")
    parser.set_defaults(steps=STEPS, rounds=ROUNDS)
    args = parser.parse_args()
    select_from_environment()
    print_machine()
    rivals = sorted(_predicted([name for name in args.ask or OF_DENSE if name != OURS], args))
    ours = next(fitting([OURS], args), None)
    theirs = next((each for _, name in rivals for each in fitting([name], args)), None)
    if ours is None or theirs is None:
        print("nothing to compare: two plans that are executed are needed")
        return 4
    found = Margins(ours, theirs)
    for number in range(args.rounds):
        for each in (ours, theirs) if number % 2 == 0 else (theirs, ours):
            each.rounds.append(executed_round(each.plan, args))
        print(f"pair {number + 1} measured {found.measured[-1]:.1%} scaled {found.scaled[-1]:.1%}", flush=True)
    return _report(found, args)


def _predicted(questions: Sequence[str], args: argparse.Namespace) -> Iterator[tuple[float, str]]:
    """Seconds of a decode step, and the question; those without a plan are named."""
    for asked in questions:
        try:
            plan = planned(asked, args)
        except HelmError as error:
            print(f"{asked:24s} {str(error).splitlines()[0]}", flush=True)
            continue
        print(f"{asked:24s} {1e3 * plan.predicted.decode.seconds.mid:8.1f} ms  {plan.label}", flush=True)
        yield plan.predicted.decode.seconds.mid, asked


def _report(found: Margins, args: argparse.Namespace) -> int:
    print(found.ours)
    print(found.theirs)
    measured, scaled = (f"{statistics.median(each):.1%} {_spread(each)}" for each in (found.measured, found.scaled))
    print(f"{OURS} over {found.theirs.asked}: predicted {found.predicted:.1%}, measured {measured}, scaled {scaled}")
    print(f"at least {BAR:.0%} of the predicted margin: {'yes' if found.holds else 'no'}")
    if args.out:
        content = {"rival": found.theirs.asked, "predicted": found.predicted}
        args.out.write_text(json.dumps({**content, "measured": found.measured, "scaled": found.scaled}, indent=1))
    return 0 if found.holds else 4


def _spread(margins: Sequence[float]) -> str:
    return f"[{min(margins):.1%} .. {max(margins):.1%}]"


if __name__ == "__main__":
    sys.exit(main())
