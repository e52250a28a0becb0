"""The engine: what it refuses, where things go, when it stops, and what it records."""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plans import make_hardware, make_plan
from quick_probes import quick_probes
from shapes import small_model
from two_cpus import TWO_CPUS

from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.engine import Engine
from helmsman.executor.measuring.measure import Measured, Request, measure, spans_of, trace
from helmsman.executor.system.machine import Machine
from helmsman.hwdb.machine_line import facts_in
from helmsman.lowering.lower import lower
from helmsman.lowering.tensors import parameters
from helmsman.planner.memory.usage import memory_use
from helmsman.schemas.errors import BadInputError, HelmError, InfeasibleError, UsageError
from helmsman.schemas.plan import ComputeRule, KvRule, LayerRange, Plan, Residence, Select
from helmsman.schemas.read import digest
from helmsman.schemas.workload import Workload

MODEL = small_model("qwen3")
PROMPT = np.arange(8, dtype=np.int32)[None]
SPLITS = (None, 0, 1, 2, 4)

pytestmark = TWO_CPUS


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("checkpoint") / MODEL.name
    write_checkpoint(MODEL, place, seed=1, fmt="f32")
    return place


def load(checkpoint: Path, plan: Plan, **options: Any) -> Engine:
    return Engine.load(plan, checkpoint, Machine.this(), **options)


@pytest.mark.parametrize("split", SPLITS)
def test_spans_are_the_tasks_of_lowering(checkpoint: Path, split: int | None) -> None:
    plan = make_plan(MODEL, split)
    with load(checkpoint, plan) as engine:
        generation = engine.generate(PROMPT, 4, ignore_eos=True)
    spans = spans_of(plan, 0, generation)
    tasks = {task.id: task for iteration in generation.iterations for task in lower(plan, iteration).tasks}
    assert len(spans) == len(tasks)
    assert {(span.task, span.resource, span.bytes) for span in spans} == {
        (task.id, task.resource, task.bytes) for task in tasks.values()
    }


@pytest.mark.parametrize("split", [None, 2])
def test_spans_of_a_lane_follow_each_other_and_their_dependencies(checkpoint: Path, split: int | None) -> None:
    plan = make_plan(MODEL, split)
    with load(checkpoint, plan) as engine:
        generation = engine.generate(PROMPT, 4, ignore_eos=True)
    lanes = defaultdict(list)
    ends = {}
    for span in spans_of(plan, 0, generation):
        assert 0 <= span.start_s <= span.end_s
        lanes[span.resource].append((span.start_s, span.end_s))
        ends[span.task] = span
    for spans in lanes.values():
        spans.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(spans))
    for iteration in generation.iterations:
        tasks = lower(plan, iteration).tasks
        for task in tasks:
            assert all(ends[tasks[dep].id].end_s <= ends[task.id].end_s for dep in task.deps)


def small_cache() -> Machine:
    """This machine as if its cache were small, so that probes read little."""
    return replace(Machine.this(), cache_bytes=2 << 20)


