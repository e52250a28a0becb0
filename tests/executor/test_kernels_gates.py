"""Clamped activations, gates, norms with gates against f64 arithmetic, for every instruction set of this processor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from together import together

from helmsman.executor import _kernels as kernels

if TYPE_CHECKING:
    from helmsman.executor._kernels import ActivationName, GateName

Floats = NDArray[np.float32]
Exact = NDArray[np.float64]
WIDTHS = (1, 3, 8, 17, 64, 131)


def sigmoid(x: Floats | Exact) -> Exact:
    """Return 1 / (1 + exp(-x))."""
    return np.exp(-np.logaddexp(0, -x.astype(np.float64)))


def gated(kind: GateName, z: Floats) -> Exact:
    """Return what a gate multiplies by."""
    if kind == "none":
        return np.ones(z.shape)
    return sigmoid(z) * (z if kind == "silu" else 1)


def activated(kind: ActivationName, limit: float, gate: Floats | None, up: Floats) -> Exact:
    """Return activation(gate) * up of what is cut to `limit`."""
    cut = np.clip(up.astype(np.float64), -limit, limit)
    source = cut if gate is None else np.minimum(gate.astype(np.float64), limit)
    if kind == "relu":
        outcome = np.maximum(source, 0)
    elif kind == "relu2":
        outcome = np.maximum(source, 0) ** 2
    elif kind == "gelu_tanh":
        outcome = source * (1 + np.tanh(np.sqrt(2 / np.pi) * (source + 0.044715 * source**3))) / 2
    else:
        outcome = source * sigmoid(source * (1.702 if kind == "swiglu_oai" else 1))
    if gate is None:
        return outcome
    return outcome * (cut + 1 if kind == "swiglu_oai" else cut)


@together("kind", ["silu", "relu", "gelu_tanh", "relu2", "swiglu_oai"])
@together("limit", [1.5, np.inf])
def test_activations_are_cut(base_isa: str, kind: ActivationName, limit: float) -> None:
    rng = np.random.default_rng(1)
    for n in WIDTHS:
        gate, up = (4 * rng.standard_normal(n, np.float32) for _ in range(2))
        for source in (gate, None):
            out = up.copy()
            kernels.activate_within(kind, limit, source, out, n)
            exact = activated(kind, limit, source, up)
            np.testing.assert_allclose(out, exact, rtol=2e-6, atol=1e-6)


@together("kind", ["silu", "relu2", "swiglu_oai"])
def test_activations_pass_on_what_is_no_number(base_isa: str, kind: ActivationName) -> None:
    for at in range(11):
        gate, up = np.ones(11, np.float32), np.ones(11, np.float32)
        gate[at] = np.nan
        kernels.activate_within(kind, 7.0, gate, up, 11)
        assert np.isnan(up[at])
        assert np.isfinite(np.delete(up, at)).all()
        up = np.ones(11, np.float32)
        up[at] = np.nan
        kernels.activate_within(kind, 7.0, None, up, 11)
        assert np.isnan(up[at])


def test_large_numbers_are_cut_before_they_overflow(base_isa: str) -> None:
    gate, up = np.array([1e38, -1e30, 3.0], np.float32), np.array([-1e38, 1e38, 1e38], np.float32)
    exact = activated("swiglu_oai", 7.0, gate, up)
    kernels.activate_within("swiglu_oai", 7.0, gate, up, 3)
    np.testing.assert_allclose(up, exact, rtol=2e-6, atol=1e-6)


@together("kind", ["sigmoid", "silu", "none"])
def test_gates_per_element_and_per_row(base_isa: str, kind: GateName) -> None:
    rng = np.random.default_rng(2)
    for width in WIDTHS:
        x, z = (3 * rng.standard_normal((4, width), np.float32) for _ in range(2))
        z[0, 0], z[1, 0] = -200, 200
        out = x.copy()
        kernels.gate(kind, out, z, 4, width)
        np.testing.assert_allclose(out, x * gated(kind, z), rtol=2e-6, atol=1e-30)
        rows, out = np.ascontiguousarray(z[:, 0]), x.copy()
        kernels.gate(kind, out, rows, 4, width, by_row=True)
        np.testing.assert_allclose(out, x * gated(kind, rows)[:, None], rtol=2e-6, atol=1e-30)


def test_products_by_element(base_isa: str) -> None:
    rng = np.random.default_rng(3)
    for n in WIDTHS:
        x, factors = (rng.standard_normal(n, np.float32) for _ in range(2))
        out = x.copy()
        kernels.multiply(out, factors, n)
        np.testing.assert_array_equal(out, x * factors)


def normed(x: Exact, eps: float) -> Exact:
    """Return rows over the root of their mean square."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


@together("kind", ["none", "sigmoid", "silu"])
@together("order", ["norm first", "gate first"])
@together("weights", ["none", "shared", "own"])
def test_norms_with_gates(
    base_isa: str,
    kind: GateName,
    order: Literal["norm first", "gate first"],
    weights: Literal["none", "shared", "own"],
) -> None:
    rng = np.random.default_rng(4)
    for width in WIDTHS:
        x, z, own = (rng.standard_normal((5, width), np.float32) for _ in range(3))
        weight = {"none": None, "shared": np.ascontiguousarray(own[0]), "own": own}[weights]
        factor = np.ones(width) if weight is None else weight.astype(np.float64)
        wide, gates = x.astype(np.float64), gated(kind, z)
        exact = normed(wide * gates, 1e-5) * factor if order == "gate first" else normed(wide, 1e-5) * factor * gates
        for out in (np.full_like(x, np.nan), x):
            kernels.gated_norm(
                x,
                None if kind == "none" else z,
                weight,
                out,
                5,
                width,
                1e-5,
                kind,
                gate_first=order == "gate first",
                own_weights=weights == "own",
            )
            np.testing.assert_allclose(out, exact, rtol=0, atol=2e-6 * max(np.abs(exact).max(), 1))


def test_norms_of_zeros_and_of_what_is_no_number(base_isa: str) -> None:
    x = np.zeros((3, 20), np.float32)
    x[1, 4] = np.nan
    kernels.gated_norm(x, None, None, x, 3, 20, 1e-6)
    assert not x[[0, 2]].any()
    assert np.isnan(x[1]).all()


def test_gates_need_what_they_multiply_by() -> None:
    x = np.ones(4, np.float32)
    with pytest.raises(ValueError, match="z must be given"):
        kernels.gated_norm(x, None, None, x, 1, 4, 1e-6, "silu")
    with pytest.raises(ValueError, match="limit must be above 0"):
        kernels.activate_within("silu", 0.0, None, x, 4)
    with pytest.raises(ValueError, match="z has"):
        kernels.gate("silu", np.ones(6, np.float32), x, 2, 3)
