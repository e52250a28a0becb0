"""Serving with weights in the host's memory that come in every pass, against requests alone on resident ones."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from daily import one_in
from on_torch import on_torch
from plans import make_hardware, make_plan
from shapes import small_model
from test_serving_engine import CONTEXT, LIMITS, OUTPUT, Alone, Checkpoints, check_alone, plan_of, serve
from two_cpus import TWO_CPUS

from helmsman.executor._kernels import Arena, DiskFile, StreamedWeights
from helmsman.executor.serving.canary import Canary
from helmsman.executor.serving.engine import ServingEngine
from helmsman.executor.serving.request import RequestOptions
from helmsman.executor.system.machine import Machine
from helmsman.planner.serving.kv_budget import limits_of
from helmsman.planner.serving.replica import ReplicaOptions, replica_of
from helmsman.scheduler.decision import Chunk, Home, Kind, SchedulingDecision
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.plan import KvRule, LayerRange, Plan, Residence, Schedule, Select
from helmsman.schemas.workload import Workload

pytestmark = TWO_CPUS

SCHEDULES = {
    "one by one": Schedule(),
    "one stage ahead": Schedule(overlap="next-layer", prefetch=1),
    "two stages ahead": Schedule(overlap="next-layer", prefetch=2),
    "a set for all": Schedule(overlap="next-layer", prefetch=0),
    "halves with barriers": Schedule(overlap="next-layer", prefetch=1, stage="half", barrier=True),
    "barriers alone": Schedule(barrier=True),
}
BLOCKS = Select(layers=LayerRange(start=0, stop=2))


def streamed(
    plan: Plan, schedule: str = "one by one", selects: Sequence[Select] = (BLOCKS,), home: str = "dram", **more: Any
) -> Plan:
    """`plan`, with what `selects` say in host memory."""
    fmt = plan.residence[-1].format
    rules = [Residence(select=select, memory=home, format=fmt, **more) for select in selects]
    return plan.model_copy(update={"residence": (*rules, *plan.residence), "schedule": SCHEDULES[schedule]})


@contextmanager
def serving(checkpoints: Checkpoints, plan: Plan, family: str = "qwen3") -> Iterator[ServingEngine]:
    with ServingEngine.load(plan, checkpoints(family), Machine.this(), LIMITS) as engine:
        yield engine


@pytest.mark.parametrize("schedule", one_in(2, SCHEDULES))
def test_requests_get_what_they_get_alone(checkpoints: Checkpoints, schedule: str) -> None:
    """All kinds of passes, whatever of the weights comes: blocks, a part of one, the ends."""
    alone, kinds = Alone("qwen3", checkpoints("qwen3")), set()
    some = Select(names="q.*", layers=LayerRange(start=1, stop=2)), Select(names="down.*"), Select(names="append.*")
    for seed, selects in enumerate([(Select(),), some]):
        with serving(checkpoints, streamed(plan_of("qwen3"), schedule, selects)) as engine:
            whims = serve(engine, seed)
            check_alone(alone, whims, seed)
            kinds |= whims.kinds
    assert kinds == set(get_args(Kind))


@pytest.mark.parametrize("family", ["llama", "opt", "phi3"])
def test_families_stream(checkpoints: Checkpoints, family: str) -> None:
    with serving(checkpoints, streamed(plan_of(family), "one stage ahead", [Select()]), family) as engine:
        check_alone(Alone(family, checkpoints(family)), serve(engine, 3), 3)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(60))
def test_many_requests_get_what_they_get_alone(checkpoints: Checkpoints, seed: int) -> None:
    with serving(checkpoints, streamed(plan_of("qwen3"), list(SCHEDULES)[seed % len(SCHEDULES)])) as engine:
        check_alone(Alone("qwen3", checkpoints("qwen3")), serve(engine, seed), seed)


@pytest.mark.parametrize("fmt", ["bf16", "q8", "q4"])
def test_logits_are_those_of_resident_weights(checkpoints: Checkpoints, fmt: StoredFormat) -> None:
    """Bit for bit, whatever the format: the same kernels read the same bytes, however late these come."""
    work, slow = Workload(prompt_tokens=8, output_tokens=8, context=CONTEXT), make_hardware(latency=2e-4)
    resident = make_plan(small_model("qwen3"), 0, weights=fmt, workload=work, hardware=slow)
    found = []
    for plan in (resident, streamed(resident, "one stage ahead", [Select()]), streamed(resident)):
        with serving(checkpoints, plan) as engine:
            for number, home in enumerate(get_args(Home)):
                engine.add(number, RequestOptions([5, 8, 13, 21 + number], OUTPUT))
                engine.step(SchedulingDecision("gpu-only", (Chunk(number, 4, 0, home),)))
            steps = [
                SchedulingDecision("simple", (), (0,), (1,)),
                SchedulingDecision("pipelined", (), (0,), (), (1,)),
            ] * 3
            made = [engine.step(step).tokens for step in steps]
            found.append((made, np.asarray(engine._seating.stages[0].logits()).tobytes()))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("schedule", ["one by one", "two stages ahead"])
@pytest.mark.parametrize("cpu_tokens", [0, 320])
def test_what_the_planner_finds_room_for_is_what_loads(
    checkpoints: Checkpoints, schedule: str, cpu_tokens: int
) -> None:
    options = ReplicaOptions(utilisation=1.0, batch_tokens=96, sequences=8, cpu_tokens=cpu_tokens, gpu_tokens=10**9)
    vram = 12 << 20
    plan = streamed(plan_of("qwen3", hardware=make_hardware(vram=vram)), schedule, [BLOCKS, Select(names="embedding*")])
    limits = limits_of(replica_of(plan, options), options)
    assert limits.cpu_tokens == cpu_tokens and limits.batch_tokens == 96
    with ServingEngine.load(plan, checkpoints("qwen3"), Machine.this(), limits) as engine:
        left = vram - engine.devices.memories["vram"].used
        assert 0 <= left < 4 << 20, "bounds are close"


def test_waiting_for_weights_is_part_of_what_the_accelerator_takes(checkpoints: Checkpoints) -> None:
    """A latency for each of an operation's vectors and matrices, which nothing hides."""
    slow = plan_of("qwen3", hardware=make_hardware(latency=1e-3))
    with serving(checkpoints, streamed(slow)) as engine:
        engine.add(0, RequestOptions([1, 2, 3], 5))
        seconds = engine.step(SchedulingDecision("gpu-only", (Chunk(0, 3, 0, "gpu"),))).seconds
        assert 2 * 11e-3 <= seconds.weights <= seconds.linear[0] < seconds.total and not seconds.link
        engine.step(SchedulingDecision("gpu-only"))
        idle = engine.step(SchedulingDecision("gpu-only")).seconds
        assert not idle.weights, "nothing comes for nobody"


