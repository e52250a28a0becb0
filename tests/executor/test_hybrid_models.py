"""Models with states as stages, against transformers on the same weights."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from expert_models import Native
from hybrid_models import FAMILIES, HybridOnTorch, HybridTold, opened_hybrid, written_hybrid
from numpy.typing import NDArray
from test_latent_models import SHOWS, difference, divergence, logits_of

from helmsman.executor._kernels import Pool
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.devices.torch.regions import regions_of
from helmsman.executor.devices.torch.stage import TorchStage
from helmsman.schemas.blocks.recurrent import DeltaRule, StateSpace
from helmsman.schemas.model import Model

CPUS = sorted(os.sched_getaffinity(0))
PROMPT = 32
IDS = np.random.default_rng(5).integers(0, 128, 90).tolist()
CLOSE = 2e-4
"""Of the largest logit: what f32 leaves between two orders of summation."""


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    directory = tmp_path_factory.mktemp(request.param)
    return directory, written_hybrid(request.param, directory)


@pytest.fixture(scope="module")
def two() -> Pool:
    return Pool([CPUS[0], CPUS[-1]])


def greedy(directory: Path, model: Any, pool: Pool, tokens: int) -> None:
    native, ids = Native(opened_hybrid(directory), pool), IDS[:PROMPT]
    computed = native.run(ids, 0)
    for _ in range(tokens):
        expected = logits_of(model, ids)[-1]
        assert difference(computed, expected) <= CLOSE
        assert computed.argmax() == expected.argmax()
        ids.append(int(computed.argmax()))
        computed = native.run(ids[-1:], len(ids) - 1)


def test_greedy_tokens_and_logits_are_those_of_transformers(family: tuple[Path, Any], two: Pool) -> None:
    greedy(*family, two, 8)


@pytest.mark.nightly
def test_64_greedy_tokens_are_those_of_transformers(family: tuple[Path, Any], two: Pool) -> None:
    greedy(*family, two, 64)


def test_a_prompt_in_parts_is_the_prompt_token_by_token(family: tuple[Path, Any]) -> None:
    """On one thread; states begin anew with position 0, whatever was there."""
    directory, model = family
    native, expected = Native(opened_hybrid(directory), Pool(CPUS[:1])), logits_of(model, IDS)
    for past, token in enumerate(IDS):
        assert difference(native.run([token], past), expected[past]) <= CLOSE
    native.run(IDS[:71], 0)
    assert difference(native.run(IDS[71:], 71), expected[-1]) <= CLOSE


def test_pytorch_stages_compute_the_same(family: tuple[Path, Any]) -> None:
    directory, model = family
    loaded = opened_hybrid(directory, kind=HybridOnTorch)
    assert isinstance(loaded, HybridOnTorch)
    spec = loaded.spec()
    stage = TorchStage(spec, loaded.memory.alloc(regions_of(spec).size, "workspace"), 0)
    expected = logits_of(model, IDS)
    for part, past in ((slice(0, 70), 0), (slice(70, 89), 70), (slice(89, 90), 89)):
        stage.feed(torch.tensor([IDS]), part, past)
        stage.compute(0, len(stage.ops), part.stop - part.start, past, ends=True)
        assert difference(np.array(stage.logits())[0], expected[part.stop - 1]) <= CLOSE


class SwappedHalves(HybridTold):
    """Rotations turn the other way."""

    def rotation(self, rope: Any) -> Any:
        cos, sin = super().rotation(rope)
        return cos, -sin


class WithoutOffsets(HybridTold):
    """Decays are computed without what is added to them."""

    def vector(self, op: str, name: str, layer: int | None) -> Buffer | None:
        values = self.values(f"{name}.weight", layer)
        if values is None:
            return None
        kept: Buffer = self.kept(np.zeros_like(values) if name.endswith("_offset") else values)
        return kept


class ScalarDecay(HybridTold):
    """Decays per dimension of keys are the mean of their head's."""

    def values(self, name: str, layer: int | None) -> NDArray[np.float32] | None:
        values = super().values(name, layer)
        if values is None or not name.startswith(("delta_decay.", "delta_offset.")):
            return values
        rule = next(body.op for body in self.model.blocks[layer or 0].bodies if isinstance(body.op, DeltaRule))
        heads = values.reshape(rule.key_heads, rule.key_dim, -1)
        return np.broadcast_to(heads.mean(1, keepdims=True), heads.shape).reshape(values.shape)


