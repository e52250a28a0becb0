"""Resident data on its way to a device: page-locked, transferred link by link, expanded."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from helmsman.lowering.cargo import Cargo, cargo
from helmsman.lowering.emit import Emitter
from helmsman.lowering.parts import Coming
from helmsman.lowering.placement import Placed
from helmsman.lowering.streams import MemoryRoutes, Resident
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.hardware import Link

Deps = tuple[int, ...]
"""Tasks that a task waits for."""


class FetchedData(NamedTuple):
    """Resident data of one kind that has come to `device` after `deps`, or is expanded there after them."""

    cargo: Cargo
    layer: int | None
    device: str
    resident: Resident
    deps: Deps


@dataclass
class Fetches:
    """Makes the tasks that bring what lives elsewhere.

    `launched`: the operation that was launched last; `latest`: by link, the last streamed transfer."""

    plan: Placed
    out: Emitter
    ways: MemoryRoutes
    memory_of: dict[str, str]
    launched: int | None = None
    latest: dict[str, int] = field(default_factory=dict)

    def after_launched(self) -> Deps:
        """Of what the thread that launches operations does itself, or lets wait for them."""
        return () if self.launched is None else (self.launched,)

    def bring(
        self, layer: int | None, device: str, coming: Iterable[Coming], deps: Deps, expanding: Deps
    ) -> list[FetchedData]:
        """Brings resident data that does not live in the memory of `device` as it is used.

        What comes waits for `deps`, what lives there and is only expanded for `expanding`."""
        memory = self.memory_of[device]
        result = []
        for carried, resident in coming:
            here = resident.lives_in(memory)
            after = expanding if here else self._stream(carried, layer, memory, resident, deps)
            result.append(FetchedData(carried, layer, device, resident, after))
        return result

    def expand(self, arrived: Iterable[FetchedData], after: Deps = ()) -> list[int]:
        """The last tasks of what makes that usable: 4-bit groups are expanded, `after` other tasks too."""
        result: list[int] = []
        for data in arrived:
            result += [self._decompress(data, after)] if data.resident.expands else data.deps
        return result

    def _stream(self, carried: Cargo, layer: int | None, memory: str, resident: Resident, deps: Deps) -> Deps:
        """The last transfers of resident data to `memory`, one from each of its homes."""
        arrived: Deps = ()
        for home, share in resident.copies:
            one = carried if len(resident.copies) == 1 else cargo(*carried[:4], home)
            after, size = deps, round(resident.size * share)
            if resident.path == "pin-on-transfer":
                after = (self._pin(one, layer, home, size, resident.format),)
            for hop in self.ways.hops(home, memory, size, resident.path):
                after += self._behind(hop.link)
                self.latest[hop.link.name] = self.out.transfer(one, layer, hop, resident.format, after)
                after = (self.latest[hop.link.name],)
            arrived += after
        return arrived

    def _behind(self, link: Link) -> Deps:
        """Return the task behind which a stream leaves; those sent ahead leave in order: one process issues the copies
        of a link (PARK-52)."""
        ahead = self.plan.schedule.overlap == "next-layer" and link.name in self.latest
        return (self.latest[link.name],) if ahead else ()

    def _pin(self, carried: Cargo, layer: int | None, home: str, size: int, fmt: StoredFormat) -> int:
        """A copy to page-locked memory by the processor of that memory (PARK-07).

        The thread that launches work makes it, so it does not run ahead: it follows the operation before."""
        lane = next(device.name for device in self.plan.hardware.devices if device.memory == home)
        return self.out.preparation("pin", carried, layer, lane, 2 * size, fmt, (home,), self.after_launched())

    def _decompress(self, arrived: FetchedData, after: Deps) -> int:
        ahead, device = self.plan.schedule.expand == "on-arrival", arrived.device
        lane = self.plan.hardware.device(device).decompression_lane if ahead else device
        size, deps = arrived.resident.size + arrived.resident.used, tuple(sorted({*arrived.deps, *after}))
        return self.out.preparation(
            "decompress", arrived.cargo, arrived.layer, lane, size, "q4", (self.memory_of[device],), deps
        )
