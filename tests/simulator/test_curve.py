import random

import numpy as np
import pytest
from seeds import seeds
from together import together

from helmsman.simulator.curve import EXACT_STEPS, StepCurve, chosen_steps


def test_few_steps_are_all_simulated() -> None:
    assert chosen_steps(0, 10) == ()
    assert chosen_steps(1, 10) == (1,)
    assert chosen_steps(EXACT_STEPS, 10) == tuple(range(1, EXACT_STEPS + 1))


@pytest.mark.parametrize(("steps", "past"), [(65, 1), (1000, 128), (1000, 100_000), (10**6, 1)])
def test_many_steps_are_sampled_from_first_to_last(steps: int, past: int) -> None:
    chosen = chosen_steps(steps, past)
    assert chosen[0] == 1 and chosen[-1] == steps and len(chosen) <= 33
    assert list(chosen) == sorted(set(chosen))


@together("seed", seeds(range(60), 15))
def test_sums_and_quantiles_equal_those_of_every_step(seed: int) -> None:
    rng = random.Random(seed)
    last = rng.randint(1, 400)
    steps = tuple(sorted({1, last, *(rng.randint(1, last) for _ in range(rng.randint(0, 9)))}))
    values = tuple(rng.choice([1.0, rng.uniform(0, 5)]) for _ in steps)
    curve = StepCurve(steps, values)
    every = np.interp(np.arange(1, last + 1), steps, values)
    assert curve.total() == pytest.approx(every.sum(), rel=1e-12)
    for q in (0.0, 0.1, 0.5, 0.9, 0.99, 1.0):
        assert curve.quantile(q) == pytest.approx(np.quantile(every, q), rel=1e-9)
