"""`op-split` (Park & Egger): which units of every decoder layer the accelerator computes from streamed data."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations, product
from typing import Literal

import numpy as np

from helmsman.lowering.placement import batches_together
from helmsman.planner.batches.largest import largest_batch
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.cost.stripes import stripes
from helmsman.planner.cost.table_prices import table_prices
from helmsman.planner.decision import Decision, RejectedCandidate, plan_document
from helmsman.planner.machine import check_separate
from helmsman.planner.memory.names import room_in_words
from helmsman.planner.memory.usage import memory_use, shortages
from helmsman.planner.prediction.objective import objective_seconds, phase_weights, weighted_seconds
from helmsman.planner.prediction.predict import phase_seconds, predict
from helmsman.planner.strategies.op_split.allowed_ranges import attention_together, leaving_one_part
from helmsman.planner.strategies.op_split.candidates import ranges
from helmsman.planner.strategies.op_split.feasible import SplitRoom
from helmsman.planner.strategies.op_split.finalists import (
    SplitFinalist,
    by_prediction,
    end_seconds,
    fewer_chunks,
    in_order,
    layer_seconds,
    near,
    with_printed_step,
)
from helmsman.planner.strategies.op_split.interference import layer_delays
from helmsman.planner.strategies.op_split.layer_table import LayerTable, storable
from helmsman.planner.strategies.op_split.options import Mask, SearchOptions
from helmsman.planner.strategies.op_split.pipeline import Indices
from helmsman.planner.strategies.op_split.prices import layer_dataflow, layer_pools, layer_table
from helmsman.planner.strategies.op_split.prompts import PromptForm, elements, fastest
from helmsman.planner.strategies.op_split.search import Split, SplitSearch, search
from helmsman.planner.strategies.op_split.split_rules import Compression, SplitRules
from helmsman.planner.strategies.streaming.division import DivisionPiece, joined
from helmsman.planner.strategies.streaming.place import Frame, Layout, label, place
from helmsman.planner.strategies.streaming.work import LayerWork, layer_work
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.formats import is_plain
from helmsman.schemas.objective import DEFAULT_OBJECTIVE, Objective
from helmsman.schemas.plan import Strategy
from helmsman.schemas.workload import Workload

SHOWN = 8
"""Runner-ups, and faster splits that do not fit, that a decision names; steps of the latter are the plan's and what
their layers take more or less."""

_PROMPT_SPLITS = 4
"""The number of splits proposed for prompts, and for whole requests, beside those for decode steps."""

_MOST_PREDICTED = 64
"""The number of splits predicted at most where the closed form is a bound from below and cannot tell them apart."""


@dataclass(frozen=True)
class OpSplit:
    """The operation splits of one model on one machine under one workload."""

    frame: Frame
    options: SplitRules
    cost_options: CostOptions
    objective: Objective = DEFAULT_OBJECTIVE

    def decide(self, recorded: dict[str, str | int | float | bool]) -> Decision:
        """The best split that fits, as a plan. Raises InfeasibleError when none does, with the smallest change."""
        if not self.finalists:
            raise self._infeasible()
        return self._decision(recorded)

    @cached_property
    def finalists(self) -> tuple[SplitFinalist, ...]:
        """The fastest splits that fit, of every configuration that may be chosen, by their seconds of the objective,
        best first.

        The closed form proposes, the prediction decides; decode steps by the printed one (`paper`) are predicted by it,
        too. What a narrower question proposes (fewer parts, no storage, one way to compress, nothing by the host) is
        proposed as well."""
        if self.options.printed:
            splits = dict.fromkeys((*self.fitting.ranked(1 + SHOWN), *self._for_prompts))
            return in_order(SplitFinalist(split, self._whole(split), self) for split in splits)
        return in_order(
            SplitFinalist(split, question._whole(split), question)
            for question, split in self._candidates.values()
            if not (self.frame.formats and question._missing(question.layout(split)))
        )

    @property
    def _candidates(self) -> "dict[Layout, tuple[OpSplit, Split]]":
        """Return what closed forms propose in every configuration, for decode steps and where prompts count, and in
        whose terms it is; by what the accelerator computes of it, whoever proposes that."""
        candidates: dict[Layout, tuple[OpSplit, Split]] = {}
        for question in self.configurations:
            for split in (*near(question.proposed, 1 + SHOWN), *question._for_prompts):
                blocks = question._blocks(split)
                streamed = joined(blocks.streamed)
                candidates.setdefault(replace(blocks, units=streamed, start=0, stop=len(streamed)), (question, split))
        return candidates

    @cached_property
    def configurations(self) -> "tuple[OpSplit, ...]":
        """The question for every way to compress, with and without storage, where those are left open, for every
        division that is part of the own one, and without operations of the host: what each proposes depends on it
        alone, so a question that contains another one predicts all that this does."""
        ways: tuple[Compression, ...] = (self.options.compress,)
        if self.options.compress == "best":
            ways = ("none", "weights", "kv", "all") if is_plain(self.frame.weights) else ("none", "kv")
        stores = ((), self.options.storage) if self.options.storage else ((),)
        offloads = (True, False) if self.options.offload else (False,)
        variants = [
            replace(self.options, compress=way, storage=storage, chunks=chunks, offload=offload)
            for way, storage, chunks, offload in product(ways, stores, fewer_chunks(self.options.chunks), offloads)
        ]
        return tuple(self if options == self.options else replace(self, options=options) for options in variants)

    @cached_property
    def proposed(self) -> dict[Split, float]:
        """The best splits of one configuration by the closed form, or by prediction where that is a bound from below,
        and their seconds per layer: as predicted, or by the clock where that follows several batches."""
        if self.frame.workload.batches > 1:
            return {split: split.seconds for split in self.fitting.ranked(1 + SHOWN)}
        if self.search_options.delays is not None:
            splits = self.fitting.ranked(1 + SHOWN)
        else:
            splits = by_prediction(self.fitting.ranked(_MOST_PREDICTED), self._layer_seconds, 1 + SHOWN)
        return {split: self._layer_seconds(split) for split in splits}

    @property
    def _for_prompts(self) -> Iterator[Split]:
        """Where prompts count, the best of one configuration for prompts, and for whole requests, by closed forms."""
        if "prefill" not in self._weights:
            return
        prompts, steps = self._prompt_form.seconds(self.fitting), self.fitting.lanes.total
        weights = phase_weights("request", self.frame.workload, self._together)
        both = weights["prefill"] * prompts + weights.get("decode", 0.0) * np.where(np.isfinite(steps), steps, 0.0)
        for form in (both, prompts):
            yield from fastest(self.fitting, form, _PROMPT_SPLITS)

    @cached_property
    def _prompt_form(self) -> PromptForm:
        """Prompts with nothing and with everything streamed."""
        count = len(self.units)
        none, whole, compressed = (
            layer_seconds(self.frame, self.costs, self._arranged(0, stop, quarter, ()), "prefill")
            for stop, quarter in ((0, False), (count, False), (count, True))
        )
        return PromptForm(none, whole, compressed, elements(self.frame.model, self.units))

    def _whole(self, split: Split) -> float:
        """Seconds of the objective, as predicted."""
        placed = place(self.frame, self.layout(split))

        def seconds(phase: Phase) -> float:
            printed = self.options.printed and phase == "decode"
            return self.frame.model.layers * split.seconds if printed else phase_seconds(placed, self.costs, phase)

        return weighted_seconds(self._weights, seconds)

    @cached_property
    def _weights(self) -> Mapping[Phase, float]:
        """How often the phases count in the objective."""
        return phase_weights(self.objective, self.frame.workload, self._together)

    @property
    def _together(self) -> int:
        return batches_together(place(self.frame, Layout(self.units, 0, 0)))

    def _layer_seconds(self, split: Split) -> float:
        if split not in self._predicted:
            self._predicted[split] = layer_seconds(self.frame, self.costs, self._blocks(split))
        return self._predicted[split]

    @cached_property
    def _predicted(self) -> dict[Split, float]:
        """Seconds per layer that are known."""
        return {}

    @cached_property
    def every_split(self) -> SplitSearch:
        """The search over every split, whether it fits or not."""
        return search(self.table, self.search_options)

    @cached_property
    def fitting(self) -> SplitSearch:
        """The search over the splits that fit."""
        return search(self.table, self.fitting_options)

    @property
    def fitting_options(self) -> SearchOptions:
        """Return what is searched of the splits that fit."""
        return replace(self.search_options, feasible=self._fits)

    def _fits(self, start: Indices, stop: Indices, compressed: bool, stored: tuple[str, ...]) -> Mask:
        return self._allowed[start, stop] & self.room.fits(start, stop, compressed, stored)

    @cached_property
    def room(self) -> SplitRoom:
        """The bytes of all splits."""
        return SplitRoom(self.frame, self._arranged(0, 0, True, tuple(storable(self.table))))

    @cached_property
    def search_options(self) -> SearchOptions:
        """Return what is searched, whether it fits or not."""
        options = self.options
        return SearchOptions(
            batches=self.frame.workload.batches,
            printed=options.printed,
            compress={"none": (False,), "best": (False, True)}.get(options.compress, (True,)),
            storage=bool(options.storage),
            offload=options.offload,
            feasible=self._allowed,
            serial=self.frame.overlap == "none" or options.pinning == "pin-on-transfer",
            flow=layer_dataflow(self.frame, self.costs, self.units, self._work),
            pools=layer_pools(self.frame, self.costs, self.units, self._work),
            delays=layer_delays(self.costs, self.table, self._work),
        )

    @cached_property
    def _allowed(self) -> Mask:
        """The ranges that may be chosen, as an array over (start, stop)."""
        allowed = leaving_one_part(self.units)
        return allowed & attention_together(self.units) if self.frame.form == "reordered" else allowed

    @cached_property
    def table(self) -> LayerTable:
        """Prices of the units of one layer."""
        return layer_table(self.frame.roles.hardware, self.costs, self.units, self._work)

    @cached_property
    def _work(self) -> LayerWork:
        weights_q4, cache_q4 = self._compressed
        return layer_work(self.frame, self._from_storage, weights_q4, cache_q4, self.options.pinning)

    @cached_property
    def stripes(self) -> tuple[float, ...]:
        """Shares of the storage devices in every weight: those that finish together (PARK-40)."""
        target = self.frame.roles.host if self.options.path == "bounce" else self.frame.accelerator
        return stripes(self.frame.roles.hardware, self.options.storage, target.memory)

    @property
    def _threads(self) -> int | None:
        """The count with which the table's host was fastest (PARK-48)."""
        return self.costs.table.table.threads or None if self.costs.table is not None else None

    @property
    def _from_storage(self) -> Layout | None:
        """Everything on the accelerator, to come from storage where that is allowed."""
        options = self.options
        if not options.storage:
            return None
        whole = self.frame.units({})
        return Layout(
            whole,
            0,
            len(whole),
            storage=options.storage,
            stripes=self.stripes,
            path=options.path,
            pinning=options.pinning,
        )

    @cached_property
    def costs(self) -> CostModel:
        """Prices from the operation table that fits the question, and rooflines for the rest."""
        every = Layout(self.units, 0, len(self.units))
        return CostModel(self.frame.roles.hardware, self.cost_options, table_prices(place(self.frame, every)))

    @cached_property
    def units(self) -> tuple[DivisionPiece, ...]:
        """The units of a layer."""
        check_separate(self.frame.roles, "op-split")
        return self.frame.units(self.options.chunks)

    def layout(self, split: Split) -> Layout:
        """The layout of a split of the search."""
        chosen = self._blocks(split)
        return replace(chosen, ends=self._ends(chosen))

    def _blocks(self, split: Split) -> Layout:
        """The layout of the blocks of a split; the ends of the model are left on the host."""
        return self._arranged(split.start, split.stop, split.compressed, split.from_storage)

    def _arranged(self, start: int, stop: int, compressed: bool, stored: tuple[str, ...]) -> Layout:
        weights_q4, cache_q4 = self._compressed if compressed else (False, False)
        return Layout(
            units=self.units,
            start=start,
            stop=stop,
            weights_q4=weights_q4,
            cache_q4=cache_q4,
            stored=stored,
            storage=self.options.storage if stored else (),
            stripes=self.stripes if stored else (),
            path=self.options.path,
            pinning=self.options.pinning,
            threads=self._threads,
        )

    @property
    def _compressed(self) -> tuple[bool, bool]:
        """Whether weights, caches are streamed in 4-bit groups where a split is compressed."""
        weights = self.options.compress != "kv" and is_plain(self.frame.weights)
        return weights, self.options.compress not in ("none", "weights")

    def _ends(self, layout: Layout) -> Literal["host", "accelerator"]:
        """Where embedding and output go: where less is missing; where the objective's passes spend fewer seconds on
        them, if both sides fit."""
        away = replace(layout, ends="accelerator")
        lacking = [sum(size for _, size in self._missing(option)) for option in (layout, away)]
        if any(lacking):
            return "accelerator" if lacking[1] < lacking[0] else "host"
        near, far = (end_seconds(self.frame, self.costs, option, self._weights) for option in (layout, away))
        return "accelerator" if far < near else "host"

    def _missing(self, layout: Layout) -> tuple[tuple[str, int], ...]:
        return tuple(shortages(memory_use(place(self.frame, layout))).items())

    def _decision(self, recorded: dict[str, str | int | float | bool]) -> Decision:
        (split, _, question), *rest = self.finalists
        layout = question.layout(split)
        placement, name = place(self.frame, layout), label(self.frame, layout)
        strategy = Strategy(name="op-split", options={**recorded, "operation_table": self.costs.table is not None})
        predicted = predict(placement, self.costs)
        if self.options.printed:
            predicted = with_printed_step(placement, predicted, self.frame.model.layers * split.seconds)
        plan = plan_document(placement, name, strategy, predicted)
        work, together = placement.workload, batches_together(placement)
        seconds = objective_seconds(plan.predicted, work, together, self.objective).mid
        others = tuple(
            (label(other.question.frame, other.question._blocks(other.split)), other.seconds) for other in rest[:SHOWN]
        )
        evaluated = sum(configuration.fitting.evaluated for configuration in self.configurations)
        return Decision(plan, seconds, others, tuple(self._rejected(seconds)), self.frame.roles.unused, evaluated)

    def _rejected(self, seconds: float) -> Iterator[RejectedCandidate]:
        """The splits whose decode steps are faster than those of all that fit, by the closed form, where these count;
        `seconds` of the plan's objective."""
        least, steps = self.fitting.best.seconds, self._weights.get("decode", 0.0)
        for split in self.every_split.ranked(SHOWN) if steps else ():
            if split.seconds >= least:
                return
            layout = self.layout(split)
            gained = steps * self.frame.model.layers * (least - split.seconds)
            yield RejectedCandidate(label(self.frame, layout), max(0.0, seconds - gained), self._missing(layout))

    def _infeasible(self) -> InfeasibleError:
        layout = self._nearest()
        missing = dict(self._missing(layout))
        lacks = room_in_words(self.frame.roles.hardware, missing.items())
        return InfeasibleError(
            f"no operation split of {self.frame.model.name} fits {self.frame.roles.hardware.name}",
            remedy=f"the smallest change: {lacks} (then {label(self.frame, layout)} fits)",
            lacks=missing,
            largest=lambda: largest_batch(self.frame.workload, self.fits),
        )

    def fits(self, workload: Workload) -> bool:
        """Whether some split fits for another workload."""
        question = replace(self, frame=replace(self.frame, workload=workload))
        return not question._missing(question._nearest())

    def _nearest(self) -> Layout:
        """The split that lacks least, of all."""
        options = self.search_options
        start, stop = ranges(len(self.units), options.offload)
        start, stop = (edge[self._allowed[start, stop]] for edge in (start, stop))
        ops = storable(self.table) if options.storage else ()
        sets = chain.from_iterable(combinations(ops, size) for size in range(len(ops) + 1))
        candidates: list[tuple[int, Layout]] = []
        for compressed, stored in product(options.compress, sets):
            lacking = self.room.shortage(start, stop, compressed, stored)
            row = int(lacking.argmin())
            layout = self._arranged(int(start[row]), int(stop[row]), compressed, stored)
            candidates.append((int(lacking[row]), layout))
        nearest = min(candidates, key=lambda candidate: candidate[0])[1]
        return replace(nearest, ends=self._ends(nearest))
