"""Counts the distinct experts that the tokens of a pass choose, and how many of these are in slots.

Uniform: every token chooses each expert with probability chosen / experts, so T tokens hit E (1 - (1 - k/E)^T), which
is exact whatever groups the router has. Popularity p: the sum of 1 - (1 - p_e)^T, as if a token chose every expert by
itself; a router chooses without replacement, which only correlates its choices and leaves the sum exact for tokens that
are independent. Slots for the least recent hold expert e with probability 1 - (1 - q_e)^t, q_e = 1 - (1 - p_e)^T being
that of a pass, where t makes these add up to the slots (Che's approximation). Curves are what was measured."""

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from math import log2
from typing import NamedTuple

from helmsman.schemas.blocks.feed_forward import Experts
from helmsman.schemas.model import Model
from helmsman.schemas.routing import Eviction, HitCurve, LayerRouting, RoutingCurve

_CHE_STEPS = 60
"""Halvings of the interval of Che's time: to a part in 10^18 of it."""

_LONGEST_TIME = 1e9
"""Passes after which a slot is taken as reached by every expert that is ever chosen."""


def has_experts(model: Model) -> bool:
    """Return whether any block has routed experts."""
    return any(isinstance(body.op, Experts) for layout in model.layouts for body in layout.bodies)


def experts_of(model: Model, layer: int) -> Experts | None:
    """Return the routed experts of a block; None where it has none."""
    bodies = (body.op for body in model.blocks[layer].bodies)
    return next((op for op in bodies if isinstance(op, Experts)), None)


def distinct_experts(experts: Experts, tokens: int, routing: LayerRouting | None = None) -> float:
    """Return the expected number of distinct experts that `tokens` choose; without `routing` uniformly."""
    if routing is not None and routing.distinct is not None:
        return _distinct_by_curve(experts, tokens, routing.distinct)
    if routing is not None and routing.popularity is not None:
        return sum(1.0 - (1.0 - chance) ** tokens for chance in routing.popularity)
    return experts.experts * (1.0 - (1.0 - experts.chosen / experts.experts) ** tokens)


def _distinct_by_curve(experts: Experts, tokens: int, curve: RoutingCurve) -> float:
    """Return what a curve says, between its points by the logarithm of tokens; beyond the last, what is left is hit as
    by a uniform choice, so that neither more experts than there are nor fewer than before are hit."""
    chosen, most = float(experts.chosen), float(min(experts.experts, tokens * experts.chosen))
    at, values = (1, *curve.at), (chosen, *curve.mid)
    if tokens >= at[-1]:
        left = (experts.experts - values[-1]) * (1.0 - chosen / experts.experts) ** (tokens - at[-1])
        return min(most, experts.experts - left)
    place = bisect_right(at, tokens)
    part = log2(tokens / at[place - 1]) / log2(at[place] / at[place - 1])
    return min(most, values[place - 1] + part * (values[place] - values[place - 1]))


class Hits(NamedTuple):
    """The share of a pass's distinct experts that are in slots, and of its choices (token and expert) that are."""

    experts: float
    choices: float


def hits(experts: Experts, slots: int, eviction: Eviction, tokens: int, routing: LayerRouting | None = None) -> Hits:
    """Return what is in `slots` slots when a pass of `tokens` tokens begins, after many such passes."""
    if slots >= experts.experts:
        return Hits(1.0, 1.0)
    curves = () if routing is None else [curve for curve in routing.hits if curve.eviction == eviction]
    if curves:
        share = _between(curves, slots, experts.experts, tokens)
        return Hits(share, share)
    if routing is not None and routing.popularity is not None:
        return _by_popularity(routing.popularity, slots, eviction, tokens)
    return Hits(slots / experts.experts, slots / experts.experts)


def pinned_experts(experts: Experts, slots: int, routing: LayerRouting | None = None) -> tuple[int, ...]:
    """Return the experts that slots for the most popular hold, ascending; of equals, and without popularity, the
    first."""
    popularity = (0.0,) * experts.experts if routing is None or routing.popularity is None else routing.popularity
    return tuple(sorted(sorted(range(experts.experts), key=lambda expert: (-popularity[expert], expert))[:slots]))


