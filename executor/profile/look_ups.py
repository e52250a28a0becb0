"""The cost of looking up which experts are in slots, behind a router, in the turn of a device's queue.

The executor's own slots do it for one token's experts, between operations whose weights drive what a look-up needs out
of the caches, as a run's do. The copies leave after it and are no part of it."""

from dataclasses import dataclass, field

import numpy as np

from helmsman.executor._kernels import Buffer, CopyEngine, Queue, packed_size
from helmsman.executor.devices.memory import arena_beside, view
from helmsman.executor.devices.value_sizes import INDEX_BYTES
from helmsman.executor.homes.store import PackedRows
from helmsman.executor.routing.slot_room import ABSENT, SlotMatrices, SlotRoom
from helmsman.executor.routing.slot_table import SlotTable
from helmsman.executor.routing.slots import LayerSlots
from helmsman.scheduler.expert_cache import ExpertCache
from helmsman.schemas.plan import ExpertSlots, Select

EXPERTS, CHOSEN, SLOTS = 128, 8, 48
"""Of a layer as current models have them; somewhat more than a third of the experts are in slots."""
FETCHED = 0.2
"""Which share of the misses comes to slots: one expert of five that a token misses."""
PRODUCTS = ("gate", "up", "down")
ROWS, COLUMNS = 512, 1024
"""Of a matrix: 1 MiB, so that copies take a thread of their own as those of experts do."""


@dataclass
class SlotLookUps:
    """Look-ups in slots that are filled over `engine`; every one is of other experts."""

    engine: CopyEngine
    _turn: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def __post_init__(self) -> None:
        size = packed_size("bf16", ROWS, COLUMNS)
        tables = INDEX_BYTES * (2 * EXPERTS + 1)
        arena = arena_beside(2 * size + tables + (1 << 12))
        here, home = (arena.alloc(size, "an expert") for _ in range(2))
        table, late = (arena.alloc(INDEX_BYTES * count, "slots of experts") for count in (EXPERTS + 1, EXPERTS))
        view(table, np.int32)[:EXPERTS] = ABSENT
        rule = ExpertSlots(
            select=Select(names="experts_*"), memory="vram", slots=SLOTS, misses="divided", fetched=FETCHED
        )
        room = SlotRoom(rule, EXPERTS, {name: _matrices(here, home) for name in PRODUCTS}, table, late)
        self._slots = LayerSlots(SlotTable(room, self.engine), ExpertCache(SLOTS))

    def submit(self, queue: Queue) -> "memoryview":
        """Submit a look-up, and what brings experts after it; return where its start and end will be (f64, 2)."""
        ids = self._turn.choice(EXPERTS, (1, CHOSEN), replace=False).astype(np.int32)
        times = np.zeros(2).data
        queue.call(lambda: self._slots.divided(ids, ids.copy(), first=True), times)
        queue.call(self._bring)
        return times

    def settle(self) -> None:
        """Wait for the experts that come."""
        self._slots.table.settle()

    def _bring(self) -> None:
        self._slots.end("divided")
        self._slots.table.start()


def _matrices(here: Buffer, home: Buffer) -> SlotMatrices:
    """Return a product's slots, all of them in one place: nobody computes with what is there."""
    return SlotMatrices(_OneExpert(0, EXPERTS, COLUMNS, "bf16", "dram", home, each=ROWS), [here] * SLOTS)


class _OneExpert(PackedRows):
    """All experts of a product, as if they had one matrix."""

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Return that of the first."""
        return super().span(0, 1)
