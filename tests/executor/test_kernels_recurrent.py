"""Convolutions over time and linear recurrences against f64 arithmetic, for every instruction set of this processor."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray
from together import together

from helmsman.executor import _kernels as kernels
from helmsman.executor._kernels import Pool

Floats = NDArray[np.float32]
Exact = NDArray[np.float64]


@pytest.fixture(scope="module")
def pools() -> tuple[Pool, ...]:
    cpus = sorted(os.sched_getaffinity(0))
    return (Pool(cpus[:1]), Pool([cpus[0], cpus[-1]]), Pool([cpus[index % 2 - 1] for index in range(7)]))


@together("taps", [2, 3, 4])
@together("silu", [False, True])
@together("biased", [False, True])
def test_convolutions_equal_exact_arithmetic(
    base_isa: str, taps: int, silu: bool, biased: bool, pools: tuple[Pool, ...]
) -> None:
    rng = np.random.default_rng(taps)
    for tokens, channels in ((1, 5), (1, 300), (2, 17), (3, 48), (40, 33)):
        x, weight = (
            rng.standard_normal((tokens, channels), np.float32),
            rng.standard_normal((taps, channels), np.float32),
        )
        state = rng.standard_normal((taps - 1, channels), np.float32)
        bias = rng.standard_normal(channels, np.float32) if biased else None
        inputs = np.concatenate([state, x]).astype(np.float64)
        exact = sum(weight[j] * inputs[j : j + tokens] for j in range(taps)) + (0 if bias is None else bias)
        if silu:
            exact = exact / (1 + np.exp(-exact))
        out = x.copy()
        kernels.convolve(pools[tokens % 3], out, weight, bias, state, tokens, channels, taps, silu)
        np.testing.assert_allclose(out, exact, rtol=2e-6, atol=1e-6)
        np.testing.assert_array_equal(state, inputs[-(taps - 1) :].astype(np.float32))


def test_convolutions_do_not_depend_on_how_tokens_are_cut(base_isa: str, pools: tuple[Pool, ...]) -> None:
    rng = np.random.default_rng(9)
    x, weight = rng.standard_normal((23, 50), np.float32), rng.standard_normal((4, 50), np.float32)
    whole, state = x.copy(), np.zeros((3, 50), np.float32)
    kernels.convolve(pools[1], whole, weight, None, state, 23, 50, 4, True)
    again, kept, first = x.copy(), np.zeros((3, 50), np.float32), 0
    for count in (1, 2, 1, 10, 3, 6):
        kernels.convolve(pools[0], again[first : first + count], weight, None, kept, count, 50, 4, True)
        first += count
    np.testing.assert_array_equal(whole, again)
    np.testing.assert_array_equal(state, kept)


def test_convolutions_have_two_to_four_taps(pools: tuple[Pool, ...]) -> None:
    x = np.zeros((8, 4), np.float32)
    for taps in (1, 5):
        with pytest.raises(ValueError, match="taps must be"):
            kernels.convolve(pools[0], x, x, None, x, 1, 4, taps, False)


@together("per", [1, 5, 32])
@together("longest", [np.inf, 0.7])
def test_decays_equal_exact_arithmetic(base_isa: str, per: int, longest: float) -> None:
    rng = np.random.default_rng(per)
    heads = 11
    raw, bias = (rng.standard_normal((heads, per), np.float32) for _ in range(2))
    raw[:5, 0] = [-80, -20, 15, 21, 90]
    a_log = rng.standard_normal(heads, np.float32)
    dt, decay = np.full_like(raw, np.nan), np.full_like(raw, np.nan)
    kernels.decays(raw, bias, a_log, dt, decay, heads, per, longest)
    exact = np.minimum(np.logaddexp(0, raw.astype(np.float64) + bias), longest)
    np.testing.assert_allclose(dt, exact, rtol=1e-6 + 2e-7 * np.abs(raw).max())
    np.testing.assert_allclose(dt[5:], exact[5:], rtol=1e-6)
    np.testing.assert_allclose(decay, -np.exp(a_log.astype(np.float64))[:, None] * dt, rtol=1e-6)
    kernels.decays(raw, bias, a_log, None, raw, heads, per, longest)
    np.testing.assert_array_equal(raw, decay)


@dataclass(frozen=True)
class Recurrence:
    """Heads, dimensions and options, as `_kernels.recur` takes them."""

    shape: tuple[int, int, int, int]
    per_dimension: bool = False
    corrects: bool = True
    normalised: bool = True
    skips: bool = False
    strong: float = 1.0
    tiled: bool = False

    def inputs(self, tokens: int, sequences: int = 1) -> dict[str, Floats | None]:
        """Return random q, k, v, decays, rates, skip and state."""
        key_heads, value_heads, key_dim, value_dim = self.shape
        rng = np.random.default_rng([tokens, *self.shape])
        rows = (sequences, tokens)
        decays = (*rows, value_heads, key_dim) if self.per_dimension else (*rows, value_heads)
        return {
            "q": rng.standard_normal((*rows, key_heads, key_dim), np.float32),
            "k": rng.standard_normal((*rows, key_heads, key_dim), np.float32),
            "v": rng.standard_normal((*rows, value_heads, value_dim), np.float32),
            "decay": -self.strong * rng.random(decays, np.float32) ** 4,
            "rate": rng.random((*rows, value_heads), np.float32),
            "skip": rng.standard_normal(value_heads, np.float32) if self.skips else None,
            "state": rng.standard_normal((sequences, value_heads, key_dim, value_dim), np.float32),
        }

    def run(self, pool: Pool, inputs: dict[str, Floats | None]) -> tuple[Floats, Floats]:
        """Return outputs and the state afterwards."""
        v, state = inputs["v"], inputs["state"]
        assert v is not None
        assert state is not None
        out, after = np.full_like(v, np.nan), state.copy()
        kernels.recur(
            pool,
            inputs["q"],
            inputs["k"],
            v,
            inputs["decay"],
            inputs["rate"],
            inputs["skip"],
            after,
            out,
            self.shape,
            *v.shape[:2],
            per_dimension=self.per_dimension,
            corrects=self.corrects,
            normalised=self.normalised,
            query_scale=self.shape[2] ** -0.5,
            tiled=self.tiled,
        )
        return out, after

    def exact(self, inputs: dict[str, Floats | None]) -> tuple[Exact, Exact]:
        """Return the same, token by token in f64."""
        wide = {name: np.zeros(1) if value is None else value.astype(np.float64) for name, value in inputs.items()}
        q, k = (self._prepared(wide[name])[:, :, self._key_heads()] for name in ("q", "k"))
        v, state, out = wide["v"], wide["state"].copy(), np.zeros(wide["v"].shape)
        decay = np.exp(wide["decay"] if self.per_dimension else wide["decay"][..., None])
        for t in range(v.shape[1]):
            state *= decay[:, t, :, :, None]
            seen = np.einsum("shkv,shk->shv", state, k[:, t]) if self.corrects else 0
            state += k[:, t, :, :, None] * ((v[:, t] - seen) * wide["rate"][:, t, :, None])[:, :, None]
            out[:, t] = np.einsum("shkv,shk->shv", state, q[:, t]) * self.shape[2] ** -0.5
        return out + wide["skip"].reshape(-1, 1) * v, state

    def _key_heads(self) -> list[int]:
        """Return the key head of every value head."""
        heads, sharing = self.shape[0], self.shape[1] // self.shape[0]
        return [head % heads if self.tiled else head // sharing for head in range(self.shape[1])]

    def _prepared(self, rows: Exact) -> Exact:
        return rows / np.sqrt((rows * rows).sum(-1, keepdims=True) + 1e-6) if self.normalised else rows


def close(ours: Floats, exact: Exact, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(ours, exact, rtol=0, atol=tolerance * np.abs(exact).max())


RECURRENCES = {
    "delta": Recurrence((2, 4, 32, 24)),
    "odd delta": Recurrence((1, 3, 19, 37)),
    "delta per dimension": Recurrence((3, 3, 32, 33), per_dimension=True),
    "odd delta per dimension": Recurrence((1, 2, 21, 16), per_dimension=True),
    "strong decays": Recurrence((1, 2, 32, 32), strong=150.0),
    "strong decays per dimension": Recurrence((2, 2, 16, 32), per_dimension=True, strong=150.0),
    "state space": Recurrence((2, 6, 40, 16), corrects=False, normalised=False, skips=True),
    "tiled delta": Recurrence((3, 6, 32, 24), tiled=True),
    "tiled delta, three to one": Recurrence((2, 6, 20, 130), tiled=True),
    "wide": Recurrence((1, 1, 64, 200)),
    "no correction per dimension": Recurrence((1, 2, 24, 8), per_dimension=True, corrects=False),
}


@pytest.mark.parametrize("name", RECURRENCES)
def test_recurrences_equal_exact_arithmetic(base_isa: str, name: str, pools: tuple[Pool, ...]) -> None:
    """One by one up to 8 tokens, then in chunks of 64."""
    recurrence = RECURRENCES[name]
    for tokens in (1, 2, 8, 9, 16, 17, 33, 64, 65, 150):
        inputs = recurrence.inputs(tokens)
        out, state = recurrence.run(pools[tokens % len(pools)], inputs)
        exact_out, exact_state = recurrence.exact(inputs)
        close(out, exact_out)
        close(state, exact_state)


@pytest.mark.parametrize("name", RECURRENCES)
def test_chunks_equal_the_recurrence(base_isa: str, name: str, pools: tuple[Pool, ...]) -> None:
    """One by one: some tokens by two threads, whose other core may be busy whenever they begin."""
    recurrence = RECURRENCES[name]
    inputs = recurrence.inputs(70)
    whole, state = recurrence.run(pools[0], inputs)
    steps = []
    for t in range(70):
        at = {
            key: value if value is None or key in ("skip", "state") else value[:, t : t + 1].copy()
            for key, value in inputs.items()
        }
        out, inputs["state"] = recurrence.run(pools[t % 16 == 0], at)
        steps.append(out)
    close(whole, np.concatenate(steps, 1).astype(np.float64))
    last = inputs["state"]
    assert last is not None
    close(state, last.astype(np.float64))


@pytest.mark.parametrize("name", RECURRENCES)
def test_the_number_of_threads_changes_no_bit(base_isa: str, name: str, pools: tuple[Pool, ...]) -> None:
    recurrence = RECURRENCES[name]
    for tokens in (3, 30):
        for sequences in (1, 3):
            inputs = recurrence.inputs(tokens, sequences)
            first, *others = (recurrence.run(pool, inputs) for pool in pools)
            for other in others:
                np.testing.assert_array_equal(first[0], other[0])
                np.testing.assert_array_equal(first[1], other[1])


def test_sequences_are_apart(base_isa: str, pools: tuple[Pool, ...]) -> None:
    recurrence = RECURRENCES["delta"]
    inputs = recurrence.inputs(5, 3)
    out, state = recurrence.run(pools[2], inputs)
    for s in range(3):
        part = {key: value if value is None else value[s : s + 1].copy() for key, value in inputs.items()}
        alone = recurrence.run(pools[0], part)
        np.testing.assert_array_equal(alone[0][0], out[s])
        np.testing.assert_array_equal(alone[1][0], state[s])


def test_a_single_strong_decay_costs_no_digits(base_isa: str, pools: tuple[Pool, ...]) -> None:
    """Sums of decays over a chunk would be around -100, whose last digit is 8e-6."""
    for per_dimension in (False, True):
        recurrence = replace(Recurrence((1, 1, 32, 32)), per_dimension=per_dimension)
        inputs = recurrence.inputs(64)
        decay = inputs["decay"]
        assert decay is not None
        decay *= np.float32(0.01)
        decay[:, 5] = -100
        out, state = recurrence.run(pools[0], inputs)
        exact_out, exact_state = recurrence.exact(inputs)
        close(out, exact_out, 2e-6)
        close(state, exact_state, 2e-6)


@together("tokens", [3, 40])
@together("which", ["q", "k", "v", "decay", "rate"])
def test_what_is_no_number_is_not_hidden(base_isa: str, which: str, tokens: int, pools: tuple[Pool, ...]) -> None:
    for recurrence in (RECURRENCES["delta"], RECURRENCES["delta per dimension"]):
        inputs = recurrence.inputs(tokens)
        broken = inputs[which]
        assert broken is not None
        broken[:, 2] = np.nan
        out, state = recurrence.run(pools[0], inputs)
        assert np.isnan(out[:, 2]).all()
        if tokens == 3:
            assert np.isfinite(out[:, :2]).all()
        assert np.isnan(state).all() == (which != "q")


def test_shapes_are_checked(pools: tuple[Pool, ...]) -> None:
    recurrence = Recurrence((2, 4, 16, 16))
    inputs = recurrence.inputs(2)
    with pytest.raises(ValueError, match="multiple of key heads"):
        replace(recurrence, shape=(3, 4, 16, 16)).run(pools[0], inputs)
    with pytest.raises(ValueError, match="q has"):
        replace(recurrence, shape=(4, 4, 16, 16)).run(pools[0], inputs)
