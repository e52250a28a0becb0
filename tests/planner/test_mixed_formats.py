"""Questions with several formats of weights: a search is asked about each, until one of its plans is proven."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from random_cases import random_split
from together import together

from helmsman.hwdb.compose import GIB, compose
from helmsman.library import plan
from helmsman.lowering.placement import Placement, known
from helmsman.lowering.rules import residence
from helmsman.lowering.tensors import tensors
from helmsman.planner.decision import Decision
from helmsman.planner.memory.usage import memory_use, shortages
from helmsman.planner.mixed_formats import ENOUGH, decide_mixed, format_sizes
from helmsman.planner.read_request import request_from
from helmsman.planner.registry import method
from helmsman.planner.request import PlanRequest
from helmsman.planner.strategies.layer_entry import split_of
from helmsman.planner.tensor_formats import Formats
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.plan import Plan

QUESTION = {"model": "Qwen3-14B", "hardware": "rtx4090-7950x", "format": "q4_k_m", "strategy": "optimal"}

RTX_3090 = compose("RTX 3090", "AMD Ryzen 9 7950X", 128 * GIB, None)


def kept_in(placement: Placement, formats: Formats) -> bool:
    """Return whether the rules keep every tensor in its own format."""
    placed = known(placement)
    named = {(tensor.name, tensor.layer): tensor for tensor in tensors(placement.model)}
    return all(residence(placed, named[key]).format == fmt for key, fmt in formats.items())


def with_gap(decision: Decision, gap: float) -> Decision:
    """Return a decision whose proof leaves so much."""
    certificate = decision.plan.certificate
    assert certificate is not None
    bound = certificate.seconds / (1 + gap)
    other = certificate.model_copy(update={"gap": gap, "lower_bound": bound})
    return replace(decision, drafted=decision.plan.model_copy(update={"certificate": other}))


@pytest.mark.parametrize(
    ("gap", "swapped", "asked"), [(ENOUGH / 2, True, 1), (2 * ENOUGH, True, 2), (2 * ENOUGH, False, 1)]
)
def test_other_formats_are_not_asked_about_once_a_plan_is_proven(gap: float, swapped: bool, asked: int) -> None:
    """Nor are larger ones: `swapped`, the format of fewer weights is the smaller."""
    request = request_from(QUESTION)
    if swapped:
        other: dict[StoredFormat, StoredFormat] = {"q4_k": "q6_k", "q6_k": "q4_k"}
        request = replace(request, formats={key: other.get(fmt, fmt) for key, fmt in request.formats.items()})
    formats = tuple(format_sizes(request.model, request.formats))
    assert formats == (("q6_k", "q4_k") if swapped else ("q4_k", "q6_k"))
    answered = method("optimal").decide(request)
    tried: list[str] = []

    def decide(one: PlanRequest[Any]) -> Decision:
        tried.append(one.weights)
        return with_gap(answered, gap)

    decision = decide_mixed(request, decide)
    assert tried == list(formats[:asked]) and isinstance(decision.drafted, Plan)


@together("seed", range(12))
@together("kv_offload", [False, True])
def test_layer_splits_are_counted_in_the_formats_of_tensors(seed: int, kv_offload: bool) -> None:
    """The closed forms of every split against its memory and its prediction, of blocks in formats at random."""
    draw = Random(seed)
    split = random_split(seed, kv_offload=kv_offload)
    kinds = [draw.choices(("q8_0", "f16", "bf16"), k=9) for _ in range(2)]
    matrices = [tensor for tensor in tensors(split.model) if tensor.quantised and tensor.tied_to is None]
    chosen = {layer: draw.choice(kinds) for layer in (None, *range(split.model.layers))}
    formats = {(each.name, each.layer): chosen[each.layer][len(each.name) % 9] for each in matrices}
    split = replace(split, options=replace(split.options, formats=formats))
    for k in split.candidates():
        placement = split.placement(k)
        assert dict(split.shortage(k)) == shortages(memory_use(placement))
        assert kept_in(placement, formats)
        assert split.objective(k) == pytest.approx(split.predicted_objective(k), rel=1e-9)


def test_every_block_may_have_formats_of_its_own() -> None:
    """Of more kinds of blocks than there are letters."""
    request = request_from({**QUESTION, "model": "Llama-3.3-70B-Instruct", "strategy": "layer-split"})
    draw = Random(1)
    matrices = [tensor for tensor in tensors(request.model) if tensor.quantised]
    formats = {(each.name, each.layer): draw.choice(("q3_k", "q4_k", "q5_k", "q6_k")) for each in matrices}
    split = split_of(replace(request, formats=formats))
    for k in (50, 70, split.model.units):
        assert dict(split.shortage(k)) == shortages(memory_use(split.placement(k)))
        assert split.objective(k) == pytest.approx(split.predicted_objective(k), rel=1e-9)
    assert not split.shortage(70) and split.shortage(20)


def test_as_many_layers_are_on_the_accelerator_as_its_memory_holds_in_their_own_formats() -> None:
    question = {"model": "Llama-3.3-70B-Instruct", "hardware": RTX_3090, "format": "q4_k_m", "strategy": "layer-split"}
    chosen = plan(question).plan
    assert chosen.label == "cpu(37)->cuda(45)"
    with pytest.raises(UsageError, match="printed model is of weights in one format"):
        plan({**question, "options": {"paper": True}})
