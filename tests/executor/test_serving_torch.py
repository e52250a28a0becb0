"""Serving on a device that PyTorch drives, here on processors: what each request gets alone from native kernels."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from daily import one_in
from layer_machines import two_cpus
from on_torch import on_torch
from plans import make_hardware, make_plan
from shapes import small_model
from test_serving_engine import (
    CONTEXT,
    LIMITS,
    OUTPUT,
    Alone,
    Checkpoints,
    check_alone,
    check_every_kind,
    plan_of,
    prompts_of,
    serve,
    timed_parts,
)
from test_serving_policies import Client, alike, cost, serve_all
from two_cpus import TWO_CPUS

from helmsman.executor._kernels import Ragged
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.devices.parts import of_kind
from helmsman.executor.devices.torch.cohort import TorchCohort
from helmsman.executor.devices.torch.copies import CopyLane
from helmsman.executor.devices.torch.ragged_rows import RaggedRows
from helmsman.executor.devices.torch.ragged_stage import RaggedStage
from helmsman.executor.serving.canary import Canary
from helmsman.executor.serving.engine import ServingEngine
from helmsman.executor.serving.request import RequestOptions
from helmsman.executor.system.machine import Machine
from helmsman.planner.serving.native_room import fitted
from helmsman.scheduler._scheduling import Scheduler
from helmsman.scheduler.decision import Chunk, SchedulingDecision
from helmsman.scheduler.limits import Limits
from helmsman.scheduler.policies import checked_options
from helmsman.schemas.blocks.positions import Rope
from helmsman.schemas.described import reshaped
from helmsman.schemas.errors import HardwareUnavailableError, UsageError
from helmsman.schemas.plan import Plan
from helmsman.schemas.workload import Workload

pytestmark = TWO_CPUS


@pytest.fixture(params=["cpu", pytest.param("cuda:0", marks=pytest.mark.cuda)])
def there(request: pytest.FixtureRequest) -> Machine:
    """This machine, whose processors stand for its GPU; or with the GPU that it has."""
    return replace(two_cpus(), accelerators={"cuda": (request.param,)})


@contextmanager
def serving(
    checkpoints: Checkpoints, there: Machine, family: str = "qwen3", limits: Limits = LIMITS
) -> Iterator[ServingEngine]:
    with ServingEngine.load(on_torch(plan_of(family)), checkpoints(family), there, limits) as engine:
        yield engine


@pytest.mark.parametrize("family", one_in(2, ["qwen3", "llama", "opt", "phi3"]))
def test_requests_get_what_they_get_alone(checkpoints: Checkpoints, there: Machine, family: str) -> None:
    with serving(checkpoints, there, family) as engine:
        check_every_kind(engine, Alone(family, checkpoints(family)))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(5, 105))
def test_many_requests_get_what_they_get_alone(checkpoints: Checkpoints, there: Machine, seed: int) -> None:
    with serving(checkpoints, there) as engine:
        check_alone(Alone("qwen3", checkpoints("qwen3")), serve(engine, seed), seed)


def test_attention_gathers_a_part_after_the_other(
    checkpoints: Checkpoints, there: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("helmsman.lowering.buffers.GATHERED_VALUES", 7 * 64)
    with serving(checkpoints, there) as engine:
        check_alone(Alone("qwen3", checkpoints("qwen3")), serve(engine, 4), 4)


def test_without_a_host_all_is_there(checkpoints: Checkpoints, there: Machine) -> None:
    prompts = prompts_of(3, 4)
    with serving(checkpoints, there, limits=replace(LIMITS, cpu_tokens=0)) as engine:
        assert set(engine.occupancy) == {"gpu"}
        for number, prompt in enumerate(prompts):
            engine.add(number, RequestOptions(prompt, OUTPUT))
        everybody = tuple(range(len(prompts)))
        chunks = tuple(Chunk(number, len(prompts[number]), 0, "gpu") for number in everybody)
        steps = [
            SchedulingDecision("gpu-only", chunks),
            *[SchedulingDecision("gpu-only", decode0_gpu=everybody)] * (OUTPUT - 1),
        ]
        made = [engine.step(step).tokens for step in steps]
    alone = Alone("qwen3", checkpoints("qwen3"))
    assert sum(alone.check(prompts[n], [step[n] for step in made]) for n in everybody) >= 0.98 * 4 * OUTPUT


def test_sequences_are_attended_to_together_without_seeing_each_other() -> None:
    """What pads a sequence's places is its own: what is no number in another's cache does not reach it."""
    sequences, runs = (
        [(0, 1, 4, 0, 1), (1, 1, 6, 1, 2), (2, 130, 0, 3, 1)],
        [(0, 5, 16), (0, 4, 32), (4, 3, 64), (0, 130, 90)],
    )
    positions, outputs = [4, 6, *range(130)], [0, 1, 131]
    native = Ragged(*(np.array(each, np.int64).data for each in (positions, sequences, runs, outputs)))
    rows = RaggedRows.of(native, np.arange(132, dtype=np.int32), 80, torch.device("cpu"))
    both, most, last = rows.groups
    assert both.rows.tolist() == [[0], [1]] and not both.passing
    assert both.places.tolist() == [[16, 17, 18, 19, 20, 16, 16], [32, 33, 34, 35, 64, 65, 66]]
    assert [each.passing for each in (most, last)] == [True, True]
    assert (most.rows.shape, most.places.shape) == ((1, 128), (1, 128))
    assert last.rows.tolist() == [[130, 131]] and last.places.tolist() == [list(range(10, 140))]
    assert rows.own.at.tolist() == [20, 66] and rows.passing.at.tolist() == list(range(10, 140))


def test_parts_of_an_iteration_are_timed(checkpoints: Checkpoints, there: Machine) -> None:
    with serving(checkpoints, there) as engine:
        first, second, third = timed_parts(engine)
        assert min(third.swap_out, third.swap_in) > 0
        for each in (first, second, third):
            assert each.accelerator <= each.total, "one after the other"


def test_a_cohort_goes_on_by_a_layer(checkpoints: Checkpoints, there: Machine) -> None:
    """Its token takes a pass more than there are layers, where passes have nothing else to do but wait for it."""
    with serving(checkpoints, there) as engine:
        engine.add(0, RequestOptions([1, 2, 3], 5))
        engine.step(SchedulingDecision("deferred", (Chunk(0, 3, 0, "cpu"),)))
        steps = [engine.step(SchedulingDecision("deferred", (), (), (0,))) for _ in range(8)]
    assert [len(step.tokens) for step in steps] == [0, 0, 0, 1] * 2, "three layers"
    assert [step.on_cpu for step in steps[3::4]] == [{0}] * 2


def test_cohorts_of_several_sizes_are_under_way(checkpoints: Checkpoints, there: Machine) -> None:
    """The smaller one begins while the larger goes on."""
    many, few, prompts = (0, 1, 2), (3, 4), prompts_of(3, 5)
    with serving(checkpoints, there) as engine:
        for number, prompt in enumerate(prompts):
            engine.add(number, RequestOptions(prompt, OUTPUT))
        chunks = (Chunk(number, len(prompt), 0, "cpu") for number, prompt in enumerate(prompts))
        first = engine.step(SchedulingDecision("gpu-only", tuple(chunks))).tokens
        asked = (many, *[many + few] * 3, few)
        steps = [engine.step(SchedulingDecision("deferred", (), (), each)).tokens for each in asked]
    assert [tuple(step) for step in steps] == [(), (), (), many, few]
    alone, second = Alone("qwen3", checkpoints("qwen3")), {**steps[3], **steps[4]}
    assert sum(alone.check(prompts[number], [first[number], second[number]]) for number in second) == 10


@pytest.mark.parametrize(("place", "name"), [(RaggedStage, "run"), (CopyLane, "submit_pieces")])
def test_what_fails_is_raised_and_forgotten(
    checkpoints: Checkpoints, there: Machine, place: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = Canary()

    def broken(*_: Any) -> None:
        raise RuntimeError("the device is gone")

    with serving(checkpoints, there) as engine:
        first = canary.run(engine)
        engine.add(0, RequestOptions([1, 2, 3], 5))
        engine.step(SchedulingDecision("gpu-only", (Chunk(0, 3, 0, "cpu"),)))
        with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="the device is gone"):
            patched.setattr(place, name, broken)
            engine.step(SchedulingDecision("simple", decode0_cpu=(0,)))
        engine.reset()
        engine.check_integrity()
        assert canary.run(engine) == first


def test_what_fails_on_a_cohorts_way_back_is_raised(
    checkpoints: Checkpoints, there: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which has a lane of its own; afterwards it is forgotten."""

    def token(engine: ServingEngine) -> int:
        engine.add(0, RequestOptions([1, 2, 3], 5))
        engine.step(SchedulingDecision("deferred", (Chunk(0, 3, 0, "cpu"),)))
        steps = [engine.step(SchedulingDecision("deferred", (), (), (0,))) for _ in range(4)]
        return steps[-1].tokens[0]

    def broken(*_: Any) -> None:
        raise RuntimeError("the device is gone")

    with serving(checkpoints, there) as engine:
        first = token(engine)
        engine.reset()
        cohort = of_kind(engine._seating.cohorts[0], TorchCohort)
        with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="the device is gone"):
            patched.setattr(cohort._outputs, "_timed", broken)
            token(engine)
        engine.reset()
        assert token(engine) == first


