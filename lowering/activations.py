"""Activations: what makes them, and what brings them to the memories in which they are read."""

from dataclasses import dataclass, field

from helmsman.lowering.cargo import Cargo, cargo
from helmsman.lowering.dataflow import HIDDEN, TOKEN
from helmsman.lowering.emit import Emitter
from helmsman.lowering.parts import OperationPart
from helmsman.lowering.streams import MemoryRoutes
from helmsman.schemas.formats import Format, StoredFormat
from helmsman.schemas.hardware import Link, activation_lane

TOKEN_BYTES = 4


@dataclass(slots=True)
class Value:
    """An activation: its bytes, the tasks that make it and where, and the tasks that brought it to each memory.

    `parts`: new keys and values only, the tasks that brought to a memory what lives there."""

    size: int
    made: list[tuple[str, int, float]]
    at: dict[str, tuple[int, ...]] = field(default_factory=dict)
    parts: dict[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass
class ActivationTransfers:
    """Makes the tasks that bring values of one format from memory to memory.

    `own_lane`: they do not queue behind weights or caches that come ahead, but have a lane of the same link."""

    format: Format
    out: Emitter
    ways: MemoryRoutes
    own_lane: bool

    def reaching(self, name: str, value: Value, layer: int | None, part: OperationPart) -> tuple[int, ...]:
        """Return the tasks after which input `name` of an operation's part is in its memory; adds transfers the first
        time.

        New keys and values that live there as they are used have been sent there; others come all together."""
        if part.at_home and part.memory in value.parts:
            return value.parts[part.memory]
        if part.memory not in value.at:
            value.at[part.memory] = tuple(
                [self._carried(name, value, part.memory, layer, number, made) for number, made in enumerate(value.made)]
            )
        return value.at[part.memory]

    def _carried(
        self, name: str, value: Value, memory: str, layer: int | None, number: int, made: tuple[str, int, float]
    ) -> int:
        """Return the task after which part `number` of value `name` is in `memory`."""
        origin, task, share = made
        if origin == memory:
            return task
        piece = None if len(value.made) == 1 else number
        output = cargo(HIDDEN if name == "input" else name, "activation", piece=piece)
        size, deps = round(value.size * share), (task, *value.parts.get(memory, ()))
        return self.send(output, layer, (origin, memory), size, self.format, deps)

    def send(
        self,
        output: Cargo,
        layer: int | None,
        ends: tuple[str, str],
        size: int,
        fmt: StoredFormat,
        deps: tuple[int, ...],
    ) -> int:
        """Return the last transfer of an activation from memory to memory: the only one, or the second through the
        host."""
        for hop in self.ways.hops(*ends, size, "pinned"):
            deps = (self.out.transfer(output, layer, hop, fmt, deps, self._lane(hop.link)),)
        return deps[0]

    def return_tokens(self, head: Value, home: str, chosen: int) -> None:
        """The chosen tokens go back to where the next pass looks them up: where embedding and head are apart, a
        transfer that HELM's eq 4.7 does not have."""
        memory, made, _ = head.made[-1]
        if home != memory:
            self.send(cargo(TOKEN, "activation"), None, (memory, home), TOKEN_BYTES * chosen, "f32", (made,))

    def _lane(self, link: Link) -> str:
        return activation_lane(link.name) if self.own_lane else link.name
