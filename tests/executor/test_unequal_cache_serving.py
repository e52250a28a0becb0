"""Requests to models whose layers cache heads of different counts and widths, some of them other layers' (Gemma 4):
what each gets among others is what it gets alone."""

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from layer_machines import two_cpus
from plans import make_hardware, make_plan
from test_latent_serving import LIMITS, OUTPUT, serve
from two_cpus import TWO_CPUS
from window_models import written

from helmsman.executor.engine import Engine
from helmsman.executor.serving.engine import ServingEngine
from helmsman.executor.serving.request import RequestOptions
from helmsman.executor.system.machine import Machine
from helmsman.lowering.common_attention import served_caches
from helmsman.planner.serving.layer_facts import token_bytes
from helmsman.scheduler.decision import Chunk, SchedulingDecision
from helmsman.schemas.errors import UsageError
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Plan, Residence, Select
from helmsman.schemas.workload import Workload

pytestmark = TWO_CPUS


@pytest.fixture(
    scope="module",
    params=["gemma4-inputs", *(pytest.param(n, marks=pytest.mark.nightly) for n in ("gemma4", "gemma4-experts"))],
)
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp(request.param)
    sizes = {"vocab_size": 512, "vocab_size_per_layer_input": 512}
    return directory, written(request.param, directory, **sizes)[0]


def plan_of(model: Model, kind: str = "loopback") -> Plan:
    workload = Workload(prompt_tokens=8, output_tokens=8, context=64)
    return make_plan(model, 0, workload=workload, hardware=make_hardware(latency=5e-6, kind=kind))


def check_alone(model: Model, directory: Path, prompt: list[int], tokens: list[int]) -> None:
    with Engine.load(plan_of(model), directory, Machine.this(), prompt_tokens=32) as alone:
        expected = alone.generate(np.array([prompt], np.int32), OUTPUT, ignore_eos=True).tokens[0]
    assert tokens[:OUTPUT] == list(expected)


@pytest.mark.parametrize("kind", ["loopback", "cuda"])
def test_requests_get_what_they_get_alone(stored: tuple[Path, Model], kind: str) -> None:
    """On native devices, and on one that PyTorch drives; preempted ones compute their tokens again."""
    directory, model = stored
    machine = Machine.this() if kind == "loopback" else replace(two_cpus(), accelerators={"cuda": ("cpu",)})
    with ServingEngine.load(plan_of(model, kind), directory, machine, LIMITS) as engine:
        prompts, made = serve(engine, 3)
    for number, prompt in enumerate(prompts):
        check_alone(model, directory, prompt, made[number])


def test_blocks_of_a_cancelled_request_serve_another(stored: tuple[Path, Model]) -> None:
    """There is room for one of the two at a time."""
    directory, model = stored
    few, random = replace(LIMITS, gpu_tokens=32), Random(4)
    prompts = [[random.randrange(512) for _ in range(20)] for _ in range(2)]
    made = list[int]()
    with ServingEngine.load(plan_of(model), directory, Machine.this(), few) as engine:
        for number, prompt in enumerate(prompts):
            engine.add(number, RequestOptions(prompt, OUTPUT))
        for number in range(2):
            steps = [SchedulingDecision("gpu-only", (Chunk(number, 20, 0, "gpu"),))]
            steps += [SchedulingDecision("gpu-only", (), (number,))] * (OUTPUT - 1)
            for step in steps[: 4 if number == 0 else OUTPUT]:
                made += [token for request, token in engine.step(step).tokens.items() if request == 1]
                engine.check_integrity()
            engine.release(number)
    check_alone(model, directory, prompts[1], made)


def test_caches_have_the_room_of_every_layer(stored: tuple[Path, Model]) -> None:
    directory, model = stored
    with ServingEngine.load(plan_of(model), directory, Machine.this(), LIMITS) as engine:
        cache = engine._seating.gpu
        assert cache.buffer.size == LIMITS.gpu_tokens * token_bytes(model, "f32")
        sizes = [keys.size for keys, _ in map(cache.parts, range(len(cache.layers)))]
    assert sizes == [4 * LIMITS.gpu_tokens * one.heads * one.key_dim for one in served_caches(model)]
    assert len({(one.heads, one.key_dim) for one in served_caches(model)}) > 1


def test_a_host_beside_the_accelerator_is_refused(stored: tuple[Path, Model]) -> None:
    directory, model = stored
    with pytest.raises(UsageError, match="serve with the policy gpu-only"):
        ServingEngine.load(plan_of(model), directory, Machine.this(), replace(LIMITS, cpu_tokens=256))


@pytest.mark.parametrize("stored", ["gemma4-inputs"], indirect=True)
def test_a_table_of_inputs_elsewhere_is_refused(stored: tuple[Path, Model]) -> None:
    directory, model = stored
    here = Residence(select=Select(names="layer_table*"), memory="dram", format="f32", path="pinned")
    plan = plan_of(model)
    plan = plan.model_copy(update={"residence": (here, *plan.residence)})
    with pytest.raises(UsageError, match="rows of inputs of layers are looked up where requests are served"):
        ServingEngine.load(plan, directory, Machine.this(), LIMITS)
