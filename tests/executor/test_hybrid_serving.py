"""Requests to models with states: what each gets among others is what it gets alone."""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hybrid_models import written_hybrid
from layer_machines import two_cpus
from plans import make_hardware, make_plan
from serving_oracle import simple_cost
from test_latent_serving import LIMITS, OUTPUT, serve
from two_cpus import TWO_CPUS

from helmsman.executor._kernels import Queue, Ragged, ServingPass
from helmsman.executor.engine import Engine
from helmsman.executor.serving.block_hashes import BlockHashes
from helmsman.executor.serving.engine import ServingEngine
from helmsman.executor.serving.request import RequestOptions
from helmsman.executor.serving.state_store import StateStore
from helmsman.executor.system.machine import Machine
from helmsman.hwdb.load_model import load_model
from helmsman.scheduler._scheduling import Scheduler
from helmsman.scheduler.decision import Chunk, SchedulingDecision
from helmsman.scheduler.limits import Limits
from helmsman.schemas.errors import InfeasibleError
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


CROWDED = Limits(
    gpu_tokens=96, cpu_tokens=448, batch_tokens=64, sequences=4, block=16, states=True, snapshots=2, context=64
)
ALIKE = [[7 * place % 512 for place in range(35)] + [100 + number] * (1 + 3 * number) for number in range(4)]
"""Prompts that part behind 35 tokens, two blocks of which are whole."""


@dataclass
class Crowd:
    """What requests made, and how many states were moved, kept and restored for them."""

    made: list[list[int]]
    moves: Counter[str]


def crowd(engine: ServingEngine, preemption: str) -> Crowd:
    """Serve prompts that begin alike, each begun once the one before has a token, in a cache that is too small."""
    scheduler = Scheduler(simple_cost(), engine.limits, "gpu-only", {"preemption": preemption}, engine.limits.block)
    hashes, made, moves = BlockHashes(engine.limits.block, b"key"), [list[int]() for _ in ALIKE], Counter[str]()
    left = iter(enumerate(ALIKE))
    while any(len(tokens) < OUTPUT for tokens in made):
        if scheduler.waiting == 0 and (following := next(left, None)) is not None:
            number, prompt = following
            engine.add(number, RequestOptions(prompt, OUTPUT), hashes(prompt))
            scheduler.add(number, len(prompt), OUTPUT, hashes=hashes(prompt))
        decision = scheduler.decide()
        assert decision is not None
        stepped = engine.step(decision)
        states = engine._homes.states
        assert states is not None
        moves.update({name: len(pairs) for name, pairs in vars(states.moves).items()})
        for number, token in stepped.tokens.items():
            made[number].append(token)
        scheduler.commit(1.0, [], list(stepped.tokens))
        for number in [n for n in stepped.tokens if len(made[n]) == OUTPUT]:
            engine.release(number)
        engine.check_integrity()
        scheduler.check()
        assert scheduler.free()[0] == engine.occupancy["gpu"][1] - engine.occupancy["gpu"][0]
    return Crowd(made, moves)


@pytest.fixture(scope="module")
def alone(stored: tuple[Path, Model]) -> list[list[int]]:
    """What every request of a crowd gets alone."""
    directory, model = stored
    with Engine.load(plan_of(model), directory, Machine.this(), prompt_tokens=64) as engine:
        prompts = [np.array([prompt], np.int32) for prompt in ALIKE]
        return [list(engine.generate(prompt, OUTPUT, ignore_eos=True).tokens[0]) for prompt in prompts]


@pytest.mark.parametrize(("kind", "preemption"), [("loopback", "swap"), ("loopback", "recompute"), ("cuda", "swap")])
def test_states_follow_requests_and_are_shared(
    stored: tuple[Path, Model], alone: list[list[int]], kind: str, preemption: str
) -> None:
    """To the host and back, or from a snapshot of the prompt: tokens are those of each request alone."""
    directory, model = stored
    machine = Machine.this() if kind == "loopback" else replace(two_cpus(), accelerators={"cuda": ("cpu",)})
    with ServingEngine.load(plan_of(model, kind), directory, machine, CROWDED) as engine:
        served = crowd(engine, preemption)
        assert engine.step(SchedulingDecision("gpu-only")).seconds.swap_out == 0
    assert served.made == alone
    moved = {name for name, count in served.moves.items() if count}
    assert moved == ({"out", "back"} if preemption == "swap" else set()) | {"restored", "kept"}


@pytest.mark.parametrize("lost", ["back", "restored"])
def test_a_state_that_stays_behind_shows(
    stored: tuple[Path, Model], alone: list[list[int]], monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """A stale one, of whoever had the row before: after a preemption, and where a prompt begins like another."""
    moves, before = StateStore.before, lambda moved: replace(moved, **{lost: []})
    monkeypatch.setattr(StateStore, "before", lambda self, lanes, made, took: moves(self, lanes, before(made), took))
    directory, model = stored
    with ServingEngine.load(plan_of(model), directory, Machine.this(), CROWDED) as engine:
        assert crowd(engine, "swap").made != alone
