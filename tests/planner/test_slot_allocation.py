"""Slots by layer, against every division there is."""

from itertools import product
from random import Random

from together import together

from helmsman.planner.strategies.expert_split.slot_allocation import allocate


def best(curves: list[list[float]], steps: int) -> float:
    """Return the least seconds of all divisions of so many steps."""
    sizes = product(*(range(len(curve)) for curve in curves))
    return min(
        sum(min(curve[: have + 1]) for curve, have in zip(curves, given, strict=True))
        for given in sizes
        if sum(given) <= steps
    )


@together("seed", range(40))
def test_as_fast_as_the_best_division(seed: int) -> None:
    random = Random(seed)
    curves = []
    for _ in range(random.randint(2, 4)):
        scale, saved = random.uniform(1.0, 5.0), 0.0
        curve = [scale]
        for point in range(1, 6):
            saved += random.uniform(0.0, 1.0) * scale / (point + 1)
            curve.append(scale + random.uniform(0.0, 0.02) - saved * 0.4)
        curves.append(curve)
    steps = random.randint(1, 5 * len(curves))
    given = allocate(curves, steps)
    assert sum(given) <= steps
    taken = sum(min(curve[: have + 1]) for curve, have in zip(curves, given, strict=True))
    assert taken <= best(curves, steps) * 1.01


def test_a_layer_that_needs_all_of_its_slots_gets_them() -> None:
    steep = [10.0, 10.0, 10.0, 1.0]
    assert allocate([steep, [2.0, 1.5, 1.2, 1.0]], 3) == (3, 0)
    assert allocate([steep, [2.0, 1.5, 1.2, 1.0]], 2) == (0, 2)


def test_slots_that_save_nothing_are_left() -> None:
    assert allocate([[1.0, 1.0, 2.0]], 2) == (0,)