@pytest.mark.parametrize("cpu_tokens", [0, 320])
def test_what_fits_is_what_loads(checkpoints: Checkpoints, there: Machine, cpu_tokens: int) -> None:
    wanted = Limits(gpu_tokens=1 << 20, cpu_tokens=cpu_tokens, batch_tokens=96, sequences=8)
    vram = 24 << 20
    plan = on_torch(plan_of("qwen3", hardware=make_hardware(vram=vram)))
    limits = fitted(plan, wanted)
    with ServingEngine.load(plan, checkpoints("qwen3"), there, limits) as engine:
        assert engine.occupancy["gpu"][1] * 16 == limits.gpu_tokens
        assert 0 <= vram - engine.devices.memories["vram"].used < 12 << 20, "what attention gathers is not allocated"


def test_depths_need_their_prompts(checkpoints: Checkpoints, there: Machine) -> None:
    with serving(checkpoints, there) as engine, pytest.raises(UsageError, match="these caches need a prompt"):
        engine.assume({0: "gpu"})


def test_a_device_that_is_not_there_is_named(checkpoints: Checkpoints) -> None:
    with pytest.raises(HardwareUnavailableError, match="no cuda devices"):
        ServingEngine.load(on_torch(plan_of("qwen3")), checkpoints("qwen3"), two_cpus(), LIMITS)


