"""From the options of an offloading strategy to what its tiers are."""

from typing import Literal, Protocol

from helmsman.planner.strategies.common_options import memory_named
from helmsman.planner.strategies.offload.caches import CacheRule
from helmsman.planner.strategies.offload.place import Keeping
from helmsman.planner.strategies.storage import storage_of
from helmsman.planner.strategies.streaming.known import kv_store
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.errors import UsageError
from helmsman.schemas.storage import STORAGE


class OffloadingOptions(Protocol):
    """What all offloading strategies are asked."""

    @property
    def compress(self) -> str:
        """What is kept in 4-bit groups."""

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
