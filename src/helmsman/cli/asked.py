"""One question for several strategies: what each of them is asked, and with which of the options that were given."""

import argparse
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from helmsman.cli.best import BEST_STRATEGY
from helmsman.cli.strategies import STRATEGIES, decide, own_options

if TYPE_CHECKING:
    from helmsman.planner.decide import Decision
    from helmsman.schemas.hardware import Hardware
    from helmsman.schemas.model import Model
    from helmsman.schemas.workload import Workload

ALL = "all"
_SAME = "same_software"
_PRICES = {"no_corrections": False, "l3_blend": False}
"""What all strategies have, with its defaults."""


@dataclass(frozen=True)
class Asked:
    """The question of `args` about one model on one machine."""

    args: argparse.Namespace
    model: "Model"
    hardware: "Hardware"
    workload: "Workload"

    @property
    def strategies(self) -> tuple[str, ...]:
        """Those compared, in the order of the table of strategies."""
        return STRATEGIES if self.args.strategy == ALL else (self.args.strategy,)

    @property
    def given(self) -> dict[str, str | int | float | bool]:
        """Options that were given of strategies, and of prices, apart from what is said of all engines at once."""
        usual = {**defaults(), **_PRICES}
        values = {name: getattr(self.args, name) for name in usual if name != _SAME}
        return {name: value for name, value in values.items() if value != usual[name]}

    def decision(self, strategy: str, batch: int | None = None) -> "Decision":
        """What a strategy decides. Raises what it raises."""
        workload = self.workload if batch is None else self.workload.model_copy(update={"batch": batch})
        return decide(self._of(strategy), self.model, self.hardware, workload)[0]

    def for_requests(self) -> "Asked":
        """The same, with the whole request as the objective."""
        return replace(self, args=argparse.Namespace(**{**vars(self.args), "objective": "request"}))

    def ignored(self, strategy: str) -> tuple[str, ...]:
        """Options given that the strategy does not have; all plans are compared with limits of --slo."""
        return tuple(name for name in self.given if name not in {**own_options(strategy), **_PRICES, "slo": None})

    def _of(self, strategy: str) -> argparse.Namespace:
        """The arguments as that strategy alone would be given them."""
        if self.args.strategy != ALL:
            return self.args
        own = own_options(strategy)
        values = {name: default for name, default in defaults().items() if name not in own}
        if _SAME in own:
            values[_SAME] = True
        return argparse.Namespace(**{**vars(self.args), **values, "strategy": strategy})


def defaults() -> dict[str, object]:
    """Of every option that not all strategies have."""
    return {name: default for each in (BEST_STRATEGY, *STRATEGIES) for name, default in own_options(each).items()}