@pytest.mark.parametrize("policy", one_in(2, ["gpu-only", "neo", "apex", "adaptive"]))
def test_policies_serve(checkpoints: Checkpoints, there: Machine, policy: str) -> None:
    """The loop and the real scheduler, which observes virtual times of each side; some prompts begin alike."""
    limits = Limits(gpu_tokens=128, cpu_tokens=448, batch_tokens=CONTEXT, sequences=8, chunk=24)
    scheduler = Scheduler(cost(), limits, policy, checked_options(policy, {}), limits.block)
    clients = [Client(prompt) for prompt in alike(4)]
    with serving(checkpoints, there, limits=limits) as engine:
        serve_all(engine, scheduler, clients, limits.block)
        engine.check_integrity()
    alone = Alone("qwen3", checkpoints("qwen3"))
    assert [(client.ends[0].error, client.ends[0].reason) for client in clients] == [(None, "length")] * len(clients)
    assert sum(alone.check(each.prompt, each.made) for each in clients) >= 0.98 * OUTPUT * len(clients)
    assert sum(each.ends[0].reused_tokens for each in clients) > 0


def test_caches_and_weights_in_eight_bits_make_the_tokens_of_native_kernels(tmp_path: Path, there: Machine) -> None:
    """Blocks are gathered as they are kept, and expanded then; swaps move them as the host has them."""
    model = reshaped(small_model("qwen3"), head_dim=32, position=Rope(theta=1e4, rotary_dim=32), ffn=192)
    write_checkpoint(model, tmp_path / "wide", seed=1, fmt="f32")
    work = Workload(prompt_tokens=8, output_tokens=8, context=CONTEXT)
    plan = make_plan(model, 0, kv="q8_0", weights="q8_0", workload=work)
    there_and_native = ((on_torch(plan), there), (plan, Machine.this()))
    found, expected = (moved_about(each, tmp_path / "wide", machine) for each, machine in there_and_native)
    assert found == expected


def moved_about(plan: Plan, checkpoint: Path, machine: Machine) -> list[dict[int, int]]:
    """Tokens of two requests, which change their homes on the way."""
    with ServingEngine.load(plan, checkpoint, machine, LIMITS) as engine:
        for number, prompt in enumerate(prompts_of(3, 2)):
            engine.add(number, RequestOptions(prompt, OUTPUT))
        first, other = (len(prompt) for prompt in prompts_of(3, 2))
        steps = [
            SchedulingDecision("gpu-only", (Chunk(0, first, 0, "gpu"), Chunk(1, other, 0, "cpu"))),
            SchedulingDecision("simple", decode0_gpu=(0,), decode0_cpu=(1,)),
            SchedulingDecision("pipelined", decode0_gpu=(1,), decode1_cpu=(0,), swap_out=(0,), swap_in=(1,)),
            SchedulingDecision("pipelined", decode0_gpu=(1,), decode0_cpu=(0,)),
        ]
        return [dict(engine.step(step).tokens) for step in steps]
