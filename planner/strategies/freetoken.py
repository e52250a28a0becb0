"""`freetoken`: a cache of experts in the accelerator's memory, as many of every layer as fit, the last used ones.

Experts that are not there are fetched (`offload`), computed by the CPU (`cpu`), or divided between both by what the
link and the CPU reach together (`hybrid`): of the bytes that are missing the link brings its share of both rates."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self

from helmsman.lowering.placement import Placement
from helmsman.planner.memory.usage import memory_use, shortages
from helmsman.planner.options import Recorded, option
from helmsman.planner.request import PlanRequest
from helmsman.planner.strategies.common_options import same_software_option, table_option, threads_option
from helmsman.planner.strategies.engines.question import EngineQuestion, engine_method, engine_question
from helmsman.planner.strategies.engines.software import NATIVE, Software
from helmsman.planner.strategies.engines.threads import check_threads
from helmsman.planner.strategies.expert_split.layout import ExpertLayout, SlotRule, expert_count, expert_layers, place
from helmsman.planner.strategies.expert_split.rooms import Rooms
from helmsman.planner.strategies.expert_split.suited import check_experts
from helmsman.planner.strategies.streaming.framing import frame_of
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.errors import UsageError

Mode = Literal["offload", "cpu", "hybrid"]
"""What happens to experts that are not in the cache."""

STREAMED_TOKENS = 512
"""Tokens of a prompt from which on whole layers come ahead, double-buffered: nearly all experts of a layer are chosen
by so many (assumed; the engine says no number)."""


@dataclass(frozen=True, slots=True)
class FreeToken:
    """`slots` of every layer, None: as many as fit; `mode`: of what is not there; `share`: of that, what is fetched
    where it is divided, None: by the rates of the machine."""

    slots: int | None = None
    mode: Mode = "hybrid"
    share: float | None = None

    @property
    def name(self) -> str:
        """Return its name on the command line."""
        return "freetoken"

    @property
    def software(self) -> Software:
        """Return how it launches operations: captured graphs and native threads."""
        return NATIVE

    @property
    def recorded(self) -> Recorded:
        """Return how many experts of every layer the cache holds."""
        return {} if self.slots is None else {"expert_slots": self.slots}

    def settled(self, frame: Frame) -> Self:
        """Return the rules with the number of slots that fit."""
        return replace(self, slots=self.count(frame))

    def placement(self, frame: Frame) -> Placement:
        """Return the rules."""
        return place(frame, self._layout(frame, self.count(frame)))

    def count(self, frame: Frame) -> int:
        """Return how many experts of every layer the cache holds."""
        if self.slots is not None:
            return min(self.slots, expert_count(frame.model, self.name))
        return Rooms(frame).most_held(self._layout(frame, 0))

    def label(self, frame: Frame) -> str:
        """Return `freetoken hybrid 24 slots`."""
        return f"{self.name} {self.mode} {self.count(frame)} slots"

    def smaller(self, frame: Frame) -> str | None:
        """Return the largest number of slots that fits, where another was asked for."""
        other = replace(self, slots=None)
        suits = other.count(frame) != self.count(frame) and not shortages(memory_use(other.placement(frame)))
        return f"`expert_slots` {other.count(frame)}" if suits else None

    def _layout(self, frame: Frame, count: int) -> ExpertLayout:
        layers, work = len(expert_layers(frame.model)), frame.workload
        streamed = self.mode != "cpu" and work.batch * work.new_tokens >= STREAMED_TOKENS
        layout = ExpertLayout(0, layers, streamed=streamed)
        return replace(layout, rule=self._rule(frame), slots=count) if count else layout

    def _rule(self, frame: Frame) -> SlotRule:
        if self.mode == "offload":
            return SlotRule("least-recent", "fetched")
        if self.mode == "cpu":
            return SlotRule("least-recent", "host")
        return SlotRule("least-recent", "divided", link_share(frame) if self.share is None else self.share)


def link_share(frame: Frame) -> float:
    """Return the link's share of what the link and the host's reads reach together: of both rates, and no more than
    their memory gives both where that was measured."""
    hardware, host = frame.roles.hardware, frame.roles.host
    link = hardware.link(host.memory, frame.accelerator.memory)
    assert link is not None, "roles have links both ways"
    carried, read = link.bandwidth.value, host.read.value
    joint = hardware.memory(host.memory).joint
    if joint is not None:
        read = min(read, max(joint.value - carried, read / 2))
    return carried / (carried + read)


@dataclass(frozen=True, slots=True)
class FreeTokenOptions:
    """Options of `freetoken`."""

    table: Path | None = table_option()
    same_software: bool = same_software_option()
    expert_slots: int | None = option(
        None, "freetoken: experts of every layer that the cache holds (default: as many as fit)", metavar="N", parse=int
    )
    miss_mode: Mode = option(
        "hybrid",
        "freetoken: experts that are not in the cache are fetched (offload), computed by the CPU (cpu), or both",
        choices=("offload", "cpu", "hybrid"),
    )
    fetched_share: float | None = option(
        None,
        "freetoken: of experts that are not in the cache, the share that hybrid fetches (default: by bandwidths)",
        metavar="SHARE",
        parse=float,
    )
    threads: int | None = threads_option()


def _question(request: PlanRequest[FreeTokenOptions]) -> EngineQuestion:
    """Return the question. Raises UsageError for a model without experts, a machine without an accelerator, and numbers
    that are none."""
    options = request.options
    frame = replace(frame_of(request, options.table, fused=True), formats=request.formats)
    check_experts(frame, "freetoken")
    slots = options.expert_slots
    if slots is not None and slots < 0:
        remedy = "use 0 or more, or leave it out"
        raise UsageError("not a number of slots", field="expert_slots", value=slots, remedy=remedy)
    share = options.fetched_share
    if share is not None and not 0 < share < 1:
        raise UsageError("not a share", field="fetched_share", value=share, remedy="use a number between 0 and 1")
    engine = FreeToken(slots, options.miss_mode, share)
    check_threads(options.threads)
    return engine_question(request, frame, engine, threads=options.threads)


STRATEGY = engine_method(
    "freetoken",
    "FreeToken: the experts used last in the accelerator's memory, others fetched or computed by the CPU",
    FreeTokenOptions,
    _question,
    own_formats=True,
)
