"""Requests to models with states: what each gets among others is what it gets alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hybrid_models import written_hybrid
from layer_machines import two_cpus
from plans import make_hardware, make_plan
from test_latent_serving import LIMITS, OUTPUT, serve
from two_cpus import TWO_CPUS

from helmsman.executor._kernels import Queue, Ragged, ServingPass
from helmsman.executor.engine import Engine
from helmsman.executor.serving.engine import ServingEngine
from helmsman.executor.serving.request import RequestOptions
from helmsman.executor.system.machine import Machine
from helmsman.hwdb.load_model import load_model
from helmsman.scheduler.decision import Chunk, SchedulingDecision
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Plan
from helmsman.schemas.workload import Workload

pytestmark = TWO_CPUS
FAMILIES = ("qwen3_5_moe_text", "kimi_linear", "lfm2", "nemotron_h")


@pytest.fixture(
    scope="module", params=[*FAMILIES[:2], *(pytest.param(f, marks=pytest.mark.nightly) for f in FAMILIES[2:])]
)
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    directory = tmp_path_factory.mktemp(request.param)
    written_hybrid(request.param, directory, vocab_size=512)
    return directory, load_model(str(directory / "config.json"))


def plan_of(model: Model, kind: str = "loopback") -> Plan:
    workload = Workload(prompt_tokens=8, output_tokens=8, context=64)
    return make_plan(model, 0, workload=workload, hardware=make_hardware(latency=5e-6, kind=kind))


@pytest.mark.parametrize("kind", ["loopback", "cuda"])
def test_requests_get_what_they_get_alone(stored: tuple[Path, Model], kind: str) -> None:
    """On native devices, and on one that PyTorch drives; preempted ones compute their states again."""
    directory, model = stored
    machine = Machine.this() if kind == "loopback" else replace(two_cpus(), accelerators={"cuda": ("cpu",)})
    with ServingEngine.load(plan_of(model, kind), directory, machine, LIMITS) as engine:
        prompts, made = serve(engine, 3)
    with Engine.load(plan_of(model), directory, Machine.this(), prompt_tokens=32) as alone:
        for number, prompt in enumerate(prompts):
            expected = alone.generate(np.array([prompt], np.int32), OUTPUT, ignore_eos=True).tokens[0]
            assert made[number][:OUTPUT] == list(expected), number


def test_slots_of_states_are_given_back(stored: tuple[Path, Model]) -> None:
    """More requests than have states at a time is refused; those that are gone, or preempted, leave their room."""
    directory, model = stored
    few = replace(LIMITS, sequences=2)
    with ServingEngine.load(plan_of(model), directory, Machine.this(), few) as engine:
        for number in range(4):
            engine.add(number, RequestOptions([number + 1] * 4, 4), hashes=[1, 2])

        def begin(number: int, preempted: tuple[int, ...] = ()) -> None:
            chunk = Chunk(number, 4, 0, "gpu")
            engine.step(SchedulingDecision("gpu-only", (chunk,), (), (), (), (), (), preempted))
            engine.check_integrity()

        begin(0)
        begin(1)
        engine.release(0)
        begin(2)
        begin(3, preempted=(1,))
        with pytest.raises(InfeasibleError, match="more requests than states have room"):
            begin(1)


def test_a_slot_that_is_not_there_is_refused(stored: tuple[Path, Model]) -> None:
    """Before anything is written."""
    directory, model = stored

    def ints(values: list[int]) -> memoryview:
        return np.array(values, np.int64).data

    with ServingEngine.load(plan_of(model), directory, Machine.this(), LIMITS) as engine:
        rows = Ragged(ints([0]), ints([0, 1, 0, 0, 1]), ints([0, 1, 0]), ints([0]), ints([LIMITS.sequences]))
        lanes, tokens = (Queue(), None, None, None, None, None), np.array([1], np.int32).data
        with pytest.raises(ValueError, match="slots of states"):
            ServingPass(lanes, model.layers, [(engine._seating.stages[0], rows, tokens, None, None)])


def test_a_host_beside_the_accelerator_is_refused(stored: tuple[Path, Model]) -> None:
    directory, model = stored
    with pytest.raises(UsageError, match="serve with the policy gpu-only"):
        ServingEngine.load(plan_of(model), directory, Machine.this(), replace(LIMITS, cpu_tokens=256))
