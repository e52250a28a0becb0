"""Checkpoints of gpt-oss and Gemma that Helm writes: the same model when they are read, run by its engine and by
transformers."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.oracle import load_oracle, oracle_greedy, oracle_logits
from plans import make_plan
from two_cpus import TWO_CPUS
from window_models import COMMON, MODELS

from helmsman.executor.checkpoint.config import hf_config
from helmsman.executor.checkpoint.window_config import TEXT_FAMILIES
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.engine import Engine
from helmsman.executor.system.machine import Machine
from helmsman.hwdb.load_model import load_model
from helmsman.schemas.model import Model
from helmsman.schemas.workload import Workload

pytestmark = TWO_CPUS
PROMPT, OUTPUT, LONG = 17, 32, 150
TOLERANCE = 1e-3
"""Of the largest logit."""


def facts(model: Model) -> Model:
    """Return the model without what files say about themselves."""
    plain = {"name": "model", "source": "file", "native_format": "f32", "native_quantisation": None, "eos": ()}
    return model.model_copy(update={**plain, "family": TEXT_FAMILIES.get(model.family, model.family)})


@pytest.mark.parametrize(
    "name",
    [
        "gpt_oss",
        "gemma4-inputs",
        *(pytest.param(name, marks=pytest.mark.nightly) for name in ("gemma2", "gemma3", "gemma4")),
    ],
)
def test_greedy_tokens_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    from transformers import AutoConfig

    family, fields = MODELS[name]
    AutoConfig.for_model(family, **{**COMMON, **fields, "vocab_size": 512}).save_pretrained(tmp_path / "config")
    described = load_model(str(tmp_path / "config" / "config.json"))
    write_checkpoint(described, tmp_path / "checkpoint", fmt="f32")
    model = load_model(str(tmp_path / "checkpoint" / "config.json"))
    assert facts(model) == facts(described)
    oracle = load_oracle(tmp_path / "checkpoint")
    ids = np.random.default_rng(3).integers(0, model.vocab, LONG).tolist()
    greedy, expected = oracle_greedy(oracle, ids[:PROMPT], OUTPUT), oracle_logits(oracle, ids)
    shape = Workload(prompt_tokens=LONG, output_tokens=OUTPUT, context=192)
    with Engine.load(make_plan(model, workload=shape), tmp_path / "checkpoint", Machine.this()) as engine:
        computed = engine.logits(np.array([ids], np.int32), prompt=LONG)[0]
        free = engine.generate(np.array([ids[:PROMPT]], np.int32), OUTPUT, ignore_eos=True).tokens[0]
    assert list(free) == greedy.tokens
    assert len(set(greedy.tokens)) > OUTPUT // 8
    assert np.abs(computed[-1] - expected[-1]).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize(
    "name",
    [
        *("gpt-oss-20b", "gpt-oss-120b", "gemma-2-27b", "gemma-3-1b-it", "gemma-3-27b-it"),
        *("gemma-4-26B-A4B", "gemma-4-E2B-it", "gemma-4-E4B-it"),
    ],
)
def test_configs_say_what_those_of_released_models_do(tmp_path: Path, name: str) -> None:
    model = load_model(name)
    text = model.model_copy(update={"family": TEXT_FAMILIES.get(model.family, model.family)})
    (tmp_path / "config.json").write_text(json.dumps(hf_config(text, "f32")))
    assert facts(load_model(str(tmp_path / "config.json"))) == facts(model)


def test_the_norm_of_a_tied_head_does_not_repeat_its_input(tmp_path: Path) -> None:
    """Weights that are stored around zero have the random signs of those around one, less 1."""
    from safetensors.torch import load_file
    from transformers import AutoConfig

    family, fields = MODELS["gemma2"]
    AutoConfig.for_model(family, **{**COMMON, **fields, "vocab_size": 512}).save_pretrained(tmp_path / "config")
    write_checkpoint(load_model(str(tmp_path / "config" / "config.json")), tmp_path / "checkpoint", fmt="f32")
    gains = 1 + load_file(tmp_path / "checkpoint" / "model.safetensors")["model.norm.weight"]
    assert 0.2 < float((gains < 0).to(torch.float32).mean()) < 0.8
    assert float(gains.abs().min()) > 0.05
