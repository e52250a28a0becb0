"""Weights quantised while they are loaded: one tensor at a time into its home, and nothing else beside it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from plans import make_plan
from shapes import small_model

from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.devices.memory import BoundedMemory
from helmsman.executor.homes.storage import Storage
from helmsman.executor.homes.store import WeightLoader
from helmsman.executor.weights.checkpoint import Checkpoint
from helmsman.lowering.tensors import tensors
from helmsman.planner.memory.usage import memory_use
from helmsman.schemas.blocks.positions import Rope
from helmsman.schemas.described import reshaped
from helmsman.schemas.formats import StoredFormat, size_of
from helmsman.schemas.model import Model
from helmsman.schemas.workload import Workload

MODEL = reshaped(
    small_model("llama"),
    hidden=512,
    heads=8,
    head_dim=64,
    ffn=4096,
    vocab=16384,
    layers=2,
    position=Rope(theta=10_000.0, rotary_dim=64),
)
SMALL = reshaped(MODEL, ffn=1024, vocab=1536)
"""With tables and matrices of an eighth: whether they fit does not depend on their size."""
WORK = Workload(prompt_tokens=8, output_tokens=8, context=32)
TABLE = 16384 * 512
"""Values of the largest tensor; all of them are 3.6 times as many."""
SLACK = 12 << 20

FORMATS: tuple[StoredFormat, ...] = ("f16", "q8_0", "q4_0", "q4_k", "q6_k", "q8", "q4")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("large")
    write_checkpoint(MODEL, place, seed=1, fmt="bf16", shard_size=8 << 20)
    return place


def load_into(home: BoundedMemory, checkpoint: Path, fmt: StoredFormat, model: Model = MODEL) -> int:
    """Every matrix of the plan of all-CPU weights in `fmt`, in its home; bytes read."""
    read: list[int] = []
    plan = make_plan(model, weights=fmt, workload=WORK)
    store = WeightLoader(plan, Checkpoint.open(checkpoint, model), {"dram": home}, Storage({}, {}), read.append)
    for tensor in tensors(model):
        if len(tensor.shape) > 1:
            (piece,) = store.pieces(tensor)
            assert piece.copies["dram"].format == fmt
        else:
            store.vector(tensor, "dram")
    return sum(read)


def home_of(fmt: StoredFormat, model: Model = MODEL) -> tuple[BoundedMemory, int]:
    plan = make_plan(model, weights=fmt, workload=WORK)
    size = memory_use(plan)[0].weights
    vectors = sum(size_of(tensor.elements, "f32") for tensor in tensors(model) if not tensor.quantised)
    return BoundedMemory(plan.hardware.memory("dram"), size + vectors + 64 * len(tensors(model))), size


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("small")
    write_checkpoint(SMALL, place, seed=1, fmt="bf16", shard_size=1 << 20)
    return place


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_home_as_large_as_the_plan_says_is_enough(small: Path, fmt: StoredFormat) -> None:
    home, size = home_of(fmt, SMALL)
    read = load_into(home, small, fmt, SMALL)
    assert size <= home.used
    assert read == sum(size_of(tensor.elements, "bf16") for tensor in tensors(SMALL))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak of its memory from /proc")
@pytest.mark.parametrize("fmt", ["q4_0", *(pytest.param(fmt, marks=pytest.mark.nightly) for fmt in ("q8_0", "q4"))])
def test_loading_takes_the_home_and_one_tensor(checkpoint: Path, fmt: StoredFormat) -> None:
    """The peak of a process of its own; the checkpoint is 61 MB, the table in f32 34 MB."""
    argv = [sys.executable, __file__, str(checkpoint), fmt]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=environment)
    assert int(done.stdout) <= home_of(fmt)[1] + size_of(TABLE, "f32") + SLACK
    assert size_of(TABLE, "f32") + SLACK < sum(size_of(tensor.elements, "bf16") for tensor in tensors(MODEL))


def peak() -> int:
    """Most bytes that this process has had in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    before = peak()
    home, _ = home_of(sys.argv[2])  # type: ignore[arg-type]
    load_into(home, Path(sys.argv[1]), sys.argv[2])  # type: ignore[arg-type]
    sys.stdout.write(str(peak() - before))
