"""Tiers of an offloading strategy, from its options, and the decision on what is kept in them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol

from helmsman.planner.cost.model import CostOptions
from helmsman.planner.decision import Decision
from helmsman.planner.request import PlanRequest
from helmsman.planner.strategies.common_options import memory_named
from helmsman.planner.strategies.offload.caches import CacheRule
from helmsman.planner.strategies.offload.place import Keeping
from helmsman.planner.strategies.offload.strategy import Offloading
from helmsman.planner.strategies.storage import storage_of
from helmsman.planner.strategies.streaming.framing import with_doubts
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.streaming.prefix_store import kv_store
from helmsman.schemas.errors import UsageError
from helmsman.schemas.storage import STORAGE


class OffloadingOptions(Protocol):
    """Options that all offloading strategies have."""

    @property
    def compress(self) -> str:
        """Weights, keys and values in 4-bit groups, or none of them."""

    @property
    def home(self) -> str | None:
        """The memory that is the host's tier."""


def keeping_of(
    frame: Frame,
    options: OffloadingOptions,
    rule: CacheRule | None = None,
    store: str | None = None,
    *,
    nvme: Literal["direct", "bounce"] | None = None,
    inclusive: bool = False,
    managed: bool = False,
) -> Keeping:
    """Return the tiers of a frame's machine; `rule`, `store`: where keys and values are. Raises UsageError."""
    if options.compress not in ("none", "weights"):
        problem, remedy = "keys and values are kept as they are", "use `compress` none or weights"
        raise UsageError(problem, field="compress", value=options.compress, remedy=remedy)
    hardware = frame.roles.hardware
    known = kv_store(frame, rule, store)
    return Keeping(
        host=memory_named(options.home, frame.roles.host.memory, "home", hardware),
        storage=next((memory.name for memory in hardware.memories if memory.kind == STORAGE), None),
        compress=options.compress == "weights",
        cache="accelerator" if known or rule is None else rule,
        path=nvme if nvme is not None and storage_of(nvme, hardware) else "bounce",
        store=known,
        inclusive=inclusive,
        managed=managed,
    )


class TierOptions(OffloadingOptions, Protocol):
    """Options of strategies that divide weights among three tiers."""

    @property
    def table(self) -> Path | None:
        """The user's operation table."""

    @property
    def kv_rule(self) -> CacheRule | None:
        """The place of keys and values."""

    @property
    def kv_store(self) -> str | None:
        """The memory in which known tokens of prompts wait."""

    @property
    def nvme(self) -> Literal["direct", "bounce"] | None:
        """The path by which weights come from storage."""

    @property
    def inclusive(self) -> bool:
        """Whether the accelerator's weights are copies of the host's."""

    @property
    def managed(self) -> bool:
        """Whether the host's tier is managed memory."""

    @property
    def paper(self) -> bool:
        """Whether links may be faster than the lanes they share, as printed."""


def decide_in_tiers(
    request: PlanRequest[Any], options: TierOptions, frame: Frame, choose: Callable[[Keeping, CostOptions], Offloading]
) -> Decision:
    """Return the decision of what `choose` makes of a frame's tiers and prices. Raises UsageError, InfeasibleError."""
    costs = replace(request.prices, capped=not options.paper)
    keeping = keeping_of(
        frame,
        options,
        options.kv_rule,
        options.kv_store,
        nvme=options.nvme,
        inclusive=options.inclusive,
        managed=options.managed,
    )
    strategy, recorded = choose(keeping, costs), {**request.recorded(), "capped": costs.capped}
    storage = storage_of(options.nvme, request.hardware)
    return with_doubts(lambda: strategy.decide(recorded), options.table, frame, storage)
