"""The executor beside transformers in every format, on a small model with peaked logits."""

from pathlib import Path

import pytest
from benchmarks.agreement import ABOVE_ROUNDING, BAR, FAULT, FAULTS, PASSES, Reference, compared, logits
from plans import make_hardware, make_plan
from shapes import small_model

from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.planner.cost.rounding import with_rounding
from helmsman.schemas.blocks.positions import Rope
from helmsman.schemas.described import reshaped
from helmsman.schemas.formats import PRECISIONS, STORED_FORMATS, KvFormat, Precision, StoredFormat
from helmsman.schemas.model import Model
from helmsman.schemas.workload import Workload

SEQUENCES, TOKENS = 2, 100


def shape() -> Model:
    """A model whose columns are whole blocks of every format, with square values to transpose."""
    changes = {"hidden": 256, "heads": 8, "kv_heads": 4, "head_dim": 64, "ffn": 512, "vocab": 1024}
    return reshaped(small_model("qwen3"), **changes, position=Rope(theta=1e6, rotary_dim=64))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("agreement") / "qwen3"
    write_checkpoint(shape(), place, seed=1, fmt="f32")
    return place


def divergences(
    checkpoint: Path, weights: StoredFormat, kv: KvFormat = "f16", activations: Precision = "f32", faults: bool = False
) -> tuple[float, float]:
    """Return the mean divergence, and the least from a reference with a fault (infinite unless `faults`)."""
    work = Workload(prompt_tokens=max(PASSES), output_tokens=1, context=TOKENS + 2, batch=SEQUENCES)
    hardware = with_rounding(make_hardware(), activations)
    plan = make_plan(shape(), weights=weights, kv=kv, workload=work, hardware=hardware)
    reference = Reference(checkpoint, weights, SEQUENCES, TOKENS)
    found = logits(plan, checkpoint, reference.tokens)
    least = min(reference.wrong(plant, found) for plant in FAULTS.values()) if faults else float("inf")
    return compared(weights, kv, activations, reference.logits, found, SEQUENCES).mean, least


@pytest.mark.nightly
@pytest.mark.parametrize("weights", STORED_FORMATS)
def test_every_format_agrees(checkpoint: Path, weights: StoredFormat) -> None:
    assert 0 <= divergences(checkpoint, weights)[0] < BAR


@pytest.mark.nightly
@pytest.mark.parametrize("activations", PRECISIONS)
@pytest.mark.parametrize("weights", ["bf16", "q8_0", "q4_0", "q4_k"])
def test_faults_are_caught_in_every_precision(checkpoint: Path, weights: StoredFormat, activations: Precision) -> None:
    mean, least = divergences(checkpoint, weights, activations=activations, faults=True)
    assert least > max(FAULT, ABOVE_ROUNDING * mean)


@pytest.mark.nightly
@pytest.mark.parametrize("kv", ["f32", "bf16"])
def test_formats_of_caches_agree(checkpoint: Path, kv: KvFormat) -> None:
    assert divergences(checkpoint, "q8_0", kv)[0] < 10 * BAR
