"""What passes take corrects what they were believed to take, term by term."""

from random import Random

import pytest
from hybrid_cases import random_cost

from helmsman.scheduler import _scheduling
from helmsman.scheduler.cost import IterationCost
from helmsman.scheduler.pass_work import PassWork

TRUE = 1.4, 0.6, 2.5, 0.8
"""Linear stages, attention on the accelerator and on the host, the link."""


def _pipelined(chance: Random) -> tuple[PassWork, PassWork]:
    count, others = chance.randint(1, 80), chance.randint(1, 60)
    first = PassWork(
        tokens=count,
        outputs=count,
        gpu_requests=count,
        gpu_kv=count * chance.randint(100, 5000),
        swap_out=chance.randint(0, 900),
    )
    return first, PassWork(tokens=others, outputs=others, cpu_requests=others, cpu_kv=others * chance.randint(50, 900))


def _measured(cost: IterationCost, first: PassWork, second: PassWork) -> tuple[float, float, float, float]:
    return _scheduling.pass_times(cost, "pipelined", first, second, [])


def test_factors_are_found_from_passes_that_mix_them() -> None:
    chance = Random(3)
    believed = random_cost(chance)
    works = [_pipelined(chance) for _ in range(300)]
    passes = [("pipelined", *work, _measured(believed.scaled(*TRUE), *work)) for work in works]
    assert _scheduling.corrections(believed, passes) == pytest.approx(TRUE, rel=0.05)


def test_what_never_happened_is_believed() -> None:
    believed = random_cost(Random(4))
    decodes = PassWork(tokens=9, outputs=9, gpu_kv=900)
    passes = [("gpu-only", decodes, PassWork(), _scheduling.pass_times(believed, "gpu-only", decodes, PassWork(), []))]
    assert _scheduling.corrections(believed, passes * 20) == pytest.approx((1, 1, 1, 1))


def test_equal_passes_are_told_apart_no_further_than_their_sum() -> None:
    """One pass over and over: both factors move, so that the pass takes what it takes."""
    believed, decodes = random_cost(Random(5)), PassWork(tokens=20, outputs=20, gpu_kv=20_000)
    seconds, gpu, cpu, link = _scheduling.pass_times(believed, "gpu-only", decodes, PassWork(), [])
    passes = [("gpu-only", decodes, PassWork(), (2 * seconds, 2 * gpu, cpu, link))] * 200
    linear, attention, *_ = _scheduling.corrections(believed, passes)
    corrected = believed.scaled(linear=linear, gpu_attention=attention)
    assert _scheduling.pass_times(corrected, "gpu-only", decodes, PassWork(), [])[1] == pytest.approx(2 * gpu, rel=0.02)


def test_the_past_is_forgotten() -> None:
    believed, decodes = random_cost(Random(6)), PassWork(tokens=5, outputs=5, cpu_requests=5, cpu_kv=500)

    def passes(factor: float) -> list[tuple[str, PassWork, PassWork, tuple[float, float, float, float]]]:
        took = _scheduling.pass_times(believed.scaled(cpu_attention=factor), "simple", decodes, PassWork(), [])
        return [("simple", decodes, PassWork(), took)] * 200

    assert _scheduling.corrections(believed, passes(3) + passes(1))[2] == pytest.approx(1, rel=0.05)
