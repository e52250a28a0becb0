"""Networks of experts against f64 arithmetic on stored matrices, for every instruction set of this processor."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np
import pytest
from block_oracle import Floats, packed, restored
from numpy.typing import NDArray
from together import together

from helmsman.executor import _kernels as kernels
from helmsman.executor._kernels import Buffer, Pool

if TYPE_CHECKING:
    from helmsman.executor._kernels import ActivationName
    from helmsman.schemas.formats import Precision, StoredFormat

Ids = NDArray[np.int32]
Exact = NDArray[np.float64]
FORMATS: tuple[StoredFormat, ...] = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q6_k", "q8", "q4")
UNIT = 2.0**-24


@pytest.fixture(scope="module")
def pools() -> tuple[Pool, ...]:
    cpus = sorted(os.sched_getaffinity(0))
    return (Pool(cpus[:1]), Pool([cpus[0], cpus[-1]]), Pool([cpus[index % 2 - 1] for index in range(5)]))


@dataclass(frozen=True)
class Layer:
    """Random matrices of experts, as they are stored."""

    fmt: StoredFormat
    experts: int
    hidden: int
    width: int
    gated: bool = True
    biased: bool = False
    activation: ActivationName = "silu"
    limit: float = float("inf")
    input_scaled: bool = False
    precision: Precision = "f32"
    stored: dict[str, list[Buffer | None]] = field(default_factory=dict)
    biases: dict[str, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.experts)
        for name, rows, columns in self.shapes():
            values = [rng.standard_normal((rows, columns), np.float32) / np.float32(8) for _ in range(self.experts)]
            self.stored[name] = [packed(value, "f32", self.fmt, rows, columns) for value in values]
            if self.biased:
                self.biases[name] = rng.standard_normal((self.experts, rows), np.float32)

    def shapes(self) -> list[tuple[str, int, int]]:
        """Return names, rows and columns of an expert's matrices."""
        inner = [("gate", self.width, self.hidden)] if self.gated else []
        return [*inner, ("up", self.width, self.hidden), ("down", self.hidden, self.width)]

    def run(self, pool: Pool, ids: Ids, weights: Floats, x: Floats, y: Floats | None = None) -> Floats:
        """Return what the kernel gives, or adds to y."""
        out = np.full_like(x, np.nan) if y is None else y.copy()
        kernels.experts(
            pool,
            self.stored.get("gate", []),
            self.stored["up"],
            self.stored["down"],
            self.fmt,
            self.fmt,
            self.hidden,
            self.width,
            ids,
            weights,
            x,
            out,
            *ids.shape,
            activation=self.activation,
            limit=self.limit,
            biases=[self.biases.get(name) for name in ("gate", "up", "down")],
            input_scaled=self.input_scaled,
            activations=self.precision,
            accumulate=y is not None,
        )
        return out

    def exact(self, ids: Ids, weights: Floats, x: Floats) -> Exact:
        """Return the same in f64."""
        total = np.zeros(x.shape)
        for expert in np.unique(ids[ids >= 0]):
            tokens, slots = np.nonzero(ids == expert)
            factors = weights[tokens, slots, None].astype(np.float64)
            values = x[tokens].astype(np.float64) * (factors if self.input_scaled else 1)
            up = self._product("up", expert, values)
            gate = self._product("gate", expert, values) if self.gated else None
            outcome = self._product("down", expert, activated(self.activation, self.limit, gate, up))
            total[tokens] += outcome * (1 if self.input_scaled else factors)
        return total

    def _product(self, name: str, expert: int, values: Exact) -> Exact:
        rows, columns = next(shape[1:] for shape in self.shapes() if shape[0] == name)
        buffer = self.stored[name][expert]
        assert buffer is not None
        bias = self.biases[name][expert] if self.biased else 0
        return values @ restored(buffer, self.fmt, rows, columns).astype(np.float64).T + bias


def activated(kind: str, limit: float, gate: Exact | None, up: Exact) -> Exact:
    """Return what is between the matrices."""
    up = np.clip(up, -limit, limit)
    source = up if gate is None else np.minimum(gate, limit)
    if kind == "relu2":
        outcome = np.maximum(source, 0) ** 2
    elif kind == "gelu_tanh":
        outcome = source * (1 + np.tanh(np.sqrt(2 / np.pi) * (source + 0.044715 * source**3))) / 2
    else:
        outcome = source / (1 + np.exp(-source * (1.702 if kind == "swiglu_oai" else 1)))
    if gate is None:
        return outcome
    return outcome * (up + 1 if kind == "swiglu_oai" else up)


