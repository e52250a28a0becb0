"""The executor beside transformers in every format, on a small model with peaked logits."""

from pathlib import Path

import pytest
from benchmarks.agreement import BAR, FAULT, FAULTS, PASSES, Reference, compared, logits
from plans import make_plan
from shapes import small_model

from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.schemas.formats import STORED_FORMATS, KvFormat, StoredFormat
from helmsman.schemas.model import Model, Rope
from helmsman.schemas.workload import Workload

SEQUENCES, TOKENS = 2, 100


def shape() -> Model:
    """A model whose columns are whole blocks of every format, with square values to transpose."""
    changes = {"hidden": 256, "heads": 8, "kv_heads": 4, "head_dim": 64, "ffn": 512, "vocab": 1024}
    return small_model("qwen3").model_copy(update={**changes, "position": Rope(theta=1e6, rotary_dim=64)})


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("agreement") / "qwen3"
    write_checkpoint(shape(), place, seed=1, fmt="f32")
    return place


def divergences(checkpoint: Path, weights: StoredFormat, kv: KvFormat = "f16") -> tuple[float, float]:
    """The mean divergence, and the least from a reference with a fault."""
    work = Workload(prompt_tokens=max(PASSES), output_tokens=1, context=TOKENS + 2, batch=SEQUENCES)
    plan = make_plan(shape(), weights=weights, kv=kv, workload=work)
    reference = Reference(checkpoint, weights, SEQUENCES, TOKENS)
    found = logits(plan, checkpoint, reference.tokens)
    least = min(reference.wrong(plant, found) for plant in FAULTS.values()) if weights == "q4_0" else 1.0
    return compared(weights, kv, reference.logits, found, SEQUENCES).mean, least


@pytest.mark.nightly
@pytest.mark.parametrize("weights", STORED_FORMATS)
def test_every_format_agrees_and_faults_do_not(checkpoint: Path, weights: StoredFormat) -> None:
    mean, least = divergences(checkpoint, weights)
    assert 0 <= mean < BAR and least > FAULT


@pytest.mark.nightly
@pytest.mark.parametrize("kv", ["f32", "bf16"])
def test_formats_of_caches_agree(checkpoint: Path, kv: KvFormat) -> None:
    assert divergences(checkpoint, "q8_0", kv)[0] < 10 * BAR
