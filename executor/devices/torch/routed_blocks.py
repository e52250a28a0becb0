"""Blocks of a serving pass on a PyTorch device whose experts are looked up behind their router, as `ServingRun` of
csrc/serving does it for processors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from helmsman.executor.devices.iterations import ExpertLookup
from helmsman.executor.devices.torch.marks import Mark
from helmsman.executor.devices.torch.ragged_rows import RaggedRows
from helmsman.executor.devices.torch.ragged_stage import RaggedStage
from helmsman.lowering.bodies.experts import EXPERT_PRODUCTS, ROUTER
from helmsman.lowering.bodies.experts_apart import COMBINE


@dataclass(frozen=True)
class RoutedBlocks:
    """Whose experts are looked up, by block."""

    lookups: Mapping[int, ExpertLookup]

    @classmethod
    def of(cls, lookups: Sequence[ExpertLookup]) -> Self:
        """Return the blocks of some look-ups."""
        return cls({lookup[0]: lookup for lookup in lookups})

    def run(self, stage: RaggedStage, batch: int, rows: RaggedRows, layer: int, first: str, last: str) -> None:
        """Run operations `first` to `last` of a block for the rows of a sub-batch. Behind the router its experts are
        looked up, and those of all rounds but the last are computed; what others compute comes before it is added."""
        if layer not in self.lookups or rows.count == 0:
            stage.run(rows, first, last)
            return
        _, look_up, joined = self.lookups[layer]
        router, combine = f"{layer}.{ROUTER}", f"{layer}.{COMBINE}"
        if stage.between(router, first, last):
            stage.run(rows, first, router)
            Mark(stage.workspace.bytes.device).wait()
            first = stage.after(router)
            while look_up(batch, rows.count):
                stage.run(rows, first, f"{layer}.{EXPERT_PRODUCTS[-1]}")
        if joined is not None and stage.between(combine, first, last):
            if first != combine:
                stage.run(rows, first, stage.before(combine))
            joined.wait()
            first = combine
        if stage.between(first, first, last):
            stage.run(rows, first, last)