def choices(rng: np.random.Generator, tokens: int, experts: int, chosen: int) -> tuple[Ids, Floats]:
    """Return distinct experts of every token, ascending, and weights."""
    ids = np.sort(rng.permuted(np.tile(np.arange(experts), (tokens, 1)), axis=1)[:, :chosen], 1)
    return np.ascontiguousarray(ids, np.int32), rng.random((tokens, chosen), np.float32)


def check(layer: Layer, pool: Pool, tokens: int, chosen: int, tolerance: float = 2e-5) -> None:
    """Errors are those of three sums in f32, or of activations in whole numbers."""
    rng = np.random.default_rng([tokens, chosen])
    ids, weights = choices(rng, tokens, layer.experts, chosen)
    x = rng.standard_normal((tokens, layer.hidden), np.float32)
    exact = layer.exact(ids, weights, x)
    np.testing.assert_allclose(layer.run(pool, ids, weights, x), exact, rtol=0, atol=tolerance * np.abs(exact).max())


@pytest.mark.parametrize("fmt", FORMATS)
def test_experts_equal_exact_arithmetic(base_isa: str, fmt: StoredFormat, pools: tuple[Pool, ...]) -> None:
    layer = Layer(fmt, 7, 256, 256)
    for index, tokens in enumerate((1, 2, 5, 40)):
        check(layer, pools[index % len(pools)], tokens, 3)


@pytest.mark.parametrize("fmt", ["q8_0", "q4_k", "q4"])
def test_bf16_experts_agree_on_every_instruction_set(fmt: StoredFormat, pools: tuple[Pool, ...]) -> None:
    """Every instruction set, with BF16 units or imitating them, rounds the same weights and activations to bf16, so
    that experts of many tokens give the same outputs."""
    layer = Layer(fmt, 3, 256, 256, precision="bf16")
    rng = np.random.default_rng(4)
    ids, weights = choices(rng, 90, layer.experts, 2)
    x = rng.standard_normal((90, layer.hidden), np.float32)
    previous_isa = kernels.isa()
    outputs: list[Floats] = []
    for isa_name in (*kernels.supported_isas(), *kernels.emulated_isas()):
        kernels.select_isa(isa_name)
        outputs.append(layer.run(pools[1], ids, weights, x))
    kernels.select_isa(previous_isa)
    for output in outputs:
        assert np.abs(output - outputs[0]).max() < 1e-4 * np.abs(outputs[0]).max()


@pytest.mark.parametrize("fmt", ["q8_0", "q4_0", "q4_k", "q6_k", "q8", "q4"])
@pytest.mark.parametrize("precision", ["int16", "int8"])
def test_experts_with_activations_in_whole_numbers(
    word_isa: str, fmt: StoredFormat, precision: Precision, pools: tuple[Pool, ...]
) -> None:
    layer = Layer(fmt, 5, 256, 256, precision=precision)
    for tokens in (1, 3, 40):
        check(layer, pools[1], tokens, 2, 2e-4 if precision == "int16" else 0.04)


KINDS: dict[str, Callable[[], Layer]] = {
    "odd": partial(Layer, "f32", 4, 37, 21),
    "relu2": partial(Layer, "f32", 4, 40, 33, gated=False, activation="relu2"),
    "swiglu_oai": partial(Layer, "bf16", 6, 48, 50, biased=True, activation="swiglu_oai", limit=0.7),
    "clamped": partial(Layer, "f16", 5, 33, 48, limit=0.5),
    "gelu": partial(Layer, "q8_0", 3, 64, 32, activation="gelu_tanh", biased=True),
    "scaled": partial(Layer, "f32", 9, 30, 17, input_scaled=True),
    "scaled q4_0": partial(Layer, "q4_0", 9, 64, 32, input_scaled=True),
    "one": partial(Layer, "f32", 1, 16, 16),
}


@cache
def layer_of(kind: str) -> Layer:
    """Make a layer when it is first computed, not while tests are collected."""
    return KINDS[kind]()


@together("tokens", [1, 2, 3, 30])
@together("kind", KINDS)
def test_experts_of_every_kind(base_isa: str, kind: str, tokens: int, pools: tuple[Pool, ...]) -> None:
    layer = layer_of(kind)
    for chosen in range(1, min(layer.experts, 4) + 1):
        check(layer, pools[chosen % len(pools)], tokens, chosen)


def test_many_rows_pass_in_waves(base_isa: str, pools: tuple[Pool, ...]) -> None:
    """Of 3,000 rows no more than 1,024 are kept at once; one expert has as many as there are tokens."""
    layer = Layer("f32", 6, 24, 20)
    check(layer, pools[2], 600, 5)
    rng = np.random.default_rng(0)
    ids = np.ones((1500, 1), np.int32)
    weights, x = rng.random((1500, 1), np.float32), rng.standard_normal((1500, 24), np.float32)
    exact = layer.exact(ids, weights, x)
    np.testing.assert_allclose(layer.run(pools[1], ids, weights, x), exact, rtol=0, atol=2e-5 * np.abs(exact).max())


