"""Do read probes tell the rate at which the weights beside them are read?

    python -m benchmarks.probes PLAN --checkpoint DIR

Loads the matrices of PLAN's blocks into its devices' memories, and noise twice beside them, in pieces as large as those
that probes beside a run read of matrices. Then reads of one noise (B), and of the matrices (A) take turns, with a
second read, of the other noise (B again): on every device by products with one token, as probes beside a run do, and by
plain reads of all devices at once that share a memory. Prints the median of A over the mean of the two probes around
it, and, as noise, one probe over the other (rule 4 of measuring). Exit code 4 where a median is more than 3 % off."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from benchmarks.machine import print_machine
from helmsman.cli.documents import read_plan
from helmsman.cli.isa import select_from_environment
from helmsman.executor._kernels import Buffer, Pool
from helmsman.executor.devices.cpu import CpuDevice
from helmsman.executor.devices.opening import Devices, open_devices
from helmsman.executor.devices.probe import dealt, joint_read_rate, noise_pieces, weights_rate
from helmsman.executor.homes.storage import open_storage
from helmsman.executor.measuring.prober import computed_format, sharing, weight_pieces
from helmsman.executor.passes.phase_pass import passes_of
from helmsman.executor.programs.loading import open_store
from helmsman.executor.system.machine import Machine, beyond_caches
from helmsman.hwdb.fit import quantile
from helmsman.lowering.tensors import tensors
from helmsman.schemas.plan import Plan

BAR = 0.03
"""By how much the median of weights over probes may differ from 1: less than half of what predictions may be off."""
MATRIX = 2
"""Dimensions of a matrix; norms and biases are not read at the rate of memory."""

Read = Callable[[Sequence[Buffer]], float]


@dataclass(frozen=True)
class Turn:
    """Bytes/s of weights, and of a probe before and another after them."""

    before: float
    weights: float
    after: float

    @property
    def ratio(self) -> float:
        """Weights over probes."""
        return 2 * self.weights / (self.before + self.after)

    @property
    def noise(self) -> float:
        """Probe over probe."""
        return self.after / self.before


@dataclass(frozen=True)
class Agreement:
    """Turns of one device, or of all that share a memory."""

    what: str
    turns: tuple[Turn, ...]

    def line(self) -> str:
        """Rates, ratio and noise: medians, with the 10th and 90th percentile."""
        rate = quantile([turn.weights for turn in self.turns], 0.5) / 1e9
        ratio, noise = (_spread([getattr(turn, name) for turn in self.turns]) for name in ("ratio", "noise"))
        mark = "" if self.within else "  beyond"
        return f"{self.what:<16} weights {rate:5.1f} GB/s; over probes {ratio}; probe over probe {noise}{mark}"

    @property
    def within(self) -> bool:
        """Whether probes tell how fast weights are read."""
        return abs(quantile([turn.ratio for turn in self.turns], 0.5) - 1) <= BAR


def main() -> int:
    """Measure and print; 4 where probes and weights disagree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    select_from_environment()
    print_machine()
    rows = list(_agreements(read_plan(args.plan), args.checkpoint, args.turns))
    if not rows:
        parser.error(f"{args.plan}: no matrix of a block lies in the memory of the device that reads it")
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0 if all(row.within for row in rows) else 4


def _agreements(plan: Plan, checkpoint: Path, turns: int) -> Iterator[Agreement]:
    machine = Machine.this()
    devices = open_devices(plan.hardware, [lane for each in passes_of(plan) for lane in each.lanes], machine)
    weights = block_matrices(plan, devices, checkpoint)
    fmt, most = computed_format(plan), beyond_caches(machine.cache_bytes)
    pieces = {name: weight_pieces(matrices, fmt, most) for name, matrices in weights.items()}
    for name, device in devices.by_name.items():
        if isinstance(device, CpuDevice) and pieces[device.memory.name]:
            yield _shown(name, partial(weights_rate, device.pool, fmt), pieces[device.memory.name], turns)
    for memory, sharers in sharing(plan, devices).items():
        own = [pieces[device.memory.name] for device in sharers]
        yield _shown(f"joint {memory}", _jointly([device.pool for device in sharers]), dealt(own), turns)


def block_matrices(plan: Plan, devices: Devices, checkpoint: Path) -> dict[str, list[Buffer]]:
    """The matrices of the blocks, loaded, by memory and in the order in which a pass reads them."""
    store = open_store(plan, devices, open_storage(plan, ()), checkpoint, lambda _: None)
    found: dict[str, list[Buffer]] = {name: [] for name in devices.memories}
    for tensor in tensors(plan.model):
        if tensor.layer is None or len(tensor.shape) != MATRIX:
            continue
        for kept in {id(kept): kept for piece in store.pieces(tensor) for kept in piece.copies.values()}.values():
            if kept.buffer is not None:
                found[kept.memory].append(kept.buffer)
    return found


def _jointly(pools: Sequence[Pool]) -> Read:
    return lambda pieces: joint_read_rate(pools, pieces)


def _shown(what: str, read: Read, weights: Sequence[Buffer], turns: int) -> Agreement:
    before, after = (noise_pieces([piece.size for piece in weights]) for _ in range(2))
    agreement = Agreement(what, tuple(Turn(read(before), read(weights), read(after)) for _ in range(turns)))
    print(agreement.line(), flush=True)
    return agreement


def _spread(values: Sequence[float]) -> str:
    low, mid, high = (quantile(values, at) for at in (0.1, 0.5, 0.9))
    return f"{mid:.3f} [{low:.3f} .. {high:.3f}]"


if __name__ == "__main__":
    sys.exit(main())
