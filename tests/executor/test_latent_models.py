"""Models of latent attention as stages, against transformers on the same weights."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from expert_models import Native
from latent_models import FAMILIES, LatentOnTorch, LatentTold, WithoutNorm, opened_latent, written_latent

from helmsman.executor._kernels import Pool
from helmsman.executor.devices.torch.regions import regions_of
from helmsman.executor.devices.torch.stage import TorchStage
from helmsman.hwdb.load_model import load_model
from helmsman.schemas.blocks.attention import LatentAttention
from helmsman.schemas.model import Model

CPUS = sorted(os.sched_getaffinity(0))
PROMPT, GREEDY = 32, 64
IDS = np.random.default_rng(5).integers(0, 128, 40).tolist()
CLOSE = 1e-4
"""Of the largest logit: what f32 leaves between two orders of summation."""
SHOWS = 1e-2
"""Nats between distributions of a model and of one that computes something else."""


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    directory = tmp_path_factory.mktemp(request.param)
    return directory, written_latent(request.param, directory)


@pytest.fixture(scope="module")
def two() -> Pool:
    return Pool([CPUS[0], CPUS[-1]])


def logits_of(model: Any, ids: list[int]) -> Any:
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def difference(computed: Any, expected: Any) -> float:
    """Return the largest difference, of the largest logit."""
    return float(np.abs(computed - expected).max() / np.abs(expected).max())


def divergence(computed: Any, expected: Any) -> float:
    """Return the KL divergence between the distributions of two rows of logits, in nats."""
    one, other = (x - x.max() - np.log(np.exp(x - x.max()).sum()) for x in (expected, computed))
    return float((np.exp(one) * (one - other)).sum())


def changed(model: Model, **fields: Any) -> Model:
    """Return a model whose latent attention differs in some fields."""
    content = model.model_dump()
    for layout in content["layouts"]:
        for residual in layout["residuals"]:
            for body in residual["bodies"]:
                if body["op"]["kind"] == "latent-attention":
                    body["op"].update(fields)
    return Model.model_validate(content)


def attention_of(model: Model) -> LatentAttention:
    return next(body.op for body in model.blocks[0].bodies if isinstance(body.op, LatentAttention))


def test_greedy_tokens_and_logits_are_those_of_transformers(family: tuple[Path, Any], two: Pool) -> None:
    directory, model = family
    native, ids = Native(opened_latent(directory), two), IDS[:PROMPT]
    computed = native.run(ids, 0)
    for _ in range(GREEDY):
        expected = logits_of(model, ids)[-1]
        assert difference(computed, expected) <= CLOSE
        assert computed.argmax() == expected.argmax()
        ids.append(int(computed.argmax()))
        computed = native.run(ids[-1:], len(ids) - 1)


def test_a_prompt_in_parts_is_the_prompt_token_by_token(family: tuple[Path, Any]) -> None:
    """On one thread, which works in another order than two."""
    directory, model = family
    native, expected = Native(opened_latent(directory), Pool(CPUS[:1])), logits_of(model, IDS)
    for past, token in enumerate(IDS):
        assert difference(native.run([token], past), expected[past]) <= CLOSE
    native.run(IDS[:23], 0)
    assert difference(native.run(IDS[23:], 23), expected[-1]) <= CLOSE


def test_pytorch_stages_compute_the_same(family: tuple[Path, Any]) -> None:
    directory, model = family
    loaded = opened_latent(directory, kind=LatentOnTorch)
    assert isinstance(loaded, LatentOnTorch)
    spec = loaded.spec()
    stage = TorchStage(spec, loaded.memory.alloc(regions_of(spec).size, "workspace"), 0)
    expected = logits_of(model, IDS)
    for part, past in ((slice(0, 23), 0), (slice(23, 39), 23), (slice(39, 40), 39)):
        stage.feed(torch.tensor([IDS]), part, past)
        stage.compute(0, len(stage.ops), part.stop - part.start, past, ends=True)
        assert difference(np.array(stage.logits())[0], expected[part.stop - 1]) <= CLOSE


@pytest.mark.parametrize("fmt", ["bf16", "f16", "q8_0"])
def test_one_token_and_many_agree_in_other_formats(tmp_path: Path, two: Pool, fmt: Any) -> None:
    """On the same rounded weights, whose kernels for one token and for many are others; and near those of f32."""
    sizes = {"hidden_size": 128, "qk_nope_head_dim": 32, "q_lora_rank": 64, "intermediate_size": 128}
    model = written_latent("deepseek_v3", tmp_path, num_hidden_layers=2, v_head_dim=32, **sizes)
    native = Native(opened_latent(tmp_path, fmt), two)
    whole = native.run(IDS[:12], 0)
    for past, token in enumerate(IDS[:12]):
        computed = native.run([token], past)
    assert difference(computed, whole) <= 2e-2
    assert difference(whole, logits_of(model, IDS[:12])[-1]) <= (0.2 if fmt == "q8_0" else 0.05)


def faults(loaded: Any, directory: Path) -> dict[str, Any]:
    """Return stages that each compute something else."""
    model = loaded.model
    body = attention_of(model)
    rope = None if body.rope is None else {**body.rope.model_dump(), "pairs": "half"}
    unscaled = changed(model, scale=(body.nope_dim + body.rope_dim) ** -0.5)
    result = {
        "halves": opened_latent(directory, model=changed(model, rope=rope)),
        "no rotation": opened_latent(directory, model=changed(model, rope=None)),
        "norm without weights": opened_latent(directory, kind=WithoutNorm),
    }
    return {**result, "no mscale": opened_latent(directory, model=unscaled)} if unscaled != model else result


def test_what_is_computed_otherwise_shows(family: tuple[Path, Any], two: Pool) -> None:
    """Pairs of dimensions that lie otherwise, a norm without its weights, scores without YaRN's growth."""
    directory, model = family
    expected = logits_of(model, IDS)[-1]
    loaded = opened_latent(directory)
    assert divergence(Native(loaded, two).run(IDS, 0), expected) < 1e-6
    for name, fault in faults(loaded, directory).items():
        assert divergence(Native(fault, two).run(IDS, 0), expected) > SHOWS, name


def test_a_rotation_of_all_pairs_apart_is_that_of_a_config_without_interleaving(tmp_path: Path, two: Pool) -> None:
    model = written_latent("deepseek_v3", tmp_path, rope_interleave=False)
    loaded = opened_latent(tmp_path)
    rope = attention_of(loaded.model).rope
    assert rope is not None and rope.pairs == "half"
    assert difference(Native(loaded, two).run(IDS, 0), logits_of(model, IDS)[-1]) <= CLOSE
    assert isinstance(loaded, LatentTold) and load_model(str(tmp_path / "config.json")) == loaded.model
