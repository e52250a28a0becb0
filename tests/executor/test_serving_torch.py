"""Serving on a device that PyTorch drives, here on processors: what each request gets alone from native kernels."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, get_args

import pytest
from layer_machines import two_cpus
from on_torch import on_torch
from plans import make_hardware
from test_serving_engine import LIMITS, OUTPUT, Alone, Checkpoints, check_alone, plan_of, prompts_of, serve

from helmsman.executor.machine import Machine
from helmsman.executor.serving.canary import Canary
from helmsman.executor.serving.engine import ServingEngine
from helmsman.executor.serving.request import Asked
from helmsman.executor.serving.room import fitted
from helmsman.executor.torch_device.copies import CopyLane
from helmsman.executor.torch_device.ragged_stage import RaggedStage
from helmsman.scheduler.decision import Chunk, Decision, Kind
from helmsman.scheduler.limits import Limits
from helmsman.schemas.errors import HardwareUnavailableError

pytestmark = pytest.mark.skipif(len(Machine.this().cpus) < 2, reason="needs two CPUs")


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


@pytest.mark.parametrize("family", ["qwen3", "llama", "opt", "phi3"])
def test_requests_get_what_they_get_alone(checkpoints: Checkpoints, there: Machine, family: str) -> None:
    alone, kinds = Alone(family, checkpoints(family)), set()
    with serving(checkpoints, there, family) as engine:
        for seed in range(2):
            whims = serve(engine, seed)
            check_alone(alone, whims, seed)
            kinds |= whims.kinds
            engine.reset()
            assert all(used == 0 for used, _ in engine.occupancy.values())
    assert kinds == set(get_args(Kind))


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
            engine.add(number, Asked(prompt, OUTPUT))
        everybody = tuple(range(len(prompts)))
        chunks = tuple(Chunk(number, len(prompts[number]), 0, "gpu") for number in everybody)
        steps = [Decision("gpu-only", chunks), *[Decision("gpu-only", decode0_gpu=everybody)] * (OUTPUT - 1)]
        made = [engine.step(step).tokens for step in steps]
    alone = Alone("qwen3", checkpoints("qwen3"))
    assert sum(alone.check(prompts[n], [step[n] for step in made]) for n in everybody) >= 0.98 * 4 * OUTPUT


def test_parts_of_an_iteration_are_timed(checkpoints: Checkpoints, there: Machine) -> None:
    with serving(checkpoints, there) as engine:
        engine.add(0, Asked([1, 2, 3], 5))
        engine.add(1, Asked([1, 2, 3], 5))
        first = engine.step(Decision("gpu-only", (Chunk(0, 3, 0, "gpu"), Chunk(1, 3, 0, "cpu")))).seconds
        assert min(first.linear[0], first.ends, first.gpu_attention, first.swap_out) > 0
        assert first.cpu_attention == first.to_host == first.swap_in == first.linear[1] == 0
        second = engine.step(Decision("pipelined", (), (0,), (), (1,))).seconds
        assert min(*second.linear, second.cpu_attention, second.to_host, second.to_device) > 0
        third = engine.step(Decision("gpu-only", swap_out=(0,), swap_in=(1,))).seconds
        assert min(third.swap_out, third.swap_in) > 0
        for each in (first, second, third):
            assert each.accelerator <= each.total, "one after the other"


def test_a_cohort_goes_on_by_a_layer(checkpoints: Checkpoints, there: Machine) -> None:
    """Its token takes a pass more than there are layers, where passes have nothing else to do but wait for it."""
    with serving(checkpoints, there) as engine:
        engine.add(0, Asked([1, 2, 3], 5))
        engine.step(Decision("deferred", (Chunk(0, 3, 0, "cpu"),)))
        steps = [engine.step(Decision("deferred", (), (), (0,))) for _ in range(8)]
    assert [len(step.tokens) for step in steps] == [0, 0, 0, 1] * 2, "three layers"
    assert [step.on_cpu for step in steps[3::4]] == [{0}] * 2


@pytest.mark.parametrize(("place", "name"), [(RaggedStage, "run"), (CopyLane, "submit_pieces")])
def test_what_fails_is_raised_and_forgotten(
    checkpoints: Checkpoints, there: Machine, place: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = Canary()

    def broken(*_: Any) -> None:
        raise RuntimeError("the device is gone")

    with serving(checkpoints, there) as engine:
        first = canary.run(engine)
        engine.add(0, Asked([1, 2, 3], 5))
        engine.step(Decision("gpu-only", (Chunk(0, 3, 0, "cpu"),)))
        with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="the device is gone"):
            patched.setattr(place, name, broken)
            engine.step(Decision("simple", decode0_cpu=(0,)))
        engine.reset()
        engine.check_integrity()
        assert canary.run(engine) == first


@pytest.mark.parametrize("cpu_tokens", [0, 320])
def test_what_fits_is_what_loads(checkpoints: Checkpoints, there: Machine, cpu_tokens: int) -> None:
    wanted = Limits(gpu_tokens=1 << 20, cpu_tokens=cpu_tokens, batch_tokens=96, sequences=8)
    vram = 24 << 20
    plan = on_torch(plan_of("qwen3", hardware=make_hardware(vram=vram)))
    limits = fitted(plan, wanted)
    with ServingEngine.load(plan, checkpoints("qwen3"), there, limits) as engine:
        assert engine.occupancy["gpu"][1] * 16 == limits.gpu_tokens
        assert 0 <= vram - engine.devices.memories["vram"].used < 12 << 20, "what attention gathers is not allocated"


def test_a_device_that_is_not_there_is_named(checkpoints: Checkpoints) -> None:
    with pytest.raises(HardwareUnavailableError, match="no cuda devices"):
        ServingEngine.load(on_torch(plan_of("qwen3")), checkpoints("qwen3"), two_cpus(), LIMITS)
