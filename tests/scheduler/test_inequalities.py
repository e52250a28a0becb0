"""APEX's inequalities: the same in both forms, and the tables of E-APEX-02 and E-APEX-03."""

from math import sqrt
from random import Random

import pytest

from helmsman.scheduler import _scheduling


def _most(attention: float) -> float:
    """The largest N_G / N_C at which two sub-batches pay, with T_l 1: by bisection on inequality (5)."""
    low, high = 0.0, 100.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if _scheduling.pipelining_pays(1.0, attention, middle, 1.0) else (low, middle)
    return low


def test_both_forms_agree() -> None:
    chance = Random(5)
    for _ in range(5000):
        linear, attention, gpu, cpu = (10 ** chance.uniform(-3, 3) for _ in range(4))
        bound = 2 * linear / attention + 3 + attention / linear
        if abs(gpu / cpu / bound - 1) > 1e-9:
            point = linear, attention, gpu, cpu
            assert _scheduling.pipelining_pays(*point) == _scheduling.below_ratio(*point) == (gpu / cpu < bound)


@pytest.mark.parametrize(("attention", "most"), [(0.5, 7.5), (1.0, 6.0), (1.5, 5.8333333), (sqrt(2), 3 + 2 * sqrt(2))])
def test_most_that_the_accelerator_may_be_faster(attention: float, most: float) -> None:
    assert _most(attention) == pytest.approx(most, abs=1e-6)


def test_the_rule_that_always_holds_is_the_minimum_of_the_bound() -> None:
    assert min(_most(0.5 + step / 100) for step in range(101)) == pytest.approx(3 + 2 * sqrt(2), abs=1e-3)


@pytest.mark.parametrize(
    ("prompt_linear", "ratio", "printed"), [(2.0, 10.0, False), (4.0, 20.0, False), (8.0, 6.0, True)]
)
def test_mixed_passes_as_printed_and_as_consistent(prompt_linear: float, ratio: float, printed: bool) -> None:
    """T_g is 0.7 T_l, 0.9 T_l with prompts. As printed, the time of decodes alone divides work of all: no where yes is
    right, and yes to anything once prompts are long."""
    stages = 1.0, 0.7, ratio, 1.0, prompt_linear, 0.9
    assert _scheduling.mixed_pays(*stages, printed=False)
    assert _scheduling.mixed_pays(*stages, printed=True) == printed


def test_mixed_passes_without_prompts_are_those_of_decodes() -> None:
    chance = Random(6)
    for _ in range(500):
        linear, attention, gpu = (10 ** chance.uniform(-2, 2) for _ in range(3))
        point = linear, attention, gpu, 1.0
        for printed in (False, True):
            assert _scheduling.mixed_pays(*point, linear, attention, printed) == _scheduling.pipelining_pays(*point)
