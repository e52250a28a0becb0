"""Models with routed experts as stages, against transformers on the same weights."""

import os
from pathlib import Path
from typing import Any

import expert_models
import numpy as np
import pytest
import torch
from daily import one_in
from expert_models import FAMILIES, Native, OnTorch, opened, written
from shared_expert import HIDDEN, SharedValues

from helmsman.executor._kernels import Pool, Stage
from helmsman.executor.devices.torch.regions import regions_of
from helmsman.executor.devices.torch.stage import TorchStage
from helmsman.lowering import buffers
from helmsman.lowering.buffers import workspace_bytes

CPUS = sorted(os.sched_getaffinity(0))
PROMPT, GREEDY = 40, 32
IDS = np.random.default_rng(5).integers(0, 128, PROMPT).tolist()


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    directory = tmp_path_factory.mktemp(request.param)
    return directory, written(request.param, directory)


@pytest.fixture(scope="module")
def two() -> Pool:
    return Pool([CPUS[0], CPUS[-1]])


def logits_of(model: Any, ids: list[int]) -> Any:
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def close(found: Any, expected: Any, relative: float) -> None:
    assert np.abs(found - expected).max() <= relative * np.abs(expected).max()


@pytest.mark.parametrize("threads", [1, 2])
def test_greedy_tokens_and_logits_are_those_of_transformers(family: tuple[Path, Any], threads: int) -> None:
    directory, model = family
    native = Native(opened(directory, "f32"), Pool([CPUS[0], CPUS[-1]][:threads]))
    ids = list(IDS)
    found = native.run(ids, 0)
    for _ in range(GREEDY):
        close(found, logits_of(model, ids)[-1], 1e-4)
        ids.append(int(found.argmax()))
        assert ids[-1] == int(logits_of(model, ids[:-1])[-1].argmax())
        found = native.run(ids[-1:], len(ids) - 1)


def test_a_prompt_in_parts_is_the_prompt_token_by_token(family: tuple[Path, Any]) -> None:
    directory, model = family
    told = opened(directory, "f32")
    native, expected = Native(told, Pool([CPUS[0], CPUS[-1]])), logits_of(model, IDS)
    for past, token in enumerate(IDS):
        close(native.run([token], past), expected[past], 1e-4)
    native.run(IDS[:23], 0)
    close(native.run(IDS[23:], 23), expected[-1], 1e-4)


@pytest.mark.parametrize("fmt", one_in(2, ["bf16", "f16", "q8_0", "q4_0", "q4_k", "q6_k"]))
def test_one_token_and_many_agree_in_other_formats(tmp_path: Path, two: Pool, fmt: Any) -> None:
    """On the same rounded weights, whose kernels for one token and for many are others; and near those of f32."""
    sizes = {"hidden_size": 256, "head_dim": 64, "moe_intermediate_size": 256, "num_hidden_layers": 1}
    model = written("qwen3_moe", tmp_path, **sizes)
    native = Native(opened(tmp_path, fmt), two)
    whole = native.run(IDS[:12], 0)
    for past, token in enumerate(IDS[:12]):
        found = native.run([token], past)
    close(found, whole, 2e-2)
    close(whole, logits_of(model, IDS[:12])[-1], 0.35 if fmt in ("q4_0", "q4_k") else 0.1)


def test_pytorch_stages_compute_the_same(family: tuple[Path, Any]) -> None:
    directory, model = family
    told = opened(directory, "f32", OnTorch)
    assert isinstance(told, OnTorch)
    spec = told.spec()
    stage = TorchStage(spec, told.memory.alloc(regions_of(spec).size, "workspace"), 0)
    expected = logits_of(model, IDS)
    for part, past in ((slice(0, 23), 0), (slice(23, 39), 23), (slice(39, 40), 39)):
        stage.feed(torch.tensor([IDS]), part, past)
        stage.compute(0, len(stage.ops), part.stop - part.start, past, ends=True)
        close(np.array(stage.logits())[0], expected[part.stop - 1], 1e-4)


def test_a_shared_network_is_gated_by_row(two: Pool) -> None:
    """Beside its experts every token goes through a network whose outcome the sigmoid of one row's product scales;
    native and PyTorch, many tokens and one, against the formula."""
    values = SharedValues()
    for tokens in (1, 7):
        x = np.random.default_rng(tokens).standard_normal((tokens, HIDDEN)).astype(np.float32)
        expected = values.outcome(x)
        close(values.native(two, x), expected, 1e-4)
        close(values.on_torch(x), expected, 1e-4)


@pytest.mark.parametrize("rows", [64, 512])
@pytest.mark.parametrize(
    "more", [{}, {"num_attention_heads": 16, "head_dim": 128}, {"mlp_only_layers": [0], "intermediate_size": 4096}]
)
def test_the_planner_knows_the_workspace_of_experts(
    tmp_path: Path, rows: int, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Experts hold activations of 1024 rows at once, one for every expert of a token (128 tokens have so many here),
    beside what attention or another layer's network hold."""
    monkeypatch.setattr(expert_models, "CAPACITY", rows)
    monkeypatch.setattr(buffers, "CHUNK_ROWS", 512)
    wide = {"hidden_size": 256, "moe_intermediate_size": 512, "num_experts": 16, "num_experts_per_tok": 8}
    written("qwen3_moe", tmp_path, **wide, **more, num_hidden_layers=2, max_position_embeddings=512)
    told = opened(tmp_path, "f32", arena=160 << 20)
    exact = Stage.workspace_size(told.spec() | {"chunk_rows": 512})
    bound = workspace_bytes(told.model, 1, rows)
    assert exact <= bound <= 1.25 * exact + (1 << 20)
