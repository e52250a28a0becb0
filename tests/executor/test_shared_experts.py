"""Routers that compare sigmoids and correct them, beside a network that all tokens share: GLM-4 MoE, whose first block
is dense, and MiniMax-M2; on one device, divided between two, and in slots, against transformers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.oracle import Logits, load_oracle, mean_kl, oracle_greedy, oracle_logits
from daily import one_in
from expert_layouts import divided_plan
from expert_models import FAMILIES, written
from plans import make_plan
from two_cpus import TWO_CPUS

from helmsman.executor.engine import Engine
from helmsman.executor.system.machine import Machine
from helmsman.hwdb.load_model import load_model
from helmsman.planner.strategies.expert_split.layout import ExpertLayout
from helmsman.schemas.blocks.block import Residual
from helmsman.schemas.blocks.feed_forward import Experts
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ExpertSlots, Plan, Select
from helmsman.schemas.workload import Workload

pytestmark = TWO_CPUS
PROMPT, OUTPUT, LONG = 17, 64, 150
SHAPE = Workload(prompt_tokens=LONG, output_tokens=OUTPUT, context=256)
TOLERANCE = 1e-3
"""Of the largest logit."""

SHOWN = 1e-2
"""Mean divergence that a planted fault must exceed, nats."""

CONFIGS: dict[str, dict[str, Any]] = {
    "glm4_moe": {"head_dim": 32, "intermediate_size": 96, "moe_intermediate_size": 32, "n_routed_experts": 8,
                 "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 1, "num_hidden_layers": 3,
                 "partial_rotary_factor": 0.5, "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
                 "routed_scaling_factor": 1.5, "attention_bias": True, "use_qk_norm": True},
    "minimax_m2": {"head_dim": 32, "intermediate_size": 32, "num_local_experts": 8, "num_experts_per_tok": 2,
                   "rotary_dim": 16, "use_qk_norm": True, "eos_token_id": 1},
}  # fmt: skip


PLACES = ("all on one device", "three of eight on the accelerator", "the rest streamed to prompts", "in slots")


def plans(model: Model) -> dict[str, Plan]:
    """Return plans by what they do with experts."""
    away = divided_plan(model, ExpertLayout(0, model.layers), SHAPE)
    slots = ExpertSlots(select=Select(names="experts_*"), memory="vram", slots=3)
    made = (
        make_plan(model, workload=SHAPE),
        divided_plan(model, ExpertLayout(0, model.layers, 3), SHAPE),
        divided_plan(model, ExpertLayout(0, model.layers, 3, True), SHAPE),
        away.model_copy(update={"expert_slots": (slots,)}),
    )
    return dict(zip(PLACES, made, strict=True))


@pytest.mark.parametrize("family", CONFIGS)
def test_logits_and_tokens_are_those_of_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    monkeypatch.setitem(FAMILIES, family, CONFIGS[family])
    written(family, tmp_path, vocab_size=512, max_position_embeddings=256)
    model, oracle = load_model(str(tmp_path / "config.json")), load_oracle(tmp_path)
    torch.set_num_threads(1)
    ids = np.random.default_rng(3).integers(2, model.vocab, LONG).tolist()
    greedy, expected = oracle_greedy(oracle, ids[:PROMPT], OUTPUT), oracle_logits(oracle, ids)
    for name, plan in plans(model).items():
        with Engine.load(plan, tmp_path, Machine.this()) as engine:
            logits = engine.logits(np.array([ids], np.int32), prompt=LONG - 3)[0]
            made = engine.generate(np.array([ids[:PROMPT]], np.int32), OUTPUT, ignore_eos=True)
        assert list(made.tokens[0]) == greedy.tokens, name
        assert np.abs(logits - expected[LONG - 4 :]).max() <= TOLERANCE * np.abs(expected).max(), name


FAULTS: dict[str, Callable[[Experts], Experts]] = {
    "weights that are not normalised": lambda op: op.model_copy(
        update={"router": op.router.model_copy(update={"normalised": False})}
    ),
    "choices without the correction": lambda op: op.model_copy(
        update={"router": op.router.model_copy(update={"correction": False})}
    ),
    "no shared network": lambda op: op.model_copy(update={"shared": None}),
}


def faulty(model: Model, change: Callable[[Experts], Experts]) -> Model:
    """Return the model with other experts."""

    def of_residual(residual: Residual) -> Residual:
        bodies = [
            body.model_copy(update={"op": change(body.op)}) if isinstance(body.op, Experts) else body
            for body in residual.bodies
        ]
        return residual.model_copy(update={"bodies": tuple(bodies)})

    layouts = [
        layout.model_copy(update={"residuals": tuple(map(of_residual, layout.residuals))}) for layout in model.layouts
    ]
    return model.model_copy(update={"layouts": tuple(layouts)})


@pytest.fixture(scope="module")
def glm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int], Logits]:
    """The checkpoint of a GLM-4 MoE, tokens, and what transformers makes of them."""
    place = tmp_path_factory.mktemp("glm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FAMILIES, "glm4_moe", CONFIGS["glm4_moe"])
        written("glm4_moe", place, vocab_size=512, max_position_embeddings=256)
    oracle = load_oracle(place)
    ids = np.random.default_rng(3).integers(2, 512, LONG).tolist()
    return place, ids, oracle_logits(oracle, ids)


@pytest.mark.parametrize(
    ("fault", "where"), one_in(2, [(f, w) for n, f in enumerate(FAULTS) for w in PLACES[n % 2 :] + PLACES[: n % 2]])
)
def test_planted_faults_show_wherever_experts_are(
    glm: tuple[Path, list[int], Logits], monkeypatch: pytest.MonkeyPatch, fault: str, where: str
) -> None:
    place, ids, expected = glm
    monkeypatch.setattr("helmsman.executor.weights.checkpoint.check_agreement", lambda *given: None)
    monkeypatch.setattr("helmsman.executor.weights.checkpoint._check_explained", lambda *given: None)
    plan = plans(faulty(load_model(str(place / "config.json")), FAULTS[fault]))[where]
    with Engine.load(plan, place, Machine.this()) as engine:
        logits = engine.logits(np.array([ids], np.int32))[0]
    assert mean_kl(expected, logits) > SHOWN
