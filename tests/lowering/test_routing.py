"""Distinct experts and hits of slots, against routers that are drawn."""

from collections.abc import Iterator
from functools import lru_cache
from math import log
from random import Random
from statistics import mean

import pytest
from expert_question import skewed

from helmsman.hwdb.load_model import load_model
from helmsman.lowering.routing import cold_hits, distinct_experts, experts_of, hits, part_shares, pinned_experts
from helmsman.scheduler.expert_cache import ExpertCache
from helmsman.schemas.blocks.feed_forward import Experts
from helmsman.schemas.routing import HitCurve, LayerRouting, RoutingCurve

EXPERTS, CHOSEN = 16, 4


@pytest.fixture(scope="module")
def experts() -> Experts:
    real = experts_of(load_model("Qwen3-30B-A3B"), 0)
    assert real is not None
    return real.model_copy(update={"experts": EXPERTS, "chosen": CHOSEN})


def drawn(power: float, seed: int) -> Iterator[list[int]]:
    """Yield what tokens choose: the highest of logits with noise, without replacement, as routers do."""
    random = Random(seed)
    while True:
        scores = [-power * log(e + 1) - log(-log(max(random.random(), 1e-300))) for e in range(EXPERTS)]
        yield sorted(range(EXPERTS), key=lambda expert: -scores[expert])[:CHOSEN]


def passes(power: float, tokens: int, count: int, seed: int = 1) -> list[set[int]]:
    source = drawn(power, seed)
    return [{expert for _ in range(tokens) for expert in next(source)} for _ in range(count)]


@lru_cache(maxsize=1)
def marginals(power: float, count: int = 6000) -> tuple[float, ...]:
    source, seen = drawn(power, 2), [0] * EXPERTS
    for _ in range(count):
        for expert in next(source):
            seen[expert] += 1
    return tuple(many / count for many in seen)


@pytest.mark.parametrize("tokens", [1, 3, 12])
def test_uniform_choices(experts: Experts, tokens: int) -> None:
    drawn_mean = mean(len(chosen) for chosen in passes(0.0, tokens, 800))
    assert distinct_experts(experts, tokens) == pytest.approx(drawn_mean, rel=0.02)


def test_the_sum_over_probabilities_holds_for_choices_without_replacement(experts: Experts) -> None:
    routing = LayerRouting(layer=0, popularity=marginals(1.2))
    for tokens in (2, 8):
        drawn_mean = mean(len(chosen) for chosen in passes(1.2, tokens, 800))
        assert distinct_experts(experts, tokens, routing) == pytest.approx(drawn_mean, rel=0.02)


@pytest.mark.parametrize(("tokens", "slots"), [(1, 4), (1, 8), (4, 10)])
def test_hits_of_slots_by_popularity(experts: Experts, tokens: int, slots: int) -> None:
    routing = LayerRouting(layer=0, popularity=marginals(1.2))
    runs = passes(1.2, tokens, 1200, seed=3)
    for eviction in ("least-recent", "popularity"):
        pinned = ExpertCache.of_popular(pinned_experts(experts, slots, routing))
        cache = ExpertCache(slots) if eviction == "least-recent" else pinned
        used = [cache.use(chosen) for chosen in runs][100:]
        share = sum(len(one.hits) for one in used) / sum(len(one.hits) + len(one.misses) for one in used)
        assert hits(experts, slots, eviction, tokens, routing).experts == pytest.approx(share, abs=0.025)


def test_cold_slots_hit_less_until_they_are_full(experts: Experts) -> None:
    source = drawn(0.0, 4)
    shares = []
    for _ in range(300):
        cache = ExpertCache(8)
        used = [cache.use(next(source)) for _ in range(4)]
        shares.append(sum(len(one.hits) for one in used) / (4 * CHOSEN))
    assert cold_hits(experts, 8, 1, 4) == pytest.approx(mean(shares), abs=0.02)
    assert cold_hits(experts, 8, 1, 4) < hits(experts, 8, "least-recent", 1).experts == 0.5


def test_curves_come_before_popularity_and_are_bounded(experts: Experts) -> None:
    curve = RoutingCurve(at=(2, 8), mid=(6.0, 12.0))
    warm = HitCurve(eviction="least-recent", warm=RoutingCurve(at=(8,), mid=(0.9,)))
    eight = HitCurve(eviction="least-recent", tokens=8, warm=RoutingCurve(at=(8,), mid=(0.6,)))
    routing = LayerRouting(layer=0, popularity=skewed(EXPERTS, CHOSEN, 0.5), distinct=curve, hits=(warm, eight))
    found = [distinct_experts(experts, tokens, routing) for tokens in (1, 2, 4, 8, 9, 10_000)]
    assert found[:4] == pytest.approx([4.0, 6.0, 9.0, 12.0])
    assert 12.0 < found[4] < found[5] <= EXPERTS
    assert hits(experts, 8, "least-recent", 1, routing).experts == pytest.approx(0.9)
    assert hits(experts, 4, "least-recent", 1, routing).experts == pytest.approx(0.45)
    assert hits(experts, 12, "least-recent", 1, routing).experts == pytest.approx(0.95)
    between = hits(experts, 8, "least-recent", 2, routing).experts
    assert between == pytest.approx(0.8)


def test_parts_by_number_have_their_popularity(experts: Experts) -> None:
    routing = LayerRouting(layer=0, popularity=skewed(EXPERTS, CHOSEN, 1.0))
    first, second = (part_shares(experts, start, start + 8, 2, routing) for start in (0, 8))
    assert first.experts + second.experts == pytest.approx(1.0) and first.choices > first.experts > 0.5
    assert part_shares(experts, 0, 8, 2) == (0.5, 0.5)
    assert pinned_experts(experts, 3) == (0, 1, 2)
