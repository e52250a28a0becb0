"""Checkpoints of models with states, written by Helm: read by transformers, and computed alike."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hybrid_models import COMMON, FAMILIES
from plans import make_plan
from test_granite_models import MODELS, MULTIPLIERS
from test_latent_models import logits_of
from two_cpus import TWO_CPUS

from helmsman.executor.checkpoint.hybrid_config import HYBRID_FAMILIES
from helmsman.executor.checkpoint.multiplied_config import MULTIPLIED_CLASSES
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.engine import Engine
from helmsman.executor.system.machine import Machine
from helmsman.hwdb.load_model import load_model
from helmsman.schemas.errors import UsageError
from helmsman.schemas.workload import Workload

pytestmark = TWO_CPUS


NIGHTLY = ("qwen3_5_text", "qwen3_5_moe_text", "lfm2", "granite", "granitemoe")
SIZES = {**FAMILIES, **{name: {**MULTIPLIERS, **sizes, "num_hidden_layers": 2} for name, sizes in MODELS.items()}}


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(f, marks=[pytest.mark.nightly] * (f in NIGHTLY))
        for f in (*HYBRID_FAMILIES, *sorted(MULTIPLIED_CLASSES))
    ],
)
def test_a_written_checkpoint_is_that_of_transformers(tmp_path: Path, family: str) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {**COMMON, **SIZES[family], "vocab_size": 512}
    AutoConfig.for_model(family, **sizes).save_pretrained(tmp_path / "config")
    described = load_model(str(tmp_path / "config" / "config.json"))
    write_checkpoint(described, tmp_path / "checkpoint", fmt="f32")
    model = load_model(str(tmp_path / "checkpoint" / "config.json"))
    assert model.layouts == described.layouts and model.pattern == described.pattern
    oracle, info = AutoModelForCausalLM.from_pretrained(
        tmp_path / "checkpoint", dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not info["missing_keys"] and not info["unexpected_keys"]
    for module in oracle.modules():
        if family == "nemotron_h" and hasattr(module, "time_step_limit"):
            module.time_step_limit = (0.0, float("inf"))
    ids = np.random.default_rng(3).integers(0, 512, 40).tolist()
    expected = logits_of(oracle.eval(), ids)
    plan = make_plan(model, workload=Workload(prompt_tokens=40, output_tokens=4, context=64))
    with Engine.load(plan, tmp_path / "checkpoint", Machine.this()) as engine:
        computed = engine.logits(np.array([ids], np.int32), prompt=40)[0]
    assert np.abs(computed[-1] - expected[-1]).max() <= 1e-3 * np.abs(expected).max()


def test_a_config_is_not_written_with_multipliers_that_nobody_states(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="facts are missing"):
        write_checkpoint(load_model("granite-4.0-h-1b"), tmp_path / "checkpoint")
