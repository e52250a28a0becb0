"""Curves of recorded routing: stack distances against simulated slots for every number of them, and bad traces."""

from pathlib import Path
from random import Random

import pytest

from helmsman.analysis.routing_fit import NamedTrace, fit_routing
from helmsman.analysis.stack_distances import hit_shares, pass_hits
from helmsman.cli import fit_routing as command
from helmsman.scheduler.expert_cache import ExpertCache
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.read import read_document
from helmsman.schemas.routing import Routing
from helmsman.schemas.routing_trace import RoutedLayer, RoutingTrace, RoutingTraceInfo, TokenChoice, write_routing_trace

EXPERTS, CHOSEN = 12, 3


@pytest.mark.parametrize("seed", range(3))
def test_stack_distances_are_a_simulated_cache_for_every_number_of_slots(seed: int) -> None:
    random = Random(seed)
    passes = [random.sample(range(EXPERTS), random.randint(1, 9)) for _ in range(150)]
    counted = pass_hits(passes, EXPERTS)
    for slots in range(1, EXPERTS + 1):
        cache = ExpertCache(slots)
        assert [one.by_slots[slots - 1] for one in counted] == [len(cache.use(chosen).hits) for chosen in passes]
    assert hit_shares(counted[1:], [EXPERTS])[0] > 0.9


def trace(seed: int, tokens: int = 400, model: str = "m", layers: int = 1) -> RoutingTrace:
    random, choices = Random(seed), list[TokenChoice]()
    near = [random.randrange(EXPERTS) for _ in range(layers)]
    for token in range(tokens):
        for layer in range(layers):
            near[layer] = random.randrange(EXPERTS) if random.random() < 0.1 else near[layer]
            chosen = tuple((near[layer] + step) % EXPERTS for step in random.sample(range(5), CHOSEN))
            choices.append(TokenChoice(token, layer, 0, token, chosen))
    routed = tuple(RoutedLayer(layer=layer, experts=EXPERTS, chosen=CHOSEN) for layer in range(layers))
    return RoutingTrace(RoutingTraceInfo(model=model, model_sha256=f"{len(model):064x}", layers=routed), choices)


def test_curves_are_what_a_cache_of_the_trace_hits() -> None:
    one = trace(1)
    layer = fit_routing([NamedTrace("a", one)]).layers[0]
    curve = next(curve for curve in layer.hits if curve.tokens == 1 and curve.eviction == "least-recent")
    cache, place = ExpertCache(6), curve.warm.at.index(6)
    counts = [len(cache.use(choice.experts).hits) for choice in one.choices]
    assert curve.warm.mid[place] == pytest.approx(sum(counts[32:]) / (CHOSEN * len(counts[32:])), abs=1e-4)
    assert curve.cold is not None
    assert curve.cold.mid[place] == pytest.approx(sum(counts[:32]) / (CHOSEN * 32), abs=1e-4)
    assert curve.warm.mid[place] > 0.5 + 0.2, "the trace is local"
    assert sum(layer.popularity or ()) == pytest.approx(CHOSEN)
    assert layer.distinct is not None and layer.distinct.at[0] == 2 and layer.distinct.low is None


def test_the_spread_is_that_between_traces() -> None:
    routing = fit_routing([NamedTrace(str(seed), trace(seed)) for seed in range(3)])
    curve = routing.layers[0].hits[0].warm
    assert routing.traces == 3 and curve.low is not None and curve.high is not None
    assert any(low < mid < high for low, mid, high in zip(curve.low, curve.mid, curve.high, strict=True))
    assert Routing.model_validate_json(routing.to_json()) == routing


def test_traces_of_several_models_are_refused() -> None:
    with pytest.raises(BadInputError, match="b: model: a trace of another model"):
        fit_routing([NamedTrace("a", trace(1)), NamedTrace("b", trace(1, model="other"))])
    with pytest.raises(BadInputError, match="no trace"):
        fit_routing([])


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, seed in (("a", 1), ("b", 2)):
        with (tmp_path / name).open("wb") as stream:
            write_routing_trace(trace(seed, layers=2), stream)
    out = tmp_path / "routing.json"
    assert command.main([str(tmp_path / "a"), str(tmp_path / "b"), "-o", str(out)]) == 0
    assert "2 layers, 2 traces" in capsys.readouterr().out
    assert len(read_document(Routing, out).layers) == 2
    assert command.main([str(tmp_path / "c")]) == 5
    assert command.main([str(out)]) == 5
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and "no such file" in lines[0] and "Parquet" in lines[1]
