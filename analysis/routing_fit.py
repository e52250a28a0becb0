"""Fits a routing to recorded traces: popularity, distinct experts by tokens, and hits by slots, cold and warm, with the
spread between traces.

Tokens of a trace are taken in order, sequence after sequence: a pass of T tokens is T of them that follow each other.
The experts that stay by popularity are those of the other traces, where there are any: what is popular in one text need
not be in another."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from helmsman.analysis.stack_distances import hit_shares, pass_hits
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.routing import HitCurve, LayerRouting, Routing, RoutingCurve
from helmsman.schemas.routing_trace import RoutedLayer, RoutingTrace

COLD_PASSES = 32
"""First passes whose mean is the cold curve: a short answer, in which slots fill."""

HIT_TOKENS = (1, 8, 64)
"""Tokens of passes whose hits are counted: one sequence, a batch or a draft, and many."""

MAX_TOKENS = 512
"""Tokens of passes up to which distinct experts are counted."""

LEAST_PASSES = 2
"""Passes of as many tokens that a trace must have for them to be counted."""

_POINTS = 32
"""Numbers of slots at which hits are kept; between them curves are straight."""

_DIGITS = 5
"""Decimals of what is kept: far below the spread between texts."""

Tokens = list[tuple[int, ...]]
"""The experts that tokens chose in a layer, sequence after sequence."""


@dataclass(frozen=True)
class NamedTrace:
    """A trace and the file that it comes from."""

    file: str
    trace: RoutingTrace


def fit_routing(traces: Sequence[NamedTrace]) -> Routing:
    """Return the routing of traces of one model. Raises BadInputError for traces of several models, and none at all."""
    if not traces:
        raise BadInputError("no trace", field="traces", remedy="name a file written by --routing-trace")
    first = traces[0].trace.info
    for other in traces[1:]:
        _check_alike(traces[0], other)
    layers = tuple(
        _layer(layer, [list(_tokens(named.trace, layer.layer)) for named in traces]) for layer in first.layers
    )
    return Routing(
        model=first.model,
        model_sha256=first.model_sha256,
        layers=layers,
        traces=len(traces),
        cold_passes=COLD_PASSES,
    )


def _check_alike(first: NamedTrace, other: NamedTrace) -> None:
    one, two = first.trace.info, other.trace.info
    if one.model_sha256 != two.model_sha256 or one.layers != two.layers:
        remedy = f"fit it by itself: {first.file} is of {one.model}"
        raise BadInputError("a trace of another model", file=other.file, field="model", value=two.model, remedy=remedy)


def _tokens(trace: RoutingTrace, layer: int) -> Iterator[tuple[int, ...]]:
    """Yield the experts of every token of a layer, sequence after sequence."""
    of_sequence: dict[int, Tokens] = {}
    for choice in trace.choices:
        if choice.layer == layer:
            of_sequence.setdefault(choice.sequence, []).append(choice.experts)
    for tokens in of_sequence.values():
        yield from tokens


def _layer(layer: RoutedLayer, traces: Sequence[Tokens]) -> LayerRouting:
    counts = [Counter(expert for experts in tokens for expert in experts) for tokens in traces]
    return LayerRouting(
        layer=layer.layer,
        popularity=_popularity(layer, counts, traces),
        distinct=_distinct(traces),
        hits=tuple(_hits(layer, traces, counts)),
    )


def _popularity(layer: RoutedLayer, counts: Sequence[Counter[int]], traces: Sequence[Tokens]) -> tuple[float, ...]:
    """Return the mean over traces of the share of tokens that choose an expert."""
    shares = [
        [count[expert] / len(tokens) for expert in range(layer.experts)]
        for count, tokens in zip(counts, traces, strict=True)
    ]
    return tuple(sum(column) / len(shares) for column in zip(*shares, strict=True))


def _distinct(traces: Sequence[Tokens]) -> RoutingCurve | None:
    """Return how many experts passes of 2, 4, ... tokens choose, as far as all traces have several such passes."""
    shortest = min(len(tokens) for tokens in traces)
    at = [1 << power for power in range(1, MAX_TOKENS.bit_length()) if LEAST_PASSES << power <= shortest]
    if not at:
        return None
    return _curve(at, [[_mean(len(chosen) for chosen in _passes(tokens, many)) for many in at] for tokens in traces])


def _passes(tokens: Tokens, many: int) -> Iterator[set[int]]:
    """Yield the distinct experts of passes of so many tokens; what is left at the end is none."""
    for start in range(0, len(tokens) - many + 1, many):
        yield {expert for experts in tokens[start : start + many] for expert in experts}


def _hits(layer: RoutedLayer, traces: Sequence[Tokens], counts: Sequence[Counter[int]]) -> Iterator[HitCurve]:
    slots = sorted({max(1, round(layer.experts * part / _POINTS)) for part in range(1, _POINTS + 1)})
    shortest = min(len(tokens) for tokens in traces)
    for many in HIT_TOKENS:
        if many > 1 and LEAST_PASSES * many > shortest:
            break
        passes = [list(_passes(tokens, many)) for tokens in traces]
        outcomes = [pass_hits(of_trace, layer.experts) for of_trace in passes]
        cold = [hit_shares(of_trace[:COLD_PASSES], slots) for of_trace in outcomes]
        warm = [hit_shares(of_trace[_warm_from(len(of_trace)) :], slots) for of_trace in outcomes]
        yield HitCurve(eviction="least-recent", tokens=many, warm=_curve(slots, warm), cold=_curve(slots, cold))
        kept = [_pinned(layer, counts, place) for place in range(len(traces))]
        stay = [_pinned_shares(of_trace, ranked, slots) for of_trace, ranked in zip(passes, kept, strict=True)]
        yield HitCurve(eviction="popularity", tokens=many, warm=_curve(slots, stay))


def _warm_from(passes: int) -> int:
    """Return the pass from which on slots count as warm: after the cold ones, and in short traces after the first
    half."""
    return min(COLD_PASSES, passes // 2)


def _pinned(layer: RoutedLayer, counts: Sequence[Counter[int]], place: int) -> list[int]:
    """Return the experts that stay for the trace at a place, most popular first: by the other traces, if any."""
    others = [count for number, count in enumerate(counts) if number != place] or counts
    total = sum(others, Counter[int]())
    return sorted(range(layer.experts), key=lambda expert: (-total[expert], expert))


def _pinned_shares(passes: Sequence[set[int]], ranked: Sequence[int], slots: Sequence[int]) -> list[float]:
    wanted = Counter(expert for chosen in passes for expert in chosen)
    total, running, sums = sum(wanted.values()), 0, [0]
    for expert in ranked:
        running += wanted[expert]
        sums.append(running)
    return [sums[count] / total for count in slots]


def _curve(at: Sequence[int], traces: Sequence[Sequence[float]]) -> RoutingCurve:
    """Return the medians over traces, and the ends of their spread where there are several."""
    columns = [[round(value, _DIGITS) for value in column] for column in zip(*traces, strict=True)]
    spread = {} if len(traces) < 2 else {"low": tuple(map(min, columns)), "high": tuple(map(max, columns))}
    return RoutingCurve(at=tuple(at), mid=tuple(round(median(column), _DIGITS) for column in columns), **spread)


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
