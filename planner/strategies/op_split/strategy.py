"""`op-split` (Park & Egger): which units of every decoder layer the accelerator computes from streamed data."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from helmsman.lowering.lower import lower
from helmsman.planner.costs import CostModel, CostOptions
from helmsman.planner.decide import Decision, Rejected, plan_document
from helmsman.planner.memory import memory_use, shortages
from helmsman.planner.predict import mean_step, predict
from helmsman.planner.strategies.op_split.division import Piece, pieces
from helmsman.planner.strategies.op_split.layer_table import LayerTable
from helmsman.planner.strategies.op_split.place import Frame, Layout, label, place
from helmsman.planner.strategies.op_split.prices import layer_table
from helmsman.planner.strategies.op_split.search import SearchOptions, Split, SplitSearch, search
from helmsman.planner.table_prices import table_prices
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.plan import Path, Strategy
from helmsman.schemas.units import format_bytes

Compression = Literal["none", "weights", "kv", "all", "best"]
TRIED = 32
"""Candidates whose memory is counted before the question is called infeasible; neighbours differ little."""

SHOWN = 8
"""Runner-ups that a decision names; their steps are the plan's, scaled by the closed form."""


@dataclass(frozen=True)
class OpSplitOptions:
    """Every choice that the ablations of the paper switch.

    `chunks`: into how many parts an operation may be divided; `compress`: 4-bit groups for what is streamed (`best`:
    the search decides); `storage`: memories of NVMe devices that may hold streamed weights; `stripes`: their shares;
    `offload` off: nothing is computed by the host (the paper's GPU-only mode)."""

    chunks: dict[str, int] = field(default_factory=dict)
    compress: Compression = "none"
    storage: tuple[str, ...] = ()
    stripes: tuple[float, ...] = ()
    path: Literal["direct", "bounce"] = "direct"
    pinning: Path = "pinned"
    offload: bool = True
    printed: bool = False


@dataclass(frozen=True)
class OpSplit:
    """The operation splits of one model on one machine under one workload."""

    frame: Frame
    options: OpSplitOptions
    cost_options: CostOptions

    def decide(self, recorded: dict[str, str | int | float | bool]) -> Decision:
        """The best split that fits, as a plan. Raises InfeasibleError when none of the best fits."""
        seen: list[Rejected] = []
        for split in self._ranked():
            layout = self.layout(split)
            missing = self._missing(layout)
            if not missing:
                return self._decision(split, layout, tuple(seen), recorded)
            seen.append(Rejected(label(self.frame, layout), self._step(split), missing))
        raise self._infeasible(seen)

    @cached_property
    def found(self) -> SplitSearch:
        """The search over every split."""
        options = self.options
        compress = {"none": (False,), "best": (False, True)}.get(options.compress, (True,))
        return search(
            self.table,
            SearchOptions(
                batches=self.frame.workload.batches,
                printed=options.printed,
                compress=compress,
                storage=bool(options.storage),
                kinds="all" if options.offload else "gpu-only",
            ),
        )

    @cached_property
    def table(self) -> LayerTable:
        """Prices of the units of one layer."""
        weights_q4, cache_q4 = self._compressed
        return layer_table(self.frame, self.costs, self.units, self.options.storage, weights_q4, cache_q4)

    @cached_property
    def costs(self) -> CostModel:
        """Prices from the operation table that fits the question, and rooflines for the rest."""
        every = Layout(self.units, 0, len(self.units))
        return CostModel(self.frame.roles.hardware, self.cost_options, table_prices(place(self.frame, every)))

    @cached_property
    def units(self) -> tuple[Piece, ...]:
        """The units of a layer."""
        if not self.frame.roles.separate or not self.frame.roles.joined:
            raise UsageError(
                "splits inside a layer need an accelerator with a memory of its own and links both ways",
                field="--strategy",
                value="op-split",
                remedy="use --strategy layer-split, or another machine",
            )
        return pieces(self.frame.model, self.options.chunks)

    def layout(self, split: Split) -> Layout:
        """The layout of a split of the search."""
        weights_q4, cache_q4 = self._compressed if split.compressed else (False, False)
        chosen = Layout(
            units=self.units,
            start=split.start,
            stop=split.stop,
            weights_q4=weights_q4,
            cache_q4=cache_q4,
            stored=split.from_storage,
            storage=self.options.storage if split.from_storage else (),
            stripes=self.options.stripes,
            path=self.options.path,
            pinning=self.options.pinning,
        )
        return replace(chosen, ends=self._ends(chosen))

    @property
    def _compressed(self) -> tuple[bool, bool]:
        """Whether weights, caches are streamed in 4-bit groups where a split is compressed."""
        return self.options.compress != "kv", self.options.compress not in ("none", "weights")

    def _ends(self, layout: Layout) -> Literal["host", "accelerator"]:
        """Where embedding and output go: where they are faster, if they fit there."""
        away = replace(layout, ends="accelerator")
        if self._missing(away):
            return "host"
        return "accelerator" if self._end_seconds(away) < self._end_seconds(layout) else "host"

    def _end_seconds(self, layout: Layout) -> float:
        small = replace(self.frame, model=self.frame.model.model_copy(update={"layers": 1}))
        graph = lower(place(small, layout), mean_step(self.frame.workload))
        return sum(self.costs.price(task).mid for task in graph.tasks if task.layer is None)

    def _ranked(self) -> Iterator[Split]:
        yield from self.found.ranked(TRIED)

    def _missing(self, layout: Layout) -> tuple[tuple[str, int], ...]:
        return tuple(shortages(memory_use(place(self.frame, layout))).items())

    def _step(self, split: Split) -> float:
        """Seconds of a decode step by the closed form: so many layers."""
        return split.seconds * self.frame.model.layers

    def _decision(
        self,
        split: Split,
        layout: Layout,
        rejected: tuple[Rejected, ...],
        recorded: dict[str, str | int | float | bool],
    ) -> Decision:
        placement, name = place(self.frame, layout), label(self.frame, layout)
        strategy = Strategy(name="op-split", options={**recorded, "operation_table": self.costs.table is not None})
        plan = plan_document(placement, name, strategy, predict(placement, self.costs))
        seconds, order = plan.predicted.decode.seconds.mid, self.found.ranked(TRIED)
        worse = order[order.index(split) + 1 :][:SHOWN]
        others = [(label(self.frame, self.layout(o)), seconds * o.seconds / split.seconds) for o in worse]
        return Decision(plan, seconds, tuple(others), rejected, self.frame.roles.unused, self.found.evaluated)

    def _infeasible(self, seen: list[Rejected]) -> InfeasibleError:
        nearest = min(seen, key=lambda rejected: rejected.missing)
        lacks = " and ".join(f"{format_bytes(size)} more in {memory}" for memory, size in nearest.shortage)
        return InfeasibleError(
            f"no operation split of {self.frame.model.name} fits {self.frame.roles.hardware.name}",
            remedy=f"the smallest change: {lacks} (then {nearest.label} fits)",
        )
