"""Routers of experts against f64 arithmetic, for every instruction set this processor has."""

import os
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from together import together

from helmsman.executor import _kernels as kernels
from helmsman.executor._kernels import Pool

Floats = NDArray[np.float32]
Exact = NDArray[np.float64]
Ids = NDArray[np.int32]


@dataclass(frozen=True)
class Routing:
    """Options of a router, as `_kernels.route` names them."""

    chosen: int
    score: Literal["softmax", "sigmoid", "sqrt-softplus", "none"] = "softmax"
    weighted: Literal["scores", "softmax-of-chosen"] = "scores"
    correction: Floats | None = None
    groups: int = 0
    kept: int = 0
    best_two: bool = True
    normalised: bool = True
    eps: float = 0.0
    scaling: float = 1.0
    expert_scale: Floats | None = None

    def run(self, pool: Pool, logits: Floats) -> tuple[Ids, Floats]:
        """Return ids and weights as the kernel gives them."""
        rows, experts = logits.shape
        ids = np.full((rows, self.chosen), -1, np.int32)
        weights = np.full((rows, self.chosen), -1, np.float32)
        kernels.route(pool, logits, ids, weights, rows, experts, **vars(self))
        return ids, weights

    def exact(self, logits: Floats) -> tuple[Ids, Exact]:
        """Return the same in f64."""
        wide = logits.astype(np.float64)
        scores = _scores(self.score, wide)
        choice = scores if self.correction is None else scores + self.correction.astype(np.float64)
        if self.groups:
            choice = np.where(self._kept_groups(choice), choice, -np.inf)
        ids = np.sort(np.argsort(-choice, 1, kind="stable")[:, : self.chosen], 1)
        weights = np.take_along_axis(scores, ids, 1)
        if self.weighted == "softmax-of-chosen":
            weights = _scores("softmax", np.take_along_axis(wide, ids, 1))
        if self.normalised:
            weights = weights / (weights.sum(1, keepdims=True) + self.eps)
        scale = 1.0 if self.expert_scale is None else self.expert_scale.astype(np.float64)[ids]
        return ids.astype(np.int32), weights * self.scaling * scale

    def _kept_groups(self, choice: Exact) -> NDArray[np.bool_]:
        grouped = np.sort(choice.reshape(len(choice), self.groups, -1), 2)
        totals = grouped[:, :, -2:].sum(2) if self.best_two else grouped[:, :, -1]
        kept = np.argsort(-totals, 1, kind="stable")[:, : self.kept]
        mask = np.zeros(totals.shape, np.bool_)
        np.put_along_axis(mask, kept, True, 1)
        return np.repeat(mask, choice.shape[1] // self.groups, 1)


def _scores(kind: str, logits: Exact) -> Exact:
    if kind == "softmax":
        powers = np.exp(logits - logits.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)
    if kind == "sigmoid":
        return 1 / (1 + np.exp(-logits))
    return np.sqrt(np.logaddexp(0, logits)) if kind == "sqrt-softplus" else logits


@pytest.fixture(scope="module")
def pools() -> tuple[Pool, ...]:
    cpus = sorted(os.sched_getaffinity(0))
    return (Pool(cpus[:1]), Pool([cpus[0], cpus[-1], cpus[0]]))


RNG = np.random.default_rng(2)
ROUTINGS = {
    "softmax": (128, Routing(8)),
    "softmax, not normalised": (64, Routing(8, normalised=False)),
    "softmax of the chosen": (32, Routing(4, "none", "softmax-of-chosen")),
    "sigmoid, corrected": (200, Routing(8, "sigmoid", correction=RNG.standard_normal(200, np.float32))),
    "groups by two": (
        256,
        Routing(
            8,
            "sigmoid",
            correction=RNG.random(256, np.float32),
            groups=8,
            kept=4,
            eps=1e-20,
            scaling=2.5,
        ),
    ),
    "groups by the best": (160, Routing(6, groups=8, kept=3, best_two=False, normalised=False, scaling=16.0)),
    "sqrt-softplus": (256, Routing(6, "sqrt-softplus", correction=RNG.random(256, np.float32), scaling=1.5)),
    "one of sixteen": (16, Routing(1, "sigmoid", normalised=False)),
    "all of three": (3, Routing(3)),
    "scaled experts": (37, Routing(5, expert_scale=RNG.random(37, np.float32))),
}


@together("name", ROUTINGS)
def test_routers_equal_exact_arithmetic(base_isa: str, name: str, pools: tuple[Pool, ...]) -> None:
    experts, routing = ROUTINGS[name]
    for rows in (1, 2, 33):
        logits = 3 * np.random.default_rng(rows).standard_normal((rows, experts), np.float32)
        ids, weights = routing.run(pools[rows % 2], logits)
        exact_ids, exact = routing.exact(logits)
        np.testing.assert_array_equal(ids, exact_ids)
        np.testing.assert_allclose(weights, exact, rtol=2e-6)


def test_the_lower_index_wins_between_equals(base_isa: str, pools: tuple[Pool, ...]) -> None:
    logits = np.zeros((2, 40), np.float32)
    logits[1, [7, 30, 31]] = 1
    ids, weights = Routing(4).run(pools[0], logits)
    np.testing.assert_array_equal(ids, [[0, 1, 2, 3], [0, 7, 30, 31]])
    np.testing.assert_array_equal(weights[0], 0.25)
    grouped = Routing(2, "sigmoid", groups=4, kept=1).run(pools[0], np.zeros((1, 8), np.float32))
    np.testing.assert_array_equal(grouped[0], [[0, 1]])


def test_logits_decide_where_scores_saturate(base_isa: str, pools: tuple[Pool, ...]) -> None:
    """Both have the sigmoid 1 in f32."""
    ids, weights = Routing(1, "sigmoid", normalised=False).run(pools[0], np.array([[30.0, 31.0, -4.0]], np.float32))
    assert ids.item() == 1
    assert weights.item() == 1


def test_large_logits_do_not_overflow(base_isa: str, pools: tuple[Pool, ...]) -> None:
    logits = np.array([[3e38, -3e38, 100.0, -np.inf], [-200.0, -201.0, -np.inf, -np.inf]], np.float32)
    ids, weights = Routing(2).run(pools[0], logits)
    np.testing.assert_array_equal(ids, [[0, 2], [0, 1]])
    np.testing.assert_allclose(weights[0], [1, 0], atol=1e-37)
    np.testing.assert_allclose(weights[1], [1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1))], rtol=2e-6)


