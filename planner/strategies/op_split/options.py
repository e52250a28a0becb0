"""Options of a search of operation splits."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from helmsman.planner.strategies.op_split.contention import SharedPool
from helmsman.planner.strategies.op_split.dataflow import Dataflow
from helmsman.planner.strategies.op_split.interference import Delays
from helmsman.planner.strategies.op_split.pipeline import Indices
from helmsman.schemas.errors import BadInputError

Mask = NDArray[np.bool_]
Feasible = Callable[[Indices, Indices, bool, tuple[str, ...]], Mask] | Mask


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """The splits that are searched.

    batches: n of a zig-zag pass of n batches; printed: L of eq. 5-14 instead of L'; compress: the configurations to
    try; storage: whether weights may come from storage; offload: whether the host may compute anything; feasible:
    which candidates fit, as an (n+1, n+1) array over (i, j) or called with arrays i, j, with `compressed` and the
    stored operations; serial: no transfer overlaps, whatever `printed`; flow: what operations read from each other,
    needed if `serial`; without it nothing crosses; pools: memories and links that several lanes share; delays: what
    links add to the work of devices while they are busy. L knows none of these three.
    """

    batches: int = 1
    printed: bool = False
    compress: tuple[bool, ...] = (False,)
    storage: bool = False
    offload: bool = True
    feasible: Feasible | None = None
    serial: bool = False
    flow: Dataflow | None = None
    pools: tuple[SharedPool, ...] = ()
    delays: Delays | None = None

    def __post_init__(self) -> None:
        if self.batches < 1:
            raise BadInputError("a pass has at least one batch", field="batches", value=self.batches)
        if not self.compress or len(set(self.compress)) < len(self.compress):
            raise BadInputError("each configuration once, at least one", field="compress", value=self.compress)
        if self.serial and self.flow is None:
            raise BadInputError("without overlap the search needs to know what follows what", field="flow")

    @property
    def ideal(self) -> bool:
        """Whether lanes are independent and boundaries cost nothing (E-PARK-05)."""
        return self.printed and not self.serial
