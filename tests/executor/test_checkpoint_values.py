"""Random weights: the same everywhere, shaped as their recipe says."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from family_models import family_model

from helmsman.executor.checkpoint.random_values import Recipe, encode, value_chunks
from helmsman.executor.checkpoint.weights_init import recipe
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.lowering.tensors import tensors
from helmsman.schemas.formats import Format


def drawn(what: Recipe, rows: int, columns: int, fmt: Format = "f32", seed: int = 1, name: str = "t") -> np.ndarray:
    return np.concatenate(list(value_chunks(what, rows, columns, fmt, seed, name)))


def test_values_are_normal_with_the_recipe_s_mean_and_scale() -> None:
    values = drawn(Recipe(0.5, mean=2.0), 3000, 700).astype(np.float64)
    assert values.mean() == pytest.approx(2.0, abs=2e-3)
    assert values.std() == pytest.approx(0.5, rel=2e-3)
    assert ((values - 2.0) ** 4).mean() / 0.5**4 == pytest.approx(3.0, rel=0.02)


def test_values_do_not_depend_on_the_rows_that_follow() -> None:
    assert np.array_equal(drawn(Recipe(1.0), 5, 2**17), drawn(Recipe(1.0), 9, 2**17)[:5])


def test_seed_and_name_select_independent_streams() -> None:
    base = drawn(Recipe(1.0), 100, 100).ravel()
    for other in (drawn(Recipe(1.0), 100, 100, seed=2), drawn(Recipe(1.0), 100, 100, name="u")):
        assert abs(np.corrcoef(base, other.ravel())[0, 1]) < 0.05


def test_row_factors_scale_their_rows_only() -> None:
    plain = drawn(Recipe(1.0), 600, 999)
    marked = drawn(Recipe(1.0, row_factors=((0, 4.0), (599, 0.5))), 600, 999)
    expected = plain * np.array([4.0, *[1.0] * 598, 0.5], np.float32)[:, None]
    assert np.allclose(marked, expected, rtol=1e-6)


@pytest.mark.parametrize("columns", [8, 7])
def test_rows_of_balanced_values_sum_to_zero(columns: int) -> None:
    values = drawn(Recipe(1.0, balanced=True), 50, columns)[:, : columns // 2 * 2]
    assert np.all(values.sum(axis=1) == 0)
    assert values.std() == pytest.approx(1.0, rel=0.2)


def test_random_signs_keep_the_magnitudes() -> None:
    values = drawn(Recipe(0.2, mean=1.0, random_sign=True), 10_000, 1)
    assert 0.45 < (values < 0).mean() < 0.55
    assert np.abs(values).mean() == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("fmt", ["f16", "bf16"])
def test_encoding_rounds_as_torch_does(fmt: Format) -> None:
    generator = np.random.default_rng(0)
    scales = 10.0 ** generator.uniform(-6, 3, 100_000)
    ties = np.arange(1, 2000) * 2.0**-8 + 1.0 + 2.0**-9
    values = np.concatenate([generator.standard_normal(100_000) * scales, ties, [0.0, -0.0]])
    dtype = torch.bfloat16 if fmt == "bf16" else torch.float16
    expected = torch.from_numpy(values.astype(np.float32)).to(dtype).view(torch.uint16).numpy()
    assert np.array_equal(encode(values, fmt).view(np.uint16), expected)


@pytest.mark.parametrize("fmt", ["f16", "bf16"])
def test_formats_hold_the_same_values_rounded(fmt: Format) -> None:
    assert np.array_equal(encode(drawn(Recipe(0.1), 64, 64), fmt), drawn(Recipe(0.1), 64, 64, fmt))


@pytest.mark.parametrize("family", ["qwen3", "opt"])
def test_every_tensor_has_a_recipe_with_outliers_where_they_belong(family: str) -> None:
    model = family_model(family)
    found = {tensor.name: recipe(model, tensor) for tensor in tensors(model)}
    assert all(what.scale > 0 for what in found.values())
    assert all(found[name].row_factors for name in ("o.weight", "down.weight", "norm1.weight", "embedding.weight"))
    assert found["final_norm.weight"].random_sign
    assert found["down.weight"].balanced == (not model.dense.gated)


def test_the_bytes_of_a_seed_never_change(tmp_path: Path) -> None:
    """A new numpy, platform or refactoring must not silently make other checkpoints of the same seed."""
    write_checkpoint(family_model("qwen3"), tmp_path / "c", seed=7, fmt="bf16")
    data = (tmp_path / "c" / "model.safetensors").read_bytes()
    assert hashlib.sha256(data).hexdigest() == GOLDEN


GOLDEN = "a0c1696c5186d63c4b21538dc9ed53dfe29f9744418ff18fa9f6fdfdb6ab678f"
