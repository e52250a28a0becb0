"""Prompts longer than a chunk, divided within the halves of blocks: what the CPU alone makes of them, to the bit."""

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from daily import one_in
from divided import divided_plan
from layer_machines import two_cpus
from plans import make_hardware, make_plan
from shapes import small_model
from splits import make_frame

from helmsman.executor.engine import Engine
from helmsman.executor.measuring.measure import spans_of
from helmsman.executor.passes.generation import Generation
from helmsman.executor.passes.phase_pass import PhasePass, passes_of
from helmsman.executor.stages.stage import divides
from helmsman.lowering.lower import lower
from helmsman.lowering.ops import FFN_OPS
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.strategies.hetegen import HeteGen
from helmsman.planner.strategies.streaming.question import Question
from helmsman.schemas.errors import UsageError
from helmsman.schemas.plan import ComputeRule, Part, Plan, Residence, Schedule, Select
from helmsman.schemas.trace import Span
from helmsman.schemas.workload import Workload

Checkpoints = Callable[[str], Path]
FAMILIES = ("qwen3", "llama", "opt")
OUTPUT = 4


def workload(prompt: int, batch: int = 1, batches: int = 1) -> Workload:
    context = prompt + OUTPUT + 3
    return Workload(prompt_tokens=prompt, output_tokens=OUTPUT, batch=batch, batches=batches, context=context)


def drawn(seed: int) -> tuple[str, Plan]:
    """A family and a plan, on a machine that has no more memory than the planner says it needs."""
    source = Random(seed)
    family, shape = FAMILIES[seed % 3], source.choice(((1, 1), (1, 1), (2, 1), (3, 1), (1, 2), (2, 2)))
    prompt = source.choice((129, 150, 257, 300)) if sum(shape) < 4 else 129
    plan = divided_plan(source, family, workload(prompt, *shape), heads=bool(source.getrandbits(1)))
    used = {use.memory: use.used for use in memory_use(plan)}
    return family, plan.model_copy(update={"hardware": make_hardware(vram=used["vram"], ram=used["dram"])})


def alone(plan: Plan) -> Plan:
    """All of it on the CPU, in one batch, with attention in as many parts."""
    work = plan.workload
    whole = make_plan(plan.model, workload=work.model_copy(update={"batch": work.batch * work.batches, "batches": 1}))
    parts = "divided" if divides(passes_of(plan)) else "whole"
    return whole.model_copy(update={"schedule": whole.schedule.model_copy(update={"attention": parts})})


def outcome(checkpoint: Path, plan: Plan) -> tuple[Any, Any, Generation]:
    """Tokens, the logits after a prompt of fewer chunks, and what made the tokens."""
    work = plan.workload
    shape = work.batch * work.batches, work.prompt_tokens
    tokens = np.random.default_rng(7).integers(3, 500, shape, dtype=np.int32)
    with Engine.load(plan, checkpoint, two_cpus()) as engine:
        made = engine.generate(tokens, OUTPUT, ignore_eos=True)
        return np.array(made.tokens), engine.logits(tokens[:, :53], prompt=50), made


def halves_shared(found: PhasePass) -> set[tuple[int | None, bool]]:
    devices = defaultdict(set)
    for use in found.uses.values():
        if use.layer is not None:
            devices[use.layer, use.op in FFN_OPS].add(use.device)
    return {half for half, those in devices.items() if len(those) > 1}


def check_spans(plan: Plan, made: Generation) -> None:
    """In the prompt's pass too lanes do one thing at a time, after what it depends on, weights apart: those of a half
    have come before its first chunk."""
    spans = spans_of(plan, 0, made)
    by_id, lanes = {span.task: span for span in spans}, defaultdict[str, list[Span]](list)
    for span in sorted(spans, key=lambda each: (each.start_s, each.end_s)):
        lanes[span.resource].append(span)
    assert all(one.end_s <= next_one.start_s + 1e-7 for lane in lanes.values() for one, next_one in pairwise(lane))
    for iteration in made.iterations:
        tasks = lower(plan, iteration).tasks
        for task in tasks:
            if ".weights" not in task.id:
                assert all(by_id[tasks[dep].id].end_s <= by_id[task.id].end_s + 1e-7 for dep in task.deps)


def check(checkpoints: Checkpoints, family: str, plan: Plan) -> None:
    found, expected = outcome(checkpoints(family), plan), outcome(checkpoints(family), alone(plan))
    if plan.workload.batches == 1:
        assert np.array_equal(found[1], expected[1])
    assert np.abs(found[1] - expected[1]).max() < 1e-4 * np.abs(expected[1]).max()
    assert np.array_equal(found[0], expected[0])
    check_spans(plan, found[2])


@pytest.mark.parametrize("seed", one_in(2, range(4)))
def test_random_divisions_make_the_same_bits(checkpoints: Checkpoints, seed: int) -> None:
    family, plan = drawn(seed)
    assert halves_shared(passes_of(plan)[0])
    check(checkpoints, family, plan)


def test_hetegen_shares_matrices_in_prompts(checkpoints: Checkpoints) -> None:
    """Where the accelerator's memory holds no block, every matrix of every block."""
    frame = make_frame(small_model("llama"), workload(150), make_hardware(vram=2_500_000))
    plan = HeteGen(Question(frame, CostOptions())).decide({}).plan
    assert len(halves_shared(passes_of(plan)[0])) == 2 * plan.model.layers
    check(checkpoints, "llama", plan)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4, 200))
def test_many_random_divisions_make_the_same_bits(checkpoints: Checkpoints, seed: int) -> None:
    check(checkpoints, *drawn(seed))


def test_weights_that_cannot_wait_for_the_next_batch_are_refused(checkpoints: Checkpoints) -> None:
    """From its `o` on a batch goes on into the next block before the other batch has read what came for this one."""
    vectors = (
        Residence(select=Select(names=n), memory="dram", format="f32") for n in ("*norm*", "embedding*", "head*")
    )
    changed = {
        "compute": (
            ComputeRule(select=Select(names="o"), device="loopback"),
            ComputeRule(select=Select(), device="cpu"),
        ),
        "residence": (*vectors, Residence(select=Select(), memory="vram", format="f32")),
    }
    for prefetch in (1, 0):
        schedule = Schedule(order="layer-major", overlap="next-layer", prefetch=prefetch)
        whole = make_plan(small_model("llama"), workload=workload(8, 1, 2))
        plan = whole.model_copy(update={**changed, "schedule": schedule})
        if prefetch:
            Engine.load(plan, checkpoints("llama"), two_cpus()).close()
        else:
            with pytest.raises(UsageError, match="are gone when the next one reads them"):
                Engine.load(plan, checkpoints("llama"), two_cpus())


def test_two_parts_of_an_operation_on_one_device_are_refused(checkpoints: Checkpoints) -> None:
    middle = Select(names="up", part=Part(axis="rows", start=32, stop=64))
    rules = (ComputeRule(select=middle, device="loopback"), ComputeRule(select=Select(), device="cpu"))
    plan = make_plan(small_model("llama"), workload=workload(8)).model_copy(update={"compute": rules})
    with pytest.raises(UsageError, match="cpu has two parts of up of block 0"):
        Engine.load(plan, checkpoints("llama"), two_cpus())
