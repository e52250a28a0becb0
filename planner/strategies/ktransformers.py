"""`ktransformers`: so many experts of every layer on the accelerator, the others computed by the CPU beside them.

Everything but routed experts is on the accelerator. Which experts are there is by number, or those that tokens choose
most where the routing says it (`kt-num-gpu-experts`, `kt-expert-placement-strategy`). Prompts above a number of tokens
are computed on the accelerator, layer after layer, the other experts streamed (`kt-gpu-prefill-token-threshold`)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self

from helmsman.lowering.placement import Placement
from helmsman.planner.memory.usage import memory_use, shortages
from helmsman.planner.options import Recorded, option
from helmsman.planner.request import PlanRequest
from helmsman.planner.strategies.common_options import (
    cards_option,
    check_cards,
    every_way_option,
    same_software_option,
    table_option,
    threads_option,
)
from helmsman.planner.strategies.engines.question import EngineQuestion, engine_method, engine_question
from helmsman.planner.strategies.engines.software import NATIVE, Software
from helmsman.planner.strategies.engines.threads import check_threads
from helmsman.planner.strategies.engines.vllm_cards import card_counts, joined
from helmsman.planner.strategies.expert_split.layout import ExpertLayout, SlotRule, expert_count, expert_layers, place
from helmsman.planner.strategies.expert_split.rooms import Rooms
from helmsman.planner.strategies.expert_split.suited import check_experts
from helmsman.planner.strategies.streaming.framing import frame_of
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.errors import UsageError

Order = Literal["number", "popularity"]
"""By what the experts on the accelerator are chosen."""


@dataclass(frozen=True, slots=True)
class KTransformers:
    """`experts` of every layer on the accelerator, None: as many as fit; `order`: which; `threshold`: tokens of a
    prompt above which layers are streamed, None: never; `cards`: equal accelerators that divide every layer."""

    experts: int | None = None
    order: Order = "number"
    threshold: int | None = None
    cards: int = 1

    @property
    def name(self) -> str:
        """Return its name on the command line."""
        return "ktransformers"

    @property
    def software(self) -> Software:
        """Return how it launches operations: captured graphs and native threads."""
        return NATIVE

    @property
    def recorded(self) -> Recorded:
        """Return how many experts of every layer are on the accelerator."""
        return {} if self.experts is None else {"gpu_experts": self.experts}

    def settled(self, frame: Frame) -> Self:
        """Return the rules with the number of experts that fit."""
        return replace(self, experts=self.count(frame))

    def placement(self, frame: Frame) -> Placement:
        """Return the rules. Raises UsageError where the machine has not as many equal accelerators."""
        return place(self._joined(frame), self._layout(frame, self.count(frame)))

    def count(self, frame: Frame) -> int:
        """Return how many experts of every layer are on the accelerator."""
        if self.experts is not None:
            return min(self.experts, expert_count(frame.model, self.name))
        return Rooms(self._joined(frame)).most_held(self._layout(frame, 0))

    def label(self, frame: Frame) -> str:
        """Return `ktransformers 24 experts by number`, of several accelerators `ktransformers 2x 24 experts ..`."""
        streamed = ", prompts streamed" if self._streams(frame) else ""
        several = f" {self.cards}x" if self.cards > 1 else ""
        return f"{self.name}{several} {self.count(frame)} experts by {self.order}{streamed}"

    def smaller(self, frame: Frame) -> str | None:
        """Return the largest number of experts that fits, where another was asked for."""
        other = replace(self, experts=None)
        suits = other.count(frame) != self.count(frame) and not shortages(memory_use(other.placement(frame)))
        return f"`gpu_experts` {other.count(frame)}" if suits else None

    def _joined(self, frame: Frame) -> Frame:
        """Return the question on a machine whose accelerators are one where they divide every layer."""
        return joined(frame, self.cards)

    def _streams(self, frame: Frame) -> bool:
        work = frame.workload
        return self.threshold is not None and work.batch * work.new_tokens > self.threshold

    def _layout(self, frame: Frame, count: int) -> ExpertLayout:
        layers, experts = len(expert_layers(frame.model)), expert_count(frame.model, self.name)
        if count == experts:
            return ExpertLayout(0, 0)
        layout = ExpertLayout(0, layers, streamed=self._streams(frame))
        if self.order == "number" or not count:
            return replace(layout, kept=count)
        return replace(layout, rule=SlotRule("popularity", "host"), slots=count)


@dataclass(frozen=True, slots=True)
class KTransformersOptions:
    """Options of `ktransformers`."""

    table: Path | None = table_option()
    same_software: bool = same_software_option()
    every_way: bool = every_way_option()
    gpu_experts: int | None = option(
        None,
        "ktransformers: experts of every layer on the accelerator (default: as many as fit)",
        metavar="N",
        parse=int,
    )
    expert_order: Order = option(
        "number",
        "ktransformers: which experts those are; popularity: those that tokens choose most, by --routing",
        choices=("number", "popularity"),
    )
    stream_above: int | None = option(
        None,
        "ktransformers: tokens of a prompt above which layers are streamed to the accelerator (default: never)",
        metavar="N",
        parse=int,
    )
    threads: int | None = threads_option()
    tensor_parallel_size: int | None = cards_option()


def _question(request: PlanRequest[KTransformersOptions]) -> EngineQuestion:
    """Return the question. Raises UsageError for a model without experts, a machine without an accelerator, and numbers
    that are none."""
    options = request.options
    frame = replace(frame_of(request, options.table, fused=True), formats=request.formats)
    check_experts(frame, "ktransformers")
    for name, value in (("gpu_experts", options.gpu_experts), ("stream_above", options.stream_above)):
        if value is not None and value < 0:
            raise UsageError("not a number of them", field=name, value=value, remedy="use 0 or more, or leave it out")
    check_threads(options.threads)
    check_cards(options.tensor_parallel_size)
    cards = options.tensor_parallel_size or 1
    engine = KTransformers(options.gpu_experts, options.expert_order, options.stream_above, cards)
    return engine_question(request, frame, engine, threads=options.threads)


def _ways(request: PlanRequest[KTransformersOptions]) -> Iterator[PlanRequest[KTransformersOptions]]:
    """Yield a request for every number of cards that it leaves open; for one card alone where `best` compares with
    placements of engines."""
    options = request.options
    frame = frame_of(request, options.table, fused=True)
    alone = options.same_software and not options.every_way
    for count in card_counts(options.tensor_parallel_size, frame, alone):
        yield replace(request, options=replace(options, tensor_parallel_size=count))


STRATEGY = engine_method(
    "ktransformers",
    "ktransformers: so many experts of every layer on the accelerator, the others on the CPU",
    KTransformersOptions,
    _question,
    own_formats=True,
    ways=_ways,
)
