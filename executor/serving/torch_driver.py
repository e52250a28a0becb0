"""Passes and cohorts of a PyTorch device, with the faces of native ones."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from helmsman.executor._kernels import Buffer, Cohort, ServingPass, Stage
from helmsman.executor.serving.driver import Driver
from helmsman.executor.serving.torch_cohort import TorchCohort
from helmsman.executor.serving.torch_pass import TorchPass
from helmsman.executor.torch_device.buffers import held_in
from helmsman.executor.torch_device.ragged_stage import RaggedStage

if TYPE_CHECKING:
    from helmsman.executor._kernels import Lanes, LayerCopies, SubBatch
    from helmsman.executor.serving.deferred import Native


def _cohort_bytes(stage: Stage, rows: int) -> int:
    return TorchCohort.size(cast(RaggedStage, stage), rows)


def _cohort(stage: Stage, host: Stage, kept: Buffer, rows: int, rise: int) -> Cohort:
    return cast(Cohort, TorchCohort(cast(RaggedStage, stage), host, held_in(kept), rows, rise))


def _begin(
    lanes: "Lanes",
    layers: int,
    batches: "Sequence[SubBatch]",
    swap_out: "LayerCopies | None",
    swap_in: "LayerCopies | None",
    fetch: "LayerCopies | None",
    store: "LayerCopies | None",
    joining: "Sequence[Native]",
) -> ServingPass:
    copies = {"swap_out": swap_out, "swap_in": swap_in, "fetch": fetch, "store": store}
    there = {name: each for name, each in copies.items() if each is not None}
    return cast(ServingPass, TorchPass(lanes, layers, batches, there, joining))


DRIVER = Driver(_cohort_bytes, _cohort, _begin)
