"""`flexgen`: FlexGen's own schedule, the baseline of Park & Egger (PARK-07, 08): everything computed on the accelerator
from streamed weights and caches that are pinned on the fly, a barrier after every layer.

A batch does a layer whole before the next one begins, one batch's cache is on the accelerator at a time (PARK-05), and
new keys and values leave before anything else starts (PARK-71)."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from helmsman.lowering.placement import Placement
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.decision import Decision
from helmsman.planner.memory.usage import memory_use, shortages
from helmsman.planner.options import Recorded, option
from helmsman.planner.registry import Method
from helmsman.planner.request import PlanRequest
from helmsman.planner.strategies.common_options import (
    compress_option,
    home_option,
    inclusive_option,
    kv_rule_option,
    kv_store_option,
    managed_option,
    nvme_option,
    paper_option,
    percent_option,
    reshape_option,
    table_option,
)
from helmsman.planner.strategies.offload.allocation import Percentages
from helmsman.planner.strategies.offload.caches import CacheRule
from helmsman.planner.strategies.offload.keeping import decide_in_tiers
from helmsman.planner.strategies.offload.strategy import Offloading
from helmsman.planner.strategies.percentages import FlexGenPercentages
from helmsman.planner.strategies.streaming.division import pieces
from helmsman.planner.strategies.streaming.framing import bounded, frame_of, with_doubts
from helmsman.planner.strategies.streaming.place import Frame, Layout, packed_kv, place
from helmsman.planner.strategies.streaming.question import Question
from helmsman.schemas.errors import UsageError
from helmsman.schemas.objective import DEFAULT_OBJECTIVE, Objective
from helmsman.schemas.plan import ComputeRule, KvRule, LayerRange, Select


@dataclass(frozen=True)
class FlexGen:
    """FlexGen's plan for one question; `host_attention`: its CPU-compute mode, attention where the cache lives.

    `compress`: weights and caches in 4-bit groups, expanded between the operations of the accelerator."""

    frame: Frame
    compress: bool
    host_attention: bool
    cost_options: CostOptions
    objective: Objective = DEFAULT_OBJECTIVE

    def decide(self, recorded: Recorded) -> Decision:
        """The plan. Raises InfeasibleError when it does not fit, with the largest batch that does."""
        if not self._question.fits(self.placement):
            raise self._question.infeasible("FlexGen's schedule", self.placement, self._fits)
        return self._question.decision("flexgen", self.label, self.placement, recorded)

    @property
    def _question(self) -> Question:
        return Question(self.frame, self.cost_options, self.objective)

    def _fits(self, question: Question) -> bool:
        return question.fits(replace(self, frame=question.frame).placement)

    @property
    def label(self) -> str:
        """`flexgen cuda[stream]`, with its modes."""
        modes = [name for name, on in (("q4", self.compress), ("cpu attention", self.host_attention)) if on]
        work = self.frame.workload
        shape = [f"{work.batches}x{work.batch}"] if work.batches > 1 else []
        return " ".join([f"flexgen {self.frame.accelerator.kind}[stream]", *modes, *shape])

    @cached_property
    def costs(self) -> CostModel:
        """Prices from the operation table that fits the question, and rooflines for the rest."""
        return self._question.costs(self.placement)

    @cached_property
    def placement(self) -> Placement:
        """FlexGen's rules. Raises UsageError for a machine without a separate accelerator."""
        self._question.check("flexgen")
        units = pieces(self.frame.model, {})
        layout = Layout(units, 0, len(units), weights_q4=self.compress, cache_q4=self._cache_q4)
        return self._scheduled(place(self.frame, replace(layout, ends=self._ends(layout))))

    @property
    def _cache_q4(self) -> bool:
        return self.compress and not self.host_attention

    def _ends(self, layout: Layout) -> Literal["host", "accelerator"]:
        away = self._scheduled(place(self.frame, replace(layout, ends="accelerator")))
        return "host" if shortages(memory_use(away)) else "accelerator"

    def _scheduled(self, placement: Placement) -> Placement:
        """FlexGen's order, homes and barriers on top of a plan that streams everything."""
        attention = (self._attention_rule(),) if self.host_attention else ()
        order = {"order": "layer-major", "attention": "whole", "barrier": True, "expand": "before-use"}
        return replace(
            placement,
            kv=(self._cache_rule(),),
            compute=(*attention, *placement.compute),
            schedule=placement.schedule.model_copy(update=order),
        )

    def _attention_rule(self) -> ComputeRule:
        blocks = Select(names="attention", layers=LayerRange(start=0, stop=self.frame.model.layers))
        return ComputeRule(select=blocks, device=self.frame.roles.host.name, phase="decode")

    def _cache_rule(self) -> KvRule:
        return packed_kv(self.frame, self._cache_q4, Select(), self.frame.roles.host.memory, "pin-on-transfer")


@dataclass(frozen=True, slots=True)
class FlexGenOptions:
    """Options of `flexgen`: its schedule of streamed layers or, with `percent`, weights in three tiers."""

    compress: str = compress_option()
    table: Path | None = table_option()
    reshape: bool = reshape_option()
    cpu_compute: bool = option(False, "flexgen: attention where the cache lives")
    home: str | None = home_option()
    kv_rule: CacheRule | None = kv_rule_option()
    kv_store: str | None = kv_store_option()
    managed: bool = managed_option()
    percent: str | None = percent_option()
    inclusive: bool = inclusive_option()
    nvme: Literal["direct", "bounce"] | None = nvme_option()
    paper: bool = paper_option()


OF_PERCENTAGES = ("home", "kv_rule", "kv_store", "managed", "percent", "inclusive", "nvme")
"""Options that go with `percent` alone."""


def _decide(request: PlanRequest[FlexGenOptions]) -> Decision:
    options = request.options
    return _scheduled(request, options) if options.percent is None else _in_tiers(request, options)


def _scheduled(request: PlanRequest[FlexGenOptions], options: FlexGenOptions) -> Decision:
    for name in (*OF_PERCENTAGES, "paper"):
        if getattr(options, name) not in (None, False):
            remedy = "add `percent` S,H,A, or leave it out"
            raise UsageError("goes with FlexGen's percentages alone", field=name, remedy=remedy)
    if options.compress not in ("none", "all"):
        problem, remedy = "FlexGen compresses both or nothing", "use `compress` none or all"
        raise UsageError(problem, field="compress", value=options.compress, remedy=remedy)
    frame = frame_of(request, options.table, reshape=options.reshape)
    schedule = FlexGen(frame, options.compress == "all", options.cpu_compute, request.prices, request.objective)
    recorded = request.recorded(*OF_PERCENTAGES)
    return bounded(with_doubts(lambda: schedule.decide(recorded), options.table, frame), options.table)


def _in_tiers(request: PlanRequest[FlexGenOptions], options: FlexGenOptions) -> Decision:
    frame = frame_of(request, options.table, reshape=options.reshape)
    tiers = FlexGenPercentages(Percentages.read(options.percent))
    return decide_in_tiers(
        request, options, frame, lambda keeping, costs: Offloading(frame, tiers, keeping, costs, request.objective)
    )


STRATEGY = Method(
    "flexgen",
    "FlexGen: the accelerator computes from streamed weights and caches",
    FlexGenOptions,
    _decide,
    streams=True,
)