def test_what_fails_is_forgotten(checkpoints: Checkpoints, tmp_path: Path) -> None:
    """A pass whose items are skipped lets its weights arrive before the next one's may."""
    nothing = DiskFile(str(tmp_path / "nothing"), 4096, direct=False, create=True)
    (tmp_path / "nothing").write_bytes(b"")
    with serving(checkpoints, streamed(plan_of("qwen3"), "one stage ahead")) as engine:
        first = Canary().run(engine)
        engine.add(0, RequestOptions([1, 2, 3], 5))
        engine._lanes[0].read(nothing, 0, engine._seating.gpu.buffer, 0, 4096)
        with pytest.raises(OSError, match="nothing"):
            engine.step(SchedulingDecision("gpu-only", (Chunk(0, 3, 0, "gpu"),)))
        engine.reset()
        engine.check_integrity()
        assert Canary().run(engine) == first


def test_plans_that_move_more_are_refused(checkpoints: Checkpoints) -> None:
    plan, dram = plan_of("qwen3"), KvRule(select=Select(), memory="dram", format="f32")
    groups = Residence(select=BLOCKS, memory="vram", format="q4", expanded="f32")
    away = plan.model_copy(update={"kv": (dram,)})
    for refused, error, field in (
        (streamed(plan, path="pin-on-transfer"), "nothing is page-locked", "path"),
        (plan.model_copy(update={"residence": (groups, *plan.residence)}), "4-bit groups", "residence"),
        (away, "caches of served requests are where attention is", "kv"),
        (streamed(on_torch(plan)), "do not come to a PyTorch device", "residence"),
    ):
        with pytest.raises(UsageError, match=error) as found:
            ServingEngine.load(refused, checkpoints("qwen3"), Machine.this(), LIMITS)
        assert found.value.field == field and found.value.value and found.value.remedy


def test_weights_that_cannot_come_are_refused() -> None:
    buffer = Arena(1 << 12).alloc(1 << 12, "both")
    move = buffer, 0, buffer, 2048, 1024
    StreamedWeights([(0, 0, 0, [move]), (1, 0, 1, [move])], True, False, (buffer, "f32", 16, 16, [buffer]))
    with pytest.raises(ValueError, match="one or two sub-batches"):
        StreamedWeights([], True, False, (buffer, "f32", 16, 16, []))
    for operations, error in (
        ([(0, 0, 0, [move]), (0, 1, 1, [move])], "operation 0 brings its weights twice"),
        ([(0, 0, 0, [])], "has moves"),
        ([(0, 0, 0, [(buffer, 3072, buffer, 0, 2048)])], "target"),
        ([(0, 0, 0, [(buffer, 0, buffer, 3072, 2048)])], "source"),
    ):
        with pytest.raises(ValueError, match=error):
            StreamedWeights(operations, True, False)
