"""What runs an iteration on a kind of device: the native submitter, or PyTorch's streams."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from helmsman.executor._kernels import Buffer, Cohort, ServingPass, Stage, StreamedWeights
from helmsman.executor.devices.accelerators import KINDS

if TYPE_CHECKING:
    from helmsman.executor._kernels import Lanes, LayerCopies, SubBatch
    from helmsman.executor.serving.deferred import Native

    Copies = LayerCopies | None
    Begin = Callable[
        [Lanes, int, Sequence[SubBatch], Copies, Copies, Copies, Copies, Sequence[Native]],
        ServingPass,
    ]


@dataclass(frozen=True)
class Driver:
    """What makes cohorts and passes; those of PyTorch stand where native ones do.

    `cohort_bytes`: of a stage's activations, for so many rows. `cohort`: of a stage, the host's, what is kept, rows,
    and how the host's tasks rank with layers (`_kernels.Cohort`)."""

    cohort_bytes: Callable[[Stage, int], int]
    cohort: Callable[[Stage, Stage, Buffer, int, int], Cohort]
    begin: "Begin"


def driver_of(kind: str, weights: StreamedWeights | None) -> Driver:
    """For devices of a kind, to which `weights` come in every pass; PyTorch is only loaded for those that it drives,
    where none do."""
    if kind not in KINDS:
        return Driver(Cohort.size, Cohort, partial(ServingPass, weights=weights))
    from helmsman.executor.serving.torch_driver import DRIVER

    return DRIVER
