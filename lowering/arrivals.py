"""Resident data on its way to a device: page-locked, transferred link by link, expanded."""

from dataclasses import dataclass, field

from helmsman.lowering.emit import Emitter
from helmsman.lowering.ops import Operation
from helmsman.lowering.placement import Placed
from helmsman.lowering.streams import Resident, grouped, hops
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.hardware import Link

Deps = tuple[int, ...]
"""Tasks that a task waits for."""


@dataclass
class Arrivals:
    """Makes the tasks that bring what lives elsewhere.

    `launched`: the operation that was launched last; `latest`: by link, the last streamed transfer."""

    plan: Placed
    out: Emitter
    memory_of: dict[str, str]
    launched: int | None = None
    latest: dict[str, int] = field(default_factory=dict)

    def after_launched(self) -> Deps:
        """Of what the thread that launches operations does itself, or lets wait for them."""
        return () if self.launched is None else (self.launched,)

    def arrive(
        self, what: str, suffix: str, op: Operation, device: str, residents: list[Resident], deps: Deps, expanding: Deps
    ) -> list[int]:
        """The last tasks of what brings resident data to `device` and expands it.

        What comes waits for `deps`, what lives there and is only expanded for `expanding`."""
        memory = self.memory_of[device]
        groups = grouped(each for each in residents if not each.lives_in(memory) or each.format == "q4")
        found: list[int] = []
        for number, each in enumerate(groups):
            part = f"{suffix}.{number}" if number else suffix
            if each.lives_in(memory):
                found.append(self._decompress(what, part, op, device, each, expanding))
            else:
                found += self._stream(what, part, op, device, each, deps)
        return found

    def _stream(self, what: str, suffix: str, op: Operation, device: str, resident: Resident, deps: Deps) -> list[int]:
        """The tasks that bring resident data to `device` and expand it; the last of them in each chain."""
        memory, arrived = self.memory_of[device], list[int]()
        for home, share in resident.copies:
            number = "" if len(resident.copies) == 1 else f".{home}"
            after, size = deps, round(resident.size * share)
            if resident.path == "pin-on-transfer":
                after = (self._pin(f"{what}{suffix}{number}", op, home, size, resident.format),)
            for hop in hops(self.plan, home, memory, size, resident.path):
                after += self._behind(hop.link)
                name = f"{what}{suffix}{number}"
                self.latest[hop.link.name] = self.out.transfer(name, op.layer, hop, resident.format, after, what)
                after = (self.latest[hop.link.name],)
            arrived += after
        if resident.format == "q4":
            return [self._decompress(what, suffix, op, device, resident, tuple(arrived))]
        return arrived

    def _behind(self, link: Link) -> Deps:
        """What is streamed ahead leaves in order: one process issues the copies of a link (PARK-52)."""
        ahead = self.plan.schedule.overlap == "next-layer" and link.name in self.latest
        return (self.latest[link.name],) if ahead else ()

    def _pin(self, what: str, op: Operation, home: str, size: int, fmt: StoredFormat) -> int:
        """A copy to page-locked memory by the processor of that memory (PARK-07).

        The thread that launches work makes it, so it does not run ahead: it follows the operation before."""
        lane = next(device.name for device in self.plan.hardware.devices if device.memory == home)
        name = f"{what}.pin"
        deps = self.after_launched()
        return self.out.append(name, op.layer, "pin", name, lane, size=2 * size, fmt=fmt, memories=(home,), deps=deps)

    def _decompress(self, what: str, suffix: str, op: Operation, device: str, resident: Resident, deps: Deps) -> int:
        ahead = self.plan.schedule.expand == "on-arrival"
        lane = self.plan.hardware.device(device).decompression_lane if ahead else device
        return self.out.append(
            f"{what}{suffix}.decompress",
            op.layer,
            "decompress",
            f"{what}.decompress",
            lane,
            size=resident.size + resident.used,
            fmt="q4",
            memories=(self.memory_of[device],),
            deps=deps,
        )
