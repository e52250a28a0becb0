"""Checkpoints of models with routed experts, written by Helm, run by its engine and by transformers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.oracle import load_oracle, oracle_greedy, oracle_logits
from expert_models import COMMON, FAMILIES
from plans import make_plan
from safetensors.torch import load_file, save_file
from two_cpus import TWO_CPUS

from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.engine import Engine
from helmsman.executor.system.machine import Machine
from helmsman.hwdb.load_model import load_model
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model
from helmsman.schemas.workload import Workload

pytestmark = TWO_CPUS
PROMPT, OUTPUT, LONG = 17, 32, 150
TOLERANCE = 1e-3
"""Of the largest logit."""

Written = Callable[[str], tuple[Path, Model]]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Write a random checkpoint of a family, as helm-make-checkpoint does."""

    def write(family: str) -> tuple[Path, Model]:
        from transformers import AutoConfig

        described = tmp_path / "config"
        sizes: dict[str, Any] = {**COMMON, **FAMILIES[family], "max_position_embeddings": 256, "vocab_size": 512}
        AutoConfig.for_model(family, **sizes, eos_token_id=None).save_pretrained(described)
        model = load_model(str(described / "config.json"))
        write_checkpoint(model, tmp_path / "checkpoint", fmt="f32")
        return tmp_path / "checkpoint", load_model(str(tmp_path / "checkpoint" / "config.json"))

    return write


@pytest.mark.parametrize(("family", "on_cpu"), [("qwen3_moe", 2), ("mixtral", None), ("olmoe", 0)])
def test_greedy_tokens_are_those_of_transformers(written: Written, family: str, on_cpu: int | None) -> None:
    """On the host, on an accelerator, and divided between the two after a block; a long prompt passes in chunks."""
    directory, model = written(family)
    oracle = load_oracle(directory)
    torch.set_num_threads(1)
    ids = np.random.default_rng(3).integers(0, model.vocab, LONG).tolist()
    greedy = oracle_greedy(oracle, ids[:PROMPT], OUTPUT)
    expected = oracle_logits(oracle, ids)
    shape = Workload(prompt_tokens=LONG, output_tokens=OUTPUT, context=256)
    with Engine.load(make_plan(model, on_cpu, workload=shape), directory, Machine.this()) as engine:
        found = engine.logits(np.array([ids], np.int32), prompt=LONG)[0]
        free = engine.generate(np.array([ids[:PROMPT]], np.int32), OUTPUT, ignore_eos=True).tokens[0]
    assert list(free) == greedy.tokens
    assert np.abs(found[-1] - expected[-1]).max() <= TOLERANCE * np.abs(expected).max()


def test_an_expert_that_is_no_number_or_not_there_is_named(written: Written) -> None:
    directory, model = written("qwen3_moe")
    file, name = directory / "model.safetensors", "model.layers.1.mlp.experts.5.up_proj.weight"
    values = load_file(file)
    values[name][7, 3] = float("nan")
    for problem in ("not finite", "missing: a tensor of shape"):
        save_file(values, file)
        with pytest.raises(BadInputError, match=problem) as raised:
            Engine.load(make_plan(model, 0), directory, Machine.this())
        assert raised.value.field == name
        values.pop(name, None)
