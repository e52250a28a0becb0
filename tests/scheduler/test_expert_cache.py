"""Slots for experts: what stays, what leaves, and that more slots hold what fewer hold."""

from itertools import pairwise
from random import Random

import pytest

from helmsman.scheduler.expert_cache import CachePass, ExpertCache


def test_the_experts_of_a_pass_are_the_most_recent_in_ascending_order() -> None:
    cache = ExpertCache(3)
    assert cache.use([2, 1]) == CachePass((), (1, 2), (1, 2), ())
    assert cache.use([2, 5]) == CachePass((2,), (5,), (5,), ())
    assert cache.use([1, 7, 9, 0]) == CachePass((1,), (0, 7, 9), (7, 9), (2, 5))
    assert cache.experts == [1, 7, 9]


def test_pinned_experts_stay() -> None:
    cache = ExpertCache.of_popular([5, 2])
    assert cache.use([1, 2]) == CachePass((2,), (1,), (), ())
    assert cache.experts == [2, 5]


@pytest.mark.parametrize("seed", range(3))
def test_more_slots_hold_all_that_fewer_hold(seed: int) -> None:
    random, caches = Random(seed), [ExpertCache(slots) for slots in range(1, 13)]
    for _ in range(200):
        chosen = random.sample(range(12), random.randint(1, 8))
        hits = [set(cache.use(chosen).hits) for cache in caches]
        assert all(few <= many for few, many in pairwise(hits))
        for cache in caches:
            cache.check()