def flawed(spec: Any, **fields: Any) -> Any:
    """Change fields of all operations of mixers that have them."""
    for op in spec["operations"]:
        if op["kind"] in ("convolution", "recurrence", "gated-norm"):
            op.update({key: value for key, value in fields.items() if key in op})
    return spec


class Flawed(HybridTold):
    """Operations have other fields."""

    fields: dict[str, Any]

    def spec(self) -> Any:
        return flawed(super().spec(), **self.fields)


def with_fields(directory: Path, **fields: Any) -> HybridTold:
    told = opened_hybrid(directory, kind=Flawed)
    assert isinstance(told, Flawed)
    told.fields = fields
    return told


def faults(directory: Path, model: Model) -> dict[str, HybridTold]:
    """Return stages that each compute something else."""
    ops = [body.op for layout in model.layouts for body in layout.bodies]
    kinds = {op.kind for op in ops}
    result = {}
    if any(layout.attention is not None and layout.attention.rope is not None for layout in model.layouts):
        result["rotation"] = opened_hybrid(directory, kind=SwappedHalves)
    if "delta-rule" in kinds:
        result["keys that are not normed"] = with_fields(directory, normalised=False)
        rule = next(op for op in ops if isinstance(op, DeltaRule))
        result["gate"] = with_fields(directory, gate="silu" if rule.gate == "sigmoid" else "sigmoid")
        if rule.decay == "dimension":
            result["decays of heads"] = opened_hybrid(directory, kind=ScalarDecay)
    if kinds & {"delta-rule", "state-space"}:
        result["offsets"] = opened_hybrid(directory, kind=WithoutOffsets)
        result["activation"] = with_fields(directory, silu=False)
    if any(isinstance(op, StateSpace) and op.norm is not None for op in ops):
        result["order of the gate"] = with_fields(directory, gate_first=False)
    if "state-space" in kinds:
        result["what passes by"] = with_fields(directory, passing=None)
    return result


def test_what_is_computed_otherwise_shows(family: tuple[Path, Any], two: Pool) -> None:
    directory, model = family
    expected = logits_of(model, IDS)[-1]
    loaded = opened_hybrid(directory)
    assert divergence(Native(loaded, two).run(IDS, 0), expected) < 1e-6
    for name, fault in faults(directory, loaded.model).items():
        assert divergence(Native(fault, two).run(IDS, 0), expected) > SHOWS, name


def test_a_stale_state_shows(family: tuple[Path, Any], two: Pool) -> None:
    """Tokens that follow another sequence's."""
    directory, model = family
    native, expected = Native(opened_hybrid(directory), two), logits_of(model, IDS)[-1]
    native.run(IDS[:40], 0)
    other: list[int] = [(token + 1) % 128 for token in IDS[:40]]
    native.run(other, 0)
    assert divergence(native.run(IDS[40:], 40), expected) > SHOWS


@pytest.mark.parametrize("fmt", ["bf16", "q8_0"])
def test_one_token_and_many_agree_in_other_formats(tmp_path: Path, two: Pool, fmt: Any) -> None:
    """On the same rounded weights, whose kernels for one token and for many are others; and near those of f32."""
    sizes = {"linear_value_head_dim": 32, "linear_key_head_dim": 32, "intermediate_size": 128}
    model = written_hybrid("qwen3_5_text", tmp_path, 0.1, **sizes)
    native = Native(opened_hybrid(tmp_path, fmt), two)
    whole: NDArray[np.float32] = native.run(IDS[:12], 0)
    for past, token in enumerate(IDS[:12]):
        computed = native.run([token], past)
    assert difference(computed, whole) <= 3e-2
    assert difference(whole, logits_of(model, IDS[:12])[-1]) <= (0.2 if fmt == "q8_0" else 0.06)
