"""Placements of many kinds, named and random, for tests of lowering."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from layer_machines import LAYER, OPT_LAYER
from op_plans import make_op_split_plan
from paged import make_paged_plan
from plans import make_plan
from random_cases import random_split

from helmsman.lowering.paging import passes_of
from helmsman.lowering.placement import Placed, batches_together
from helmsman.planner.prediction.predict import mean_step
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.plan import ComputeRule, KvRule, LayerRange, Residence, Schedule, Select
from helmsman.schemas.workload import Workload

LLAMA, OPT = (model.with_layers(9) for model in (LAYER, OPT_LAYER))
PLANS = {
    "layers": make_plan(LLAMA, 4),
    "one device": make_plan(LLAMA),
    "operations": make_op_split_plan(LLAMA, 2, 9),
    "heads in 4-bit groups": make_op_split_plan(OPT, 3, 9, {"scores": 2}, cache_q4=True, weights_q4=True),
    "on the fly": make_op_split_plan(OPT, 0, 11, pinning="pin-on-transfer"),
    "pages": make_paged_plan(LLAMA, workload=Workload(prompt_tokens=400, output_tokens=64, context=500)),
}


def passes(plan: Placed) -> Iterator[Iteration]:
    """The first and the last pass over the prompt and a decode step."""
    prompt = passes_of(plan).prompt
    yield from {prompt[0].index: prompt[0], prompt[-1].index: prompt[-1]}.values()
    yield mean_step(plan.workload, batches_together(plan))


def random_placement(seed: int) -> Placed:
    """A random layer split in which random weights, caches, known tokens and operations of some blocks are elsewhere,
    under a random schedule."""
    rng = Random(seed)
    split = random_split(seed)
    placement = split.placement(rng.choice(split.candidates()))
    model = placement.model.with_layers(9)
    memories = [memory.name for memory in placement.hardware.memories]
    start = rng.randrange(9)
    some = LayerRange(start=start, stop=rng.randint(start + 1, 9))
    weights = Residence(
        select=Select(names=rng.choice(("*", "up.*", "q.*")), layers=some),
        memory=rng.choice(memories),
        format=placement.residence[0].format,
    )
    cache, known = (
        KvRule(select=select, memory=rng.choice(memories), format=placement.kv[0].format)
        for select in (Select(layers=some), Select(names="prefix"))
    )
    usual = placement.compute[-1].device
    place = ComputeRule(
        select=Select(names=rng.choice(("attention", "attention", "up")), layers=rng.choice((None, some))),
        device=rng.choice([device.name for device in placement.hardware.devices if device.name != usual] or [usual]),
    )
    work, together = placement.workload, rng.random() < 0.5
    prefix = rng.randrange(work.prompt_tokens) if rng.random() < 0.5 else 0
    return replace(
        placement,
        model=model,
        workload=work.model_copy(update={"batches": rng.choice((1, 1, 2, 3)), "prefix_tokens": prefix}),
        residence=(weights, *placement.residence),
        kv=(known, *((cache,) if together else ()), *placement.kv),
        compute=(place, *placement.compute),
        schedule=Schedule(
            overlap=rng.choice(("none", "next-layer", "next-layer")),
            prefetch=rng.choice((1, 2)),
            order=rng.choice(("token-major", "layer-major", "layer-major")),
            barrier=rng.random() < 0.4,
            stage=rng.choice(("block", "half")),
        ),
    )