@pytest.mark.parametrize("fmt", ["f32", "bf16", "q4_0", "q4_k"])
def test_the_number_of_threads_changes_no_bit(word_isa: str, fmt: StoredFormat, pools: tuple[Pool, ...]) -> None:
    layer = Layer(fmt, 8, 256, 256, precision="int16")
    for tokens in (1, 4, 70):
        rng = np.random.default_rng(tokens)
        ids, weights = choices(rng, tokens, 8, 4)
        x = rng.standard_normal((tokens, 256), np.float32)
        first, *others = (layer.run(pool, ids, weights, x) for pool in pools)
        for other in others:
            np.testing.assert_array_equal(first, other)


def test_a_token_with_its_experts_alone_gives_what_it_gives_among_others_of_other_experts(
    word_isa: str, pools: tuple[Pool, ...]
) -> None:
    layer = Layer("q4_0", 6, 64, 64, precision="int16")
    ids = np.array([[0, 2], [1, 3], [4, 5]], np.int32)
    rng = np.random.default_rng(3)
    weights, x = rng.random((3, 2), np.float32), rng.standard_normal((3, 64), np.float32)
    together = layer.run(pools[1], ids, weights, x)
    for token in range(3):
        part = slice(token, token + 1)
        np.testing.assert_array_equal(layer.run(pools[0], ids[part], weights[part], x[part])[0], together[token])


def test_experts_left_out_are_those_of_another_call(base_isa: str, pools: tuple[Pool, ...]) -> None:
    layer = Layer("f32", 6, 32, 32)
    rng = np.random.default_rng(5)
    ids, weights = choices(rng, 9, 6, 3)
    x = rng.standard_normal((9, 32), np.float32)
    low, high = (np.where(part, ids, -1).astype(np.int32) for part in (ids < 3, ids >= 3))
    partial = layer.run(pools[1], low, weights, x)
    np.testing.assert_allclose(partial, layer.exact(low, weights, x), rtol=0, atol=1e-5)
    whole = layer.run(pools[1], high, weights, x, partial)
    np.testing.assert_allclose(whole, layer.exact(ids, weights, x), rtol=0, atol=1e-5)
    nothing = np.full_like(ids, -1)
    assert not layer.run(pools[1], nothing, weights, x).any()
    np.testing.assert_array_equal(layer.run(pools[1], nothing, weights, x, partial), partial)


def test_only_experts_that_are_chosen_need_be_there(pools: tuple[Pool, ...]) -> None:
    layer = Layer("f32", 3, 16, 16)
    x, weights = np.ones((1, 16), np.float32), np.ones((1, 1), np.float32)
    expected = layer.run(pools[0], np.array([[2]], np.int32), weights, x)
    for matrices in layer.stored.values():
        matrices[1] = None
    np.testing.assert_array_equal(layer.run(pools[0], np.array([[2]], np.int32), weights, x), expected)
    with pytest.raises(ValueError, match="expert 1 is chosen, but not there"):
        layer.run(pools[0], np.array([[1]], np.int32), weights, x)


def test_what_is_no_number_stays_with_its_token(base_isa: str, pools: tuple[Pool, ...]) -> None:
    layer = Layer("f32", 4, 32, 32, activation="swiglu_oai", limit=7.0)
    ids = np.tile(np.array([[0, 3]], np.int32), (3, 1))
    x = np.ones((3, 32), np.float32)
    x[1, 5] = np.nan
    y = layer.run(pools[0], ids, np.ones((3, 2), np.float32), x)
    assert np.isnan(y[1]).all()
    assert np.isfinite(y[[0, 2]]).all()


def test_choices_and_shapes_are_checked(pools: tuple[Pool, ...]) -> None:
    layer = Layer("f32", 3, 16, 16)
    x, weights = np.ones((1, 16), np.float32), np.ones((1, 2), np.float32)
    for ids, message in (([[0, 3]], "below"), ([[1, 0]], "ascend"), ([[1, 1]], "ascend")):
        with pytest.raises(ValueError, match=message):
            layer.run(pools[0], np.array(ids, np.int32), weights, x)
    with pytest.raises(ValueError, match="weights has"):
        layer.run(pools[0], np.array([[0, 1]], np.int32), weights[:, :1], x)
    short = Layer("f32", 3, 16, 16)
    short.stored["down"].pop()
    with pytest.raises(ValueError, match="a matrix for every expert"):
        short.run(pools[0], np.array([[0, 1]], np.int32), weights, x)
