"""gpt-oss and Gemma at the shapes of released blocks, a few layers of them with a few experts, against transformers."""

from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.oracle import load_oracle, oracle_greedy, oracle_logits
from plans import GIB, make_hardware, make_plan
from two_cpus import TWO_CPUS

from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.engine import Engine
from helmsman.executor.system.machine import Machine
from helmsman.hwdb.load_model import load_model
from helmsman.schemas.blocks.block import Block, Body, Residual
from helmsman.schemas.blocks.feed_forward import Experts
from helmsman.schemas.model import Model
from helmsman.schemas.workload import Workload

pytestmark = [pytest.mark.nightly, TWO_CPUS]
VOCAB, LONG, PROMPT, OUTPUT = 2048, 300, 200, 32
TOLERANCE = 1e-3
"""Of the largest logit."""
MODELS = {"gpt-oss-20b": "wa", "gemma-2-2b": "WA", "gemma-3-4b-it": "WWA", "gemma-4-26B-A4B": "wa",
          "gemma-4-E2B-it": "WWAVB", "gemma-4-E4B-it": "WWAVB"}  # fmt: skip
"""By catalogue name, the layers that are kept."""


def cut(model: Model, pattern: str, experts: int) -> Model:
    """Return the model of some layers, with windows of which prompts see the end, few experts and few tokens."""

    def of_body(body: Body) -> Body:
        if isinstance(body.op, Experts):
            return body.model_copy(update={"op": body.op.model_copy(update={"experts": experts})})
        window = getattr(body.op, "window", None)
        return body if window is None else body.model_copy(update={"op": body.op.model_copy(update={"window": 100})})

    def of_residual(residual: Residual) -> Residual:
        return residual.model_copy(update={"bodies": tuple(map(of_body, residual.bodies))})

    def of_block(block: Block) -> Block:
        return block.model_copy(update={"residuals": tuple(map(of_residual, block.residuals))})

    shallow = model.with_pattern(pattern)
    layouts = tuple(map(of_block, shallow.layouts))
    table = shallow.per_layer_table
    inputs = None if table is None else table.model_copy(update={"vocab": VOCAB})
    few = {"layouts": layouts, "vocab": VOCAB, "per_layer_table": inputs, "eos": (), "native_quantisation": None}
    return shallow.model_copy(update=few)


@pytest.mark.parametrize("name", MODELS)
def test_blocks_of_released_shapes_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    write_checkpoint(cut(load_model(name), MODELS[name], 12), tmp_path / "checkpoint", fmt="f32")
    model = load_model(str(tmp_path / "checkpoint" / "config.json"))
    torch.set_num_threads(1)
    oracle = load_oracle(tmp_path / "checkpoint")
    ids = np.random.default_rng(3).integers(0, VOCAB, LONG).tolist()
    greedy, expected = oracle_greedy(oracle, ids[:PROMPT], OUTPUT), oracle_logits(oracle, ids)
    del oracle
    work = Workload(prompt_tokens=LONG, output_tokens=OUTPUT, context=LONG + OUTPUT)
    plan = make_plan(model, 2, workload=work, hardware=make_hardware(ram=12 * GIB, vram=8 * GIB))
    with Engine.load(plan, tmp_path / "checkpoint", Machine.this()) as engine:
        computed = engine.logits(np.array([ids], np.int32), prompt=LONG - 4)[0]
        free = engine.generate(np.array([ids[:PROMPT]], np.int32), OUTPUT, ignore_eos=True).tokens[0]
    assert np.abs(computed - expected[LONG - 5 :]).max() <= TOLERANCE * np.abs(expected).max()
    assert list(free) == greedy.tokens