def test_a_measured_trace_has_probes_of_every_device_and_lane(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_probes(monkeypatch.setattr)
    plan = make_plan(MODEL, 2)
    with load(checkpoint, plan) as engine:
        measured = measure(engine, Request(PROMPT, 3, ignore_eos=True), 2, small_cache())
    found = trace(plan, measured)
    assert found.info.plan_sha256 == digest(plan) and found.info.runs == 2
    assert {span.run for span in found.spans} == {0, 1}
    by_run = {(probe.run, probe.what, probe.name) for probe in found.info.probes}
    names = [(what, name) for what in ("read", "compute") for name in ("cpu", "loopback")]
    names += [("link", "h2d"), ("link", "d2h")]
    assert by_run == {(run, *name) for run in (0, 1) for name in names}


def test_link_probes_tell_the_rate_and_no_less_than_the_configured_latency(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_probes(monkeypatch.setattr)
    plan = make_plan(MODEL, 2, hardware=make_hardware(bandwidth=1e9, latency=200e-6))
    with load(checkpoint, plan) as engine:
        measured: Measured = measure(engine, Request(PROMPT, 2), 1, small_cache())
    rates = [probe.value for probe in measured.probes if probe.what == "link"]
    assert len(rates) == 4 and min(rates) > 0
    assert float(measured.notes["latency_s.h2d.0"]) >= 200e-6
    ran = facts_in(measured.notes)
    assert ran is not None and ran.cores == len(Machine.this().cpus) and min(ran.reads.values()) > 0


def test_on_token_sees_every_token_and_eos_ends_the_run(checkpoint: Path) -> None:
    with load(checkpoint, make_plan(MODEL)) as engine:
        free = engine.generate(PROMPT, 8).tokens[0]
    third = next(token for token in free[2:] if token not in free[:2])
    stops = MODEL.model_copy(update={"eos": (third,)})
    seen: list[int] = []
    with load(checkpoint, make_plan(stops)) as engine:
        made = engine.generate(PROMPT, 8, on_token=lambda chosen: seen.extend(chosen.tolist()))
        ignored = engine.generate(PROMPT, 8, ignore_eos=True)
    assert made.tokens[0] == free[: free.index(third) + 1] == tuple(seen)
    assert ignored.tokens[0] == free
    assert len(made.moments) == len(seen) + 1 and made.ttft_s > 0


def test_one_token_has_no_tpot(checkpoint: Path) -> None:
    with load(checkpoint, make_plan(MODEL)) as engine:
        made = engine.generate(PROMPT, 1)
    assert made.tpot_s is None and made.tokens_per_second is None


def test_an_engine_runs_again_with_the_same_result(checkpoint: Path) -> None:
    with load(checkpoint, make_plan(MODEL, 2)) as engine:
        first, second = (engine.generate(PROMPT, 8, ignore_eos=True).tokens for _ in range(2))
    assert first == second


def test_a_tied_table_is_placed_once_per_memory(checkpoint: Path) -> None:
    def used(split: int | None) -> int:
        with load(checkpoint, make_plan(MODEL, split)) as engine:
            return sum(device.memory.used for device in engine.devices.by_name.values())

    table = MODEL.vocab * MODEL.hidden * 4
    assert used(2) - used(None) > table
    assert used(None) < used(0) + table


def test_weights_arrive_with_their_sizes(checkpoint: Path) -> None:
    sizes: list[int] = []
    load(checkpoint, make_plan(MODEL), on_bytes=sizes.append).close()
    assert sum(sizes) == 4 * parameters(MODEL)


def test_a_full_accelerator_is_infeasible(checkpoint: Path) -> None:
    plan = make_plan(MODEL, 1, hardware=make_hardware(vram=1 << 20))
    with pytest.raises(InfeasibleError, match="memory vram: out of memory: .* of block 2 needs") as caught:
        load(checkpoint, plan)
    assert caught.value.exit_code == 3


def test_a_longer_prompt_than_planned_needs_room_for_it(checkpoint: Path) -> None:
    long = np.arange(24, dtype=np.int32)[None]
    with load(checkpoint, make_plan(MODEL, 2), prompt_tokens=24) as engine:
        assert len(engine.generate(long, 8, ignore_eos=True).tokens[0]) == 8


@pytest.mark.parametrize("family", ["qwen3", "opt"])
@pytest.mark.parametrize("split", [0, 2, 4])
def test_what_the_planner_says_fits_is_enough(tmp_path: Path, family: str, split: int) -> None:
    model = small_model(family)
    write_checkpoint(model, tmp_path / family, fmt="f32")
    workload = Workload(prompt_tokens=900, output_tokens=100, batch=3, context=1000)
    used = {use.memory: use.used for use in memory_use(make_plan(model, split, weights="f16", workload=workload))}
    exact = make_hardware(vram=used["vram"], ram=used["dram"] or 1)
    load(tmp_path / family, make_plan(model, split, weights="f16", workload=workload, hardware=exact)).close()


def changed(plan: Plan, **update: Any) -> Plan:
    return plan.model_copy(update=update)


def mixed_kv() -> Plan:
    plan = make_plan(MODEL)
    first = KvRule(select=Select(layers=LayerRange(start=0, stop=1)), memory="dram", format="f16")
    return changed(plan, kv=(first, *plan.kv))


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (mixed_kv(), "must share a format"),
    ],
)
def test_plans_that_are_not_executed_are_refused(checkpoint: Path, plan: Plan, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        load(checkpoint, plan)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("tokens", "output", "error"),
    [
        (np.zeros((1, 0), np.int32), 4, UsageError),
        (np.zeros((2, 4), np.int32), 4, UsageError),
        (np.zeros((1, 30), np.int32), 3, UsageError),
        (np.full((1, 4), MODEL.vocab, np.int32), 4, BadInputError),
        (np.full((1, 4), -1, np.int32), 4, BadInputError),
    ],
)
def test_bad_prompts_are_refused(checkpoint: Path, tokens: Any, output: int, error: type[HelmError]) -> None:
    with load(checkpoint, make_plan(MODEL)) as engine, pytest.raises(error):
        engine.generate(tokens, output)


def test_three_parts_are_wired(checkpoint: Path) -> None:
    """Embedding and block 0 here, block 1 there, the rest here again: the same tokens."""
    plan = make_plan(MODEL, 4)
    there = Select(layers=LayerRange(start=1, stop=2))
    here = {"memory": "dram", "format": "f32"}
    away = {"memory": "vram", "format": "f32"}
    sandwich = changed(
        plan,
        residence=(Residence(select=there, **away), Residence(select=Select(), **here)),
        kv=(KvRule(select=there, **away), KvRule(select=Select(), **here)),
        compute=(ComputeRule(select=there, device="loopback"), ComputeRule(select=Select(), device="cpu")),
    )
    with load(checkpoint, sandwich) as engine:
        made = engine.generate(PROMPT, 8, ignore_eos=True)
    with load(checkpoint, make_plan(MODEL)) as engine:
        assert engine.generate(PROMPT, 8, ignore_eos=True).tokens == made.tokens
    assert len(spans_of(sandwich, 0, made)) == sum(len(lower(sandwich, it).tasks) for it in made.iterations)


def test_workload_larger_than_the_learned_positions_is_refused(tmp_path: Path) -> None:
    model = small_model("opt")
    write_checkpoint(model, tmp_path / "opt", fmt="f32")
    plan = make_plan(model, workload=Workload(context=model.max_context + 1))
    with pytest.raises(UsageError, match="context"):
        load(tmp_path / "opt", plan)
