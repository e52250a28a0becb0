"""Passes and cohorts of a PyTorch device."""

from collections.abc import Sequence
from functools import partial

from helmsman.executor.devices.iterations import (
    Driver,
    ExpertLookup,
    Joining,
    Lanes,
    LayerCopies,
    LookedUpTable,
    SubBatch,
)
from helmsman.executor.devices.parts import Buffer, Stage, of_kind
from helmsman.executor.devices.torch.buffers import TorchBuffer
from helmsman.executor.devices.torch.cohort import TorchCohort
from helmsman.executor.devices.torch.ragged_stage import RaggedStage
from helmsman.executor.devices.torch.routed_blocks import RoutedBlocks
from helmsman.executor.devices.torch.serving_pass import TorchPass


def _cohort_bytes(stage: Stage, rows: int) -> int:
    return TorchCohort.size(of_kind(stage, RaggedStage), rows)


def _cohort(stage: Stage, host: Stage, kept: Buffer, rows: int, rise: int) -> TorchCohort:
    return TorchCohort(of_kind(stage, RaggedStage), host, of_kind(kept, TorchBuffer), rows, rise)


def driver_of(lookups: Sequence[ExpertLookup], table: LookedUpTable | None) -> Driver:
    """Return what makes the passes whose experts are looked up so; `table`: whose rows come to their embedding."""
    return Driver(_cohort_bytes, _cohort, partial(_begin, RoutedBlocks.of(lookups), table))


def _begin(
    routed: RoutedBlocks,
    table: LookedUpTable | None,
    lanes: Lanes,
    layers: int,
    batches: Sequence[SubBatch],
    swap_out: LayerCopies | None,
    swap_in: LayerCopies | None,
    fetch: LayerCopies | None,
    store: LayerCopies | None,
    joining: Sequence[Joining],
) -> TorchPass:
    copies = {"swap_out": swap_out, "swap_in": swap_in, "fetch": fetch, "store": store}
    there = {name: layer_copies for name, layer_copies in copies.items() if layer_copies is not None}
    return TorchPass(lanes, layers, batches, there, joining, routed, table)