@together("bad", [np.nan, np.inf])
@together("name", ROUTINGS)
def test_what_is_no_number_gives_experts_that_exist_and_no_weights(
    base_isa: str, name: str, bad: float, pools: tuple[Pool, ...]
) -> None:
    experts, routing = ROUTINGS[name]
    logits = np.random.default_rng(4).standard_normal((3, experts), np.float32)
    logits[0, -1] = bad
    logits[2] = bad
    ids, weights = routing.run(pools[0], logits)
    assert (np.diff(ids, axis=1) > 0).all()
    assert ids.min() >= 0
    assert ids.max() < experts
    assert np.isnan(weights[[0, 2]]).all()
    np.testing.assert_allclose(weights[1], routing.exact(logits[1:2])[1][0], rtol=2e-6)


def test_routers_that_cannot_choose_are_refused(pools: tuple[Pool, ...]) -> None:
    logits = np.zeros((1, 12), np.float32)
    for routing, message in (
        (Routing(13), "1 to all"),
        (Routing(2, groups=5, kept=1), "divide"),
        (Routing(2, groups=4, kept=5), "must be kept"),
        (Routing(4, groups=4, kept=1), "fewer experts"),
        (Routing(1, groups=12, kept=2), "best two"),
        (Routing(2, correction=np.zeros(11, np.float32)), "correction"),
    ):
        with pytest.raises(ValueError, match=message):
            routing.run(pools[0], logits)