def part_shares(experts: Experts, start: int, stop: int, tokens: int, routing: LayerRouting | None = None) -> Hits:
    """Return the share of a pass's distinct experts, and of its choices, that are of experts start <= e < stop."""
    if routing is None or routing.popularity is None:
        return Hits((stop - start) / experts.experts, (stop - start) / experts.experts)
    used = [1.0 - (1.0 - chance) ** tokens for chance in routing.popularity]
    return Hits(sum(used[start:stop]) / sum(used), sum(routing.popularity[start:stop]) / sum(routing.popularity))


def _by_popularity(popularity: Sequence[float], slots: int, eviction: Eviction, tokens: int) -> Hits:
    used = tuple([1.0 - (1.0 - chance) ** tokens for chance in popularity])
    if eviction == "popularity":
        kept = set(sorted(range(len(popularity)), key=lambda expert: (-popularity[expert], expert))[:slots])
        there = [1.0 if expert in kept else 0.0 for expert in range(len(popularity))]
    else:
        time = _che_time(used, slots)
        there = [1.0 - (1.0 - chance) ** time for chance in used]
    by_expert = sum(chance * share for chance, share in zip(used, there, strict=True)) / sum(used)
    by_choice = sum(chance * share for chance, share in zip(popularity, there, strict=True)) / sum(popularity)
    return Hits(min(1.0, by_expert), min(1.0, by_choice))


def cold_hits(experts: Experts, slots: int, tokens: int, passes: int, routing: LayerRouting | None = None) -> float:
    """Return the mean share of distinct experts that are in slots for the least recent over the first `passes` passes
    after the slots were empty."""
    uniform = (experts.chosen / experts.experts,) * experts.experts
    popularity = uniform if routing is None or routing.popularity is None else routing.popularity
    used = tuple([1.0 - (1.0 - chance) ** tokens for chance in popularity])
    time, total = _che_time(used, slots), 0.0
    for number in range(passes):
        before = min(float(number), time)
        total += sum(chance * (1.0 - (1.0 - chance) ** before) for chance in used) / sum(used)
    return min(1.0, total / passes)


@lru_cache(maxsize=1024)
def _che_time(used: tuple[float, ...], slots: int) -> float:
    """Return the passes after which as many experts as there are slots are expected to have been used."""
    low, high = 0.0, _LONGEST_TIME
    for _ in range(_CHE_STEPS):
        middle = (low + high) / 2
        full = sum(1.0 - (1.0 - chance) ** middle for chance in used) < slots
        low, high = (middle, high) if full else (low, middle)
    return high


def _between(curves: Sequence[HitCurve], slots: int, experts: int, tokens: int) -> float:
    """Return the hits of the curves of most tokens that are no more, and of fewest that are more, weighed by the
    logarithm of tokens."""
    ordered = sorted(curves, key=lambda curve: curve.tokens)
    place = bisect_right([curve.tokens for curve in ordered], tokens)
    if place in (0, len(ordered)):
        return _at(ordered[min(place, len(ordered) - 1)].warm, slots, experts)
    before, after = ordered[place - 1], ordered[place]
    part = log2(tokens / before.tokens) / log2(after.tokens / before.tokens)
    first, second = (_at(curve.warm, slots, experts) for curve in (before, after))
    return first + part * (second - first)


def _at(curve: RoutingCurve, slots: int, experts: int) -> float:
    """Return a curve of hits at so many slots: none of no slots, all where every expert has one, straight between."""
    at, values = [0, *curve.at], [0.0, *curve.mid]
    if at[-1] < experts:
        at, values = [*at, experts], [*values, 1.0]
    place = min(bisect_right(at, slots), len(at) - 1)
    part = (slots - at[place - 1]) / (at[place] - at[place - 1])
    return values[place - 1] + part * (values[place] - values[place - 1])
