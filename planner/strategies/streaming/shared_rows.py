"""A matrix whose rows two sides share: how many make them equally late, in closed form."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from helmsman.lowering.graph import Task
from helmsman.lowering.operation import PANEL
from helmsman.planner.cost.model import CostModel
from helmsman.schemas.hardware import lane_owner
from helmsman.timing.interference import speed


@dataclass(frozen=True, slots=True)
class RowCost:
    """Seconds for so many rows: `base` + `slope` x rows, none for none."""

    base: float
    slope: float

    def at(self, rows: int) -> float:
        """Seconds of `rows`."""
        return max(0.0, self.base + self.slope * rows) if rows else 0.0

    def times(self, factor: float) -> "RowCost":
        """Return the cost that is so many times as long."""
        return RowCost(self.base * factor, self.slope * factor)


def through(few: tuple[int, float], many: tuple[int, float]) -> RowCost:
    """The line through two prices (rows, seconds); through the origin if they are of equally many rows."""
    if few[0] >= many[0]:
        return RowCost(0.0, many[1] / many[0])
    slope = (many[1] - few[1]) / (many[0] - few[0])
    return RowCost(many[1] - slope * many[0], slope)


@dataclass(frozen=True, slots=True)
class Shared:
    """A linear layer of `rows` rows and its three ways: computed by the host, brought to the accelerator, computed
    there.

    `slack`: seconds of other work meanwhile, during which the link goes on bringing rows (less than none: it has other
    things to bring)."""

    rows: int
    host: RowCost
    link: RowCost
    accelerator: RowCost
    slack: float = 0.0

    def seconds(self, brought: int) -> float:
        """Until the host is done with its rows, the link with those `brought`, and the accelerator with them."""
        worked = max(self.host.at(self.rows - brought), self.accelerator.at(brought))
        return max(worked + max(0.0, self.slack), self.link.at(brought) + max(0.0, -self.slack))

    @property
    def brought(self) -> int:
        """The rows to bring: where the host's seconds and the link's are equal (HeteGen: T_CPU = T_COM), to a panel.

        Both are affine, so the best panel is one of the two beside the crossing, or an end."""
        slope = self.host.slope + self.link.slope
        crossing = self.host.at(self.rows) + self.slack - self.link.base
        below = int(crossing / slope / PANEL) * PANEL if slope > 0 else 0
        panels = (0, *(max(0, min(self.rows, below + step * PANEL)) for step in (0, 1)), self.rows)
        return min(panels, key=self.seconds)


def apportioned(matrices: Mapping[str, Shared], slack: float) -> dict[str, Shared]:
    """The matrices with `slack` seconds of other work divided among them as the host's seconds are."""
    total = sum(matrix.host.at(matrix.rows) for matrix in matrices.values())
    result = {}
    for op, matrix in matrices.items():
        part = slack * matrix.host.at(matrix.rows) / total if total else 0.0
        result[op] = Shared(matrix.rows, matrix.host, matrix.link, matrix.accelerator, part)
    return result


def delays(costs: CostModel, work: Task, transfers: Iterable[Task]) -> list[tuple[float, float]]:
    """How many times as long work of the host and each of some transfers take beside each other (memories are shared,
    PARK-43)."""
    slowed, pools, result = costs.slowed(), costs.pools, list[tuple[float, float]]()
    slowings = slowed(work) if slowed else ()
    rate, uses = pools.asked(work, costs.price(work).mid)
    for transfer in transfers:
        own = speed(slowings, {lane_owner(transfer.resource)}.__contains__)
        computed, moved = pools.fair_speeds([(rate * own, uses), pools.asked(transfer, costs.price(transfer).mid)])
        result.append((1 / (own * computed), 1 / moved))
    return result
