"""The interface of a device that serves: iterations of many requests, and cohorts that go on by a layer in each of
them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypedDict

from typing_extensions import Buffer as SupportsBuffer

from helmsman.executor._kernels import Event, Ragged
from helmsman.executor.devices.parts import Buffer, CopyEngine, Queue, Stage
from helmsman.schemas.formats import StoredFormat

Lanes = tuple[Queue, Queue | None, CopyEngine | None, CopyEngine | None, CopyEngine | None, CopyEngine | None]
"""The accelerator's queue and the host's; engines to the host and to the device for caches, and for activations."""
SubBatch = tuple[Stage, Ragged, SupportsBuffer, Stage | None, Ragged | None]
"""The accelerator's stage, rows, int32 ids of all of them (and of those that join), and for the last rows, whose
attention is the host's, the host's stage and its rows. The second sub-batch's stage needs neither final norm nor
head."""
LayerSide = tuple[Buffer, int, int]
"""A buffer in which layer l's bytes begin at (l % layers) * stride: buffer, stride, layers."""
LayerCopies = tuple[LayerSide, LayerSide, SupportsBuffer]
"""Source, target, and int64 (n, 3): target offset, source offset, bytes, the same for every layer."""

ExpertLookup = tuple[int, Callable[[int, int], bool], Event | None]
"""A block whose experts are not all there, and the function that is called behind its router with a sub-batch and how
many rows that has: it lets the stage compute some of the experts that they have chosen, and says whether others remain,
for which it is called again. Where the host computes some of them: what is signalled when their sum has come, for which
`combine` waits."""

WeightMove = tuple[Buffer, int, Buffer, int, int]
"""Target and offset, source and offset, bytes."""

LookedUpTable = tuple[Buffer, StoredFormat, int, int, Sequence[Buffer]]
"""A token table at home in the host's memory, packed, with its format, rows and columns, and where the rows of each
sub-batch's tokens come."""


@dataclass(frozen=True)
class PassWeights:
    """Lists the weights that are copied to a device in every pass: `operations` with the moves of their weights,
    whether these are copied `ahead` of the pass and `together`, and the token `table` of which the embedding reads
    rows."""

    operations: Sequence[tuple[int, int, int, Sequence[WeightMove]]]
    ahead: bool
    together: bool
    table: LookedUpTable | None


class Seconds(TypedDict):
    """Of an iteration's parts, added up over layers; `linear` and `ends` with waiting for weights."""

    linear: tuple[float, float]
    ends: float
    gpu_attention: float
    cpu_attention: float
    to_host: float
    to_device: float
    swap_out: float
    swap_in: float
    weights: float


class Cohort(Protocol):
    """Requests whose attention the host does, a layer in an iteration, while the accelerator goes on."""

    @property
    def layer(self) -> int | None:
        """Whose attention was begun last; None: a token begins."""

    @property
    def landed(self) -> bool:
        """Whether nothing is under way."""

    def wait(self) -> None:
        """Block until nothing is."""

    def reset(self) -> None:
        """Forget the token under way, which has landed."""


Joining = tuple[Cohort, Ragged, Ragged, SupportsBuffer, bool, bool]
"""A cohort in an iteration, as `_kernels.ServingPass` has it."""


class ServingPass(Protocol):
    """One iteration, submitted as it is made."""

    def wait(self) -> None:
        """Block until it is done, but for what cohorts have under way. Raises what failed."""

    def chosen(self) -> list[int]:
        """The likeliest tokens, by output, those of sub-batch 0 first; logits of all of them are in its stage."""

    def seconds(self) -> Seconds:
        """Where its time went."""

    @property
    def joined(self) -> list[bool]:
        """Which of the cohorts went on."""


@dataclass(frozen=True)
class Driver:
    """The functions that make the cohorts and iterations of a kind of device.

    `cohort_bytes`: of a stage's activations, for so many rows. `cohort`: of a stage, the host's, what is kept, rows,
    and how the host's tasks rank with layers (`_kernels.Cohort`). `begin`: an iteration, of lanes, layers, sub-batches,
    the copies `swap_out`, `swap_in`, `fetch` and `store`, and what joins (`_kernels.ServingPass`)."""

    cohort_bytes: Callable[[Stage, int], int]
    cohort: Callable[[Stage, Stage, Buffer, int, int], Cohort]
    begin: Callable[
        [
            Lanes,
            int,
            Sequence[SubBatch],
            LayerCopies | None,
            LayerCopies | None,
            LayerCopies | None,
            LayerCopies | None,
            Sequence[Joining],
        ],
        ServingPass,
    ]
