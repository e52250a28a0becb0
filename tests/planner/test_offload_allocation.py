"""FlexGen's and HeLM's allocators: what the paper prints, and the listings written out by hand."""

import random
from itertools import accumulate

import pytest
from seeds import seeds
from together import together

from helmsman.hwdb.load_model import load_model
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import parameters, tensors
from helmsman.planner.strategies.layerwise_map import PRINTED, LayerwiseMap, outcomes
from helmsman.planner.strategies.offload.allocation import Percentages, by_position, by_size
from helmsman.planner.strategies.offload.sublayers import achieved, sublayers
from helmsman.planner.strategies.percentages import FlexGenPercentages
from helmsman.planner.strategies.weights_on_host import WeightsOnHost
from helmsman.schemas.errors import UsageError
from helmsman.schemas.model import Model

ASKED = Percentages(0, 80, 20)
MODELS = ("opt-175b", "opt-30b", "Qwen3-8B", "Llama-2-7b-hf", "Qwen2.5-0.5B")


def printed(model: Model) -> LayerwiseMap:
    return LayerwiseMap(PRINTED["attention"], PRINTED["ffn"], ASKED)


def test_what_was_asked_for_is_not_what_is_achieved():
    """GUPTA-17, E-GUPTA-01: (0, 91.71, 8.29) with embeddings."""
    model = load_model("opt-175b")
    found = achieved(model, FlexGenPercentages(ASKED).tiers(model))
    assert found["host"] == pytest.approx(91.71, abs=0.01)
    assert found["accelerator"] == pytest.approx(8.29, abs=0.01)
    assert found["storage"] == 0.0


def test_attention_gets_room_on_the_accelerator_and_the_ffn_none():
    """GUPTA-18: a quarter of attention's weights, of the FFN's nothing but vectors."""
    tiers = FlexGenPercentages(ASKED).tiers(load_model("opt-175b"))
    by_kind = {layer.kind: layer for layer in sublayers(load_model("opt-175b"))}
    there = {
        kind: {t.name for t, tier in zip(by_kind[kind].tensors, tiers[kind], strict=True) if tier == "accelerator"}
        for kind in ("attention", "ffn")
    }
    assert {name for name in there["attention"] if name.endswith("weight")} == {"o.weight", "norm1.weight"}
    assert {name for name in there["ffn"] if name.endswith("weight")} == {"norm2.weight"}


def test_helm_keeps_the_first_ffn_matrix_and_all_vectors():
    """GUPTA-26, 27: a third of all weights."""
    model = load_model("opt-175b")
    tiers = printed(model).tiers(model)
    for layer in sublayers(model):
        for tensor, tier in zip(layer.tensors, tiers[layer.kind], strict=True):
            if layer.kind in ("attention", "ffn"):
                assert (tier == "accelerator") == (len(tensor.shape) == 1 or tensor.name == "up.weight"), tensor.name
    assert achieved(model, tiers)["accelerator"] == pytest.approx(33, abs=0.5)


@pytest.mark.parametrize(("name", "count"), [("opt-30b", 98), ("opt-175b", 194)])
def test_layers_are_counted_as_flexgen_does(name, count):
    """GUPTA-13."""
    assert sum(layer.count for layer in sublayers(load_model(name))) == count


@pytest.mark.parametrize("name", MODELS)
def test_layers_hold_every_tensor_once(name):
    model = load_model(name)
    size = sum(layer.count * sum(tensor.elements for tensor in layer.tensors) for layer in sublayers(model))
    assert size == sum(tensor.elements for tensor in tensors(model)) >= parameters(model)


@pytest.mark.parametrize("name", MODELS)
def test_all_cpu_puts_everything_in_host_memory(name):
    model = load_model(name)
    assert achieved(model, WeightsOnHost().tiers(model))["host"] == 100.0


def by_hand(sizes: list[int], percents: list[float], choices: list[str]) -> list[str]:
    """Listing 2 from line 14 on, with both errata."""
    sums, found = list(accumulate(sizes)), []
    bounds = list(accumulate(percents))
    for size, total in zip(sizes, sums, strict=True):
        middle = (total - size / 2) / sums[-1] * 100
        found.append(next((c for c, bound in zip(choices, bounds, strict=True) if middle < bound), choices[-1]))
    return found


@together("seed", seeds(range(100), 25))
def test_the_listings_written_out(seed):
    rng = random.Random(seed)
    made = [Tensor(f"t{i}", "q", 0, (rng.choice([1, 7, 64, 64, 4096]),)) for i in range(rng.randint(1, 12))]
    cuts = sorted(rng.choice([0, 12.5, 25, 50, 80, 100, rng.uniform(0, 100)]) for _ in range(2))
    asked = Percentages(cuts[0], cuts[1] - cuts[0], 100 - cuts[1])
    sizes, percents = [t.elements for t in made], [asked.storage, asked.host, asked.accelerator]
    assert list(by_position(made, asked)) == by_hand(sizes, percents, ["storage", "host", "accelerator"])
    rising = sorted(range(len(made)), key=lambda i: sizes[i])
    chosen = by_hand([sizes[i] for i in rising], percents[::-1], ["accelerator", "host", "storage"])
    assert dict(enumerate(by_size(made, asked))) == dict(zip(rising, chosen, strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_outcomes_of_listing_3_are_all_there_is(name):
    """Whatever the percentages, what matrices get is one of the few outcomes (E-GUPTA-03)."""
    model, rng = load_model(name), random.Random(1)
    known = [matrices(model, each) for each in outcomes(model, ASKED)]
    assert len({str(each) for each in known}) == len(known)
    for _ in range(300):
        asked = LayerwiseMap(rng.uniform(0, 100), rng.uniform(0, 100), ASKED)
        assert matrices(model, asked) in known


def matrices(model: Model, asked: LayerwiseMap) -> dict[str, str]:
    tiers = asked.tiers(model)
    return {
        tensor.name: tier
        for layer in sublayers(model)
        for tensor, tier in zip(layer.tensors, tiers[layer.kind], strict=True)
        if len(tensor.shape) > 1
    }


@pytest.mark.parametrize("parts", [(0, 80, 30), (-10, 90, 20), (0, 0, 0), (float("nan"), 50, 50)])
def test_percentages_must_add_up(parts):
    with pytest.raises(UsageError, match="no division of weights"):
        Percentages(*parts)
