"""The parts that a device hands out: buffers of its memory, stages over them, and the lanes that run stages and move
bytes.

Parts meet parts of the same device only: a stage has buffers of its device's memory, and goes to that device's queues.
Plans find devices by name, so that this is known when a part is handed back and not before: TypeError is raised for
one that another kind of device made (`of_kind`; native parts do so by themselves). Host buffers and events are native,
and any device may be handed them."""

from collections.abc import Sequence
from typing import Protocol, TypedDict, TypeVar

from typing_extensions import Buffer as SupportsBuffer

from helmsman.executor._kernels import Buffer as HostBuffer
from helmsman.executor._kernels import Event
from helmsman.schemas.formats import StoredFormat

PartT = TypeVar("PartT")


class Buffer(Protocol):
    """Bytes in the memory of a device. Those of processors are host buffers, which every device can copy."""

    @property
    def size(self) -> int:
        """Bytes."""

    def part(self, offset: int, size: int) -> "Buffer":
        """Bytes of it as a buffer of their own."""


class Region(TypedDict):
    """Where something is in a workspace, in bytes. Row: sequence * tokens + token, of one pass or chunk."""

    offset: int
    row_bytes: int
    stride: int
    """From row to row."""


KvSpan = tuple[Buffer, int, Buffer, int, int, int, int, int]
"""Cached positions [position, position + count): keys, their offset, values, theirs, bytes from sequence to sequence,
from KV head to KV head, position, count. A head's rows are (count, head_dim) in the KV format."""


class Stage(Protocol):
    """The operations of one device, named as lowering names them (`embedding`, `3.q`), over a workspace."""

    @property
    def ops(self) -> list[str]:
        """In order."""

    @property
    def workspace(self) -> Buffer:
        """Its activations."""

    def regions(self) -> dict[str, Region]:
        """Where hidden, normed, q, k, v, attended, gate, up and (divided) scores are in the workspace, all f32: for
        stages of the same spec in the same places on every device, so that copies carry rows from one to another."""

    def logits(self) -> SupportsBuffer:
        """f32 (batch, vocab) of the last pass; the stage must have a head."""


class Queue(Protocol):
    """A lane on which a device computes what was submitted, in order.

    An item waits for its events, runs, and signals. After one failed, later ones only signal, until `check` has raised
    the error."""

    def run(
        self,
        stage: Stage,
        source: Buffer | None,
        target: Buffer | None,
        tokens: int,
        past: int,
        stamps: SupportsBuffer,
        first: int = 0,
        last: int | None = None,
        start: int = 0,
        stop: int | None = None,
        wait: Sequence[Event] = (),
        done: Event | None = None,
    ) -> None:
        """Operations [first, last) of a pass of `tokens` on top of `past` cached ones, for its tokens [start, stop).

        `source` and `target` (None: the workspace) and `stamps`, f64 (last - first + 1,), as `_kernels.Stage.run` has
        them."""

    def attend(
        self,
        stage: Stage,
        block: int,
        spans: Sequence[KvSpan],
        first: bool,
        last: bool,
        tokens: int,
        past: int,
        times: SupportsBuffer | None = None,
        wait: Sequence[Event] = (),
        done: Event | None = None,
    ) -> None:
        """Attention of a block over some `spans` of its cache; the `first` part begins anew, the `last` one ends it.

        `times`: f64 (2,), filled with start and end."""

    def check(self) -> None:
        """Raise the first error since the last check, if any."""

    def synchronize(self) -> None:
        """Block until everything submitted so far is done, then check."""


class CopyEngine(Protocol):
    """A lane that moves bytes between memories, one copy at a time, in the order in which they were submitted.

    A copy begins when the events of `wait` are done, then signals `done`; `times`: f64 (2,), its start and end."""

    def submit(
        self,
        target: Buffer,
        target_offset: int,
        source: Buffer,
        source_offset: int,
        size: int,
        wait: Sequence[Event] = (),
        done: Event | None = None,
        times: SupportsBuffer | None = None,
    ) -> object:
        """Queue a copy of `size` bytes; what it returns is for the engine's own kind."""

    def submit_pieces(
        self,
        target: Buffer,
        target_offset: int,
        source: Buffer,
        source_offset: int,
        pieces: SupportsBuffer,
        wait: Sequence[Event] = (),
        done: Event | None = None,
        times: SupportsBuffer | None = None,
    ) -> object:
        """Like submit, for one or more `pieces`, int64 (n, 3): offsets from those of target and source, bytes."""

    def submit_strided(
        self,
        target: Buffer,
        target_offset: int,
        target_strides: tuple[int, int],
        source: Buffer,
        source_offset: int,
        source_strides: tuple[int, int],
        counts: tuple[int, int],
        size: int,
        wait: Sequence[Event] = (),
        done: Event | None = None,
        times: SupportsBuffer | None = None,
    ) -> object:
        """Like submit, for counts[0] * counts[1] pieces of `size` bytes at byte strides from each other."""

    def submit_lookup(
        self,
        target: Buffer,
        target_offset: int,
        table: HostBuffer,
        fmt: StoredFormat,
        rows: int,
        columns: int,
        ids: HostBuffer,
        count: int,
        wait: Sequence[Event] = (),
        done: Event | None = None,
        times: SupportsBuffer | None = None,
    ) -> object:
        """Like submit, for the `count` rows `ids` (int32) of a packed matrix of the host, one after the other."""


def of_kind(part: object, kind: type[PartT]) -> PartT:
    """Return `part`, which is of `kind`: one that is handed back to the device that made it.

    Raises TypeError for a part that another device made."""
    if not isinstance(part, kind):
        raise TypeError(f"a {type(part).__name__} of another device, where a {kind.__name__} of this one belongs")
    return part
