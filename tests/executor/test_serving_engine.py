"""Serving many requests at once, by random decisions, against serving each of them alone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, get_args

import numpy as np
import pytest
from daily import one_in
from plans import make_hardware, make_plan
from shapes import small_model
from two_cpus import TWO_CPUS

from helmsman.executor._kernels import Arena, CopyEngine, DiskFile, Event
from helmsman.executor.engine import Engine
from helmsman.executor.serving.canary import Canary
from helmsman.executor.serving.engine import ServingEngine
from helmsman.executor.serving.request import RequestOptions
from helmsman.executor.serving.runner import IterationSeconds, StepResult
from helmsman.executor.system.machine import Machine
from helmsman.executor.text.sampling import Sampling
from helmsman.planner.serving.kv_budget import limits_of
from helmsman.planner.serving.replica import ReplicaOptions, replica_of
from helmsman.scheduler.decision import Chunk, Home, Kind, SchedulingDecision
from helmsman.scheduler.limits import Limits
from helmsman.schemas.errors import BadInputError, InfeasibleError, UsageError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import Plan
from helmsman.schemas.workload import Workload

Checkpoints = Callable[[str], Path]
LIMITS = Limits(gpu_tokens=256, cpu_tokens=320, batch_tokens=96, sequences=8, cohorts=3)
CONTEXT, OUTPUT = 96, 10
TOLERANCE = 1e-4
"""Of logits, relative to the largest: both compute in f32, in another order."""

pytestmark = TWO_CPUS


def plan_of(family: str, on_cpu: int | None = 0, hardware: Hardware | None = None) -> Plan:
    workload = Workload(prompt_tokens=8, output_tokens=8, context=CONTEXT)
    hardware = hardware or make_hardware(latency=5e-6)
    return make_plan(small_model(family), on_cpu, workload=workload, hardware=hardware)


@contextmanager
def serving(checkpoints: Checkpoints, family: str = "qwen3", limits: Limits = LIMITS) -> Iterator[ServingEngine]:
    with ServingEngine.load(plan_of(family), checkpoints(family), Machine.this(), limits) as engine:
        yield engine


class Alone:
    """What each request gives when it is served alone."""

    def __init__(self, family: str, directory: Path) -> None:
        self.engine = Engine.load(plan_of(family), directory, Machine.this(), prompt_tokens=CONTEXT)

    def check(self, prompt: list[int], made: list[int]) -> int:
        """How many of `made` are the likeliest tokens after those before; raises unless the others nearly are."""
        logits = self.engine.logits(np.array([prompt + made[:-1]], np.int32), prompt=len(prompt))[0]
        chosen = logits[np.arange(len(made)), made]
        assert (logits.max(axis=1) - chosen <= 2 * TOLERANCE * np.abs(logits).max()).all()
        return int((logits.argmax(axis=1) == made).sum())


@dataclass
class Whim:
    """A request as whoever decides sees it; `done`: tokens cached."""

    prompt: list[int]
    home: Home = "gpu"
    done: int = 0
    made: list[int] = field(default_factory=list)

    @property
    def waits(self) -> bool:
        return self.done < len(self.prompt) + len(self.made) - bool(self.made)

    @property
    def left(self) -> int:
        return len(self.prompt) + len(self.made) - self.done


class Whims:
    """Decides whatever there is room for. `requests`: those that have not ended."""

    def __init__(self, seed: int, engine: ServingEngine, prompts: list[list[int]]) -> None:
        self.random, self.engine = Random(seed), engine
        self.requests = {number: Whim(prompt) for number, prompt in enumerate(prompts)}
        self.made: dict[int, list[int]] = {number: whim.made for number, whim in self.requests.items()}
        self.kinds: set[str] = set()
        for number, prompt in enumerate(prompts):
            engine.add(number, RequestOptions(prompt, OUTPUT))

    def decide(self) -> SchedulingDecision:
        self.free = {home: total - used for home, (used, total) in self.engine.occupancy.items()}
        kind: Kind = self.random.choice(get_args(Kind))
        preempted = self._some(0.05, [n for n, whim in self.requests.items() if whim.done])
        out = self._move(0.2, "gpu", "cpu", preempted)
        back = self._move(0.2, "cpu", "gpu", (*preempted, *out))
        for number in preempted:
            self.requests[number].done = 0
        gpu, cpu = (self._decoding(home, preempted) for home in ("gpu", "cpu"))
        chunks = tuple(self._chunks(preempted))
        cut = self.random.randint(0, len(cpu)) if kind == "pipelined" else len(cpu)
        cpu = () if kind == "gpu-only" else cpu
        self.kinds.add(kind)
        return SchedulingDecision(kind, chunks, gpu, cpu[:cut], cpu[cut:], out, back, preempted)

    def learn(self, decision: SchedulingDecision, stepped: StepResult) -> None:
        for chunk in decision.prefill:
            self.requests[chunk.id].done += chunk.tokens
        begun = {chunk.id for chunk in decision.prefill}
        for number, token in stepped.tokens.items():
            whim = self.requests[number]
            whim.done += number not in begun
            whim.made.append(token)
            if len(whim.made) == OUTPUT or self.random.random() < 0.01:
                self.engine.release(number)
                del self.requests[number]

    def _some(self, share: float, numbers: list[int]) -> tuple[int, ...]:
        return tuple(number for number in numbers if self.random.random() < share)

    def _move(self, share: float, here: Home, there: Home, others: tuple[int, ...]) -> tuple[int, ...]:
        found = []
        for number in self._some(share, [n for n in self.requests if n not in others]):
            whim = self.requests[number]
            if whim.home == here and whim.done and not whim.waits and self._room(there, whim.done):
                whim.home = there
                found.append(number)
        return tuple(found)

    def _decoding(self, home: Home, others: tuple[int, ...]) -> tuple[int, ...]:
        ready = [n for n, w in self.requests.items() if w.home == home and w.made and not w.waits and n not in others]
        return tuple(n for n in self._some(0.8, ready) if self._room(home, 1, self.requests[n].done))

    def _chunks(self, others: tuple[int, ...]) -> Iterator[Chunk]:
        room = LIMITS.batch_tokens - len(self.requests)
        for number in self._some(0.4, [n for n, whim in self.requests.items() if whim.waits or not whim.made]):
            whim = self.requests[number]
            home: Home = whim.home if whim.done else self.random.choice(get_args(Home))
            tokens = min(whim.left, room, self.random.choice([whim.left, self.random.randint(1, whim.left)]))
            if number in others or tokens <= 0 or not self._room(home, tokens, whim.done):
                continue
            room -= tokens
            whim.home = home
            yield Chunk(number, tokens, whim.done, home)

    def _room(self, home: Home, tokens: int, before: int = 0) -> bool:
        """Whether there is room for `tokens` more; then it is taken."""
        blocks = LIMITS.blocks(before + tokens) - LIMITS.blocks(before)
        if blocks > self.free[home]:
            return False
        self.free[home] -= blocks
        return True


def prompts_of(seed: int, count: int = 6) -> list[list[int]]:
    random = Random(seed)
    return [[random.randrange(523) for _ in range(random.choice([1, 5, 16, 17, 40]))] for _ in range(count)]


def serve(engine: ServingEngine, seed: int) -> Whims:
    whims = Whims(seed, engine, prompts_of(seed))
    for _ in range(2000):
        if not whims.requests:
            return whims
        decision = whims.decide()
        whims.learn(decision, engine.step(decision))
        engine.check_integrity()
    raise AssertionError("requests do not end")


def check_alone(alone: Alone, whims: Whims, seed: int) -> None:
    prompts = prompts_of(seed)
    equal = sum(alone.check(prompts[number], made) for number, made in whims.made.items())
    assert equal >= 0.98 * sum(map(len, whims.made.values()))


def check_every_kind(engine: ServingEngine, alone: Alone) -> None:
    """Of two draws, that all kinds of passes came, tokens are those of each request alone, and nothing stays."""
    kinds = set()
    for seed in range(2):
        whims = serve(engine, seed)
        check_alone(alone, whims, seed)
        kinds |= whims.kinds
        engine.reset()
        assert all(used == 0 for used, _ in engine.occupancy.values())
    assert kinds == set(get_args(Kind))


@pytest.mark.parametrize("family", one_in(2, ["qwen3", "llama", "opt", "phi3"]))
def test_requests_get_what_they_get_alone(checkpoints: Checkpoints, family: str) -> None:
    with serving(checkpoints, family) as engine:
        check_every_kind(engine, Alone(family, checkpoints(family)))


def test_every_instruction_set_serves(checkpoints: Checkpoints, isa: str) -> None:
    with serving(checkpoints) as engine:
        whims = serve(engine, 5)
        check_alone(Alone("qwen3", checkpoints("qwen3")), whims, 5)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(200))
def test_many_requests_get_what_they_get_alone(checkpoints: Checkpoints, seed: int) -> None:
    with serving(checkpoints) as engine:
        check_alone(Alone("qwen3", checkpoints("qwen3")), serve(engine, seed), seed)


def test_one_device_plays_the_accelerator(checkpoints: Checkpoints) -> None:
    plan, directory = plan_of("qwen3", None), checkpoints("qwen3")
    prompts = prompts_of(3, 4)
    with ServingEngine.load(plan, directory, Machine.this(), LIMITS) as engine:
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
    alone = Alone("qwen3", directory)
    for number in everybody:
        tokens = [step[number] for step in made]
        assert alone.check(prompts[number], tokens) >= OUTPUT - 1


def test_requests_are_sampled_each_for_itself(checkpoints: Checkpoints) -> None:
    warm = RequestOptions([3, 5, 8], OUTPUT, Sampling(temperature=2.0), seed=7)
    made = []
    with serving(checkpoints) as engine:
        for others in (0, 3):
            for number in range(others + 1):
                engine.add(
                    number, warm if number == 0 else RequestOptions([number] * 9, OUTPUT, Sampling(temperature=1.0))
                )
            everybody = tuple(range(others + 1))
            chunks = tuple(Chunk(n, 3 if n == 0 else 9, 0, "gpu") for n in everybody)
            steps = [
                SchedulingDecision("gpu-only", chunks),
                *[SchedulingDecision("gpu-only", decode0_gpu=everybody)] * (OUTPUT - 1),
            ]
            made.append([engine.step(step).tokens[0] for step in steps])
            engine.reset()
    assert made[0] == made[1], "the same seed, whoever else is served"
    assert len(set(made[0])) > 1


def test_what_is_barred_does_not_come_early(checkpoints: Checkpoints) -> None:
    """The likeliest of the others comes, or they are drawn among; later it may."""
    prompt, alone = [3, 5, 8], Alone("qwen3", checkpoints("qwen3")).engine

    def made(engine: ServingEngine, **asked: Any) -> list[int]:
        engine.add(0, RequestOptions(prompt, OUTPUT, **asked))
        steps = [
            SchedulingDecision("gpu-only", (Chunk(0, 3, 0, "gpu"),)),
            *[SchedulingDecision("gpu-only", decode0_gpu=(0,))] * 5,
        ]
        found = [engine.step(step).tokens[0] for step in steps]
        engine.release(0)
        return found

    with serving(checkpoints) as engine:
        usual = made(engine)
        barred = frozenset(usual)
        found = made(engine, min_tokens=4, barred=barred)
        drawn = made(engine, min_tokens=4, barred=frozenset(range(500)), sampling=Sampling(temperature=9.0))
    logits = alone.logits(np.array([prompt + found[:-1]], np.int32), prompt=3)[0]
    logits[:4, list(barred)] = -np.inf
    assert found == logits.argmax(axis=1).tolist() and not barred & set(found[:4])
    assert min(drawn[:4]) >= 500


def timed_parts(engine: ServingEngine) -> tuple[IterationSeconds, IterationSeconds, IterationSeconds]:
    """Of a prompt at each home, a decode at each in two sub-batches, and both moved: what took time, and only that."""
    engine.add(0, RequestOptions([1, 2, 3], 5))
    engine.add(1, RequestOptions([1, 2, 3], 5))
    first = engine.step(SchedulingDecision("gpu-only", (Chunk(0, 3, 0, "gpu"), Chunk(1, 3, 0, "cpu")))).seconds
    assert min(first.linear[0], first.ends, first.gpu_attention, first.swap_out) > 0
    assert first.cpu_attention == first.to_host == first.swap_in == first.linear[1] == 0
    second = engine.step(SchedulingDecision("pipelined", (), (0,), (), (1,))).seconds
    assert min(*second.linear, second.cpu_attention, second.to_host, second.to_device) > 0
    third = engine.step(SchedulingDecision("gpu-only", swap_out=(0,), swap_in=(1,))).seconds
    return first, second, third


def test_parts_of_an_iteration_are_timed(checkpoints: Checkpoints) -> None:
    with serving(checkpoints) as engine:
        *_, third = timed_parts(engine)
        assert min(third.swap_out, third.swap_in) >= 3 * 5e-6, "a latency for every layer"
        assert third.total >= third.swap_out


def test_depths_are_assumed_without_their_prompts(checkpoints: Checkpoints) -> None:
    with serving(checkpoints) as engine:
        for number in range(3):
            engine.add(number, RequestOptions([1] * 40, OUTPUT))
        engine.assume({0: "gpu", 1: "cpu", 2: "cpu"})
        engine.check_integrity()
        assert engine.occupancy == {"gpu": (3, 16), "cpu": (6, 20)}
        made = engine.step(SchedulingDecision("pipelined", decode0_gpu=(0,), decode0_cpu=(1,), decode1_cpu=(2,))).tokens
        assert made.keys() == {0, 1, 2}


def test_a_cohort_joins_passes_that_are_full(checkpoints: Checkpoints) -> None:
    """Its rows have room of their own beside as many tokens as a pass may have."""
    with serving(checkpoints) as engine:
        for number in range(3):
            engine.add(number, RequestOptions([1 + number] * 80, OUTPUT))
        engine.add(3, RequestOptions([1] * (LIMITS.batch_tokens + 1), 1))
        everybody = (0, 1, 2)
        engine.assume(dict.fromkeys(everybody, "cpu"))
        full = SchedulingDecision("deferred", (Chunk(3, LIMITS.batch_tokens, 0, "gpu"),), (), everybody)
        steps = [full, *[SchedulingDecision("deferred", (), (), everybody)] * 3]
        made = [engine.step(step).tokens.keys() for step in steps]
        assert made == [set(), set(), set(), set(everybody)]


def test_requests_begin_while_a_cohort_is_under_way(checkpoints: Checkpoints) -> None:
    """Each takes as many passes as layers and one, whoever began before; what has no place begins when there is one."""
    with serving(checkpoints) as engine:
        for number in range(5):
            engine.add(number, RequestOptions([1 + number] * 20, OUTPUT))
        engine.add(5, RequestOptions([1] * 20, 30))
        engine.assume({**dict.fromkeys(range(5), "cpu"), 5: "gpu"})
        came = {}
        for step in range(9):
            asked = tuple(n for n in range(min(step + 1, 5)) if n not in came)
            made = engine.step(SchedulingDecision("deferred", (), (5,), asked)).tokens
            engine._deferred.wait() if engine._deferred else None
            came |= {number: step for number in made if number != 5}
        assert came == {0: 3, 1: 4, 2: 5, 3: 7, 4: 7}


def test_the_canary_is_the_same_after_a_reset(checkpoints: Checkpoints) -> None:
    canary = Canary()
    with serving(checkpoints) as engine:
        first = canary.run(engine)
        engine.add(0, RequestOptions([1, 2, 3], 5))
        engine.step(SchedulingDecision("deferred", (Chunk(0, 3, 0, "cpu"),)))
        engine.step(SchedulingDecision("deferred", (), (), (0,)))
        engine.add(1, RequestOptions([1, 2, 3], 5))
        engine.step(SchedulingDecision("deferred", (Chunk(1, 3, 0, "cpu"),)))
        engine.step(SchedulingDecision("deferred", (), (), (0, 1)))
        engine.reset()
        engine.check_integrity()
        assert canary.run(engine) == first


def test_what_has_no_room_is_refused(checkpoints: Checkpoints) -> None:
    with serving(checkpoints) as engine:
        for asked, error, place in (
            (RequestOptions([], 1), UsageError, "nothing to do"),
            (RequestOptions([1], 0), UsageError, "nothing to do"),
            (RequestOptions([1] * 90, 7), UsageError, "exceed the plan's context"),
            (RequestOptions([523], 1), BadInputError, "vocabulary"),
        ):
            with pytest.raises(error, match=place):
                engine.check_options(asked)
        for number in range(4):
            engine.add(number, RequestOptions([1] * 80, 9))
        engine.step(SchedulingDecision("gpu-only", (Chunk(0, 80, 0, "gpu"),)))
        engine.step(SchedulingDecision("gpu-only", (Chunk(1, 80, 0, "gpu"),)))
        engine.step(SchedulingDecision("gpu-only", (Chunk(2, 80, 0, "gpu"),)))
        with pytest.raises(InfeasibleError, match="blocks where 1"):
            engine.step(SchedulingDecision("gpu-only", (Chunk(3, 80, 0, "gpu"),)))
        engine.reset()
    small = Limits(gpu_tokens=32, cpu_tokens=0, batch_tokens=32, sequences=2)
    with serving(checkpoints, limits=small) as engine, pytest.raises(UsageError, match="room in no cache"):
        engine.check_options(RequestOptions([1] * 30, 9))


@pytest.mark.parametrize(("cpu_tokens", "cohorts"), [(0, 1), (320, 1), (320, 5)])
def test_what_the_planner_finds_room_for_is_what_loads(checkpoints: Checkpoints, cpu_tokens: int, cohorts: int) -> None:
    options = ReplicaOptions(
        utilisation=1.0, batch_tokens=96, sequences=8, cpu_tokens=cpu_tokens, gpu_tokens=10**9, cohorts=cohorts
    )
    vram = 12 << 20
    plan = plan_of("qwen3", hardware=make_hardware(vram=vram))
    limits = limits_of(replica_of(plan, options), options)
    assert limits.cpu_tokens == cpu_tokens
    with ServingEngine.load(plan, checkpoints("qwen3"), Machine.this(), limits) as engine:
        assert engine.occupancy["gpu"][1] * 16 == limits.gpu_tokens
        left = vram - engine.devices.memories["vram"].used
        assert 0 <= left < 4 << 20, "bounds are close"


def test_the_accelerator_never_waits_for_a_cohort(checkpoints: Checkpoints, tmp_path: Path) -> None:
    """Passes go on while the host stands still: what it is to begin waits for an event of this test."""
    go_on, arena = Event(), Arena(1 << 14)
    there, here = arena.alloc(4096, "there"), arena.alloc(4096, "here")
    file = DiskFile(str(tmp_path / "file"), 4096, direct=False, create=True)
    file.write(0, bytes(4096), 4096)
    slow = plan_of("qwen3", hardware=make_hardware(latency=20e-3))
    with ServingEngine.load(slow, checkpoints("qwen3"), Machine.this(), LIMITS) as engine:
        for number, home in enumerate(get_args(Home)):
            engine.add(number, RequestOptions([1, 2, 3], 20))
            engine.step(SchedulingDecision("gpu-only", (Chunk(number, 3, 0, home),)))
        waiting = engine.step(SchedulingDecision("simple", (), (0,), (1,))).seconds.total
        assert waiting > 3 * 2 * 20e-3, "both ways, in each of three layers"
        host = engine._lanes[1]
        assert host is not None
        host.read(file, 0, here, 0, 4096, wait=[go_on])
        going_on = [engine.step(SchedulingDecision("deferred", (), (0,), (1,))) for _ in range(5)]
        assert [set(each.tokens) for each in going_on] == [{0}] * 5
        CopyEngine(1e9, 0.0, -1).submit(there, 0, here, 0, 64, done=go_on)
        engine.reset()


def test_plans_that_do_not_serve_are_refused(checkpoints: Checkpoints) -> None:
    with pytest.raises(UsageError, match="one device that computes everything"):
        ServingEngine.load(plan_of("qwen3", 2), checkpoints("qwen3"), Machine.this(), LIMITS)
    large = Limits(gpu_tokens=1 << 24, cpu_tokens=0, batch_tokens=32, sequences=2)
    with pytest.raises(InfeasibleError, match="blocks of keys and values"):
        ServingEngine.load(plan_of("qwen3"), checkpoints("qwen3"), Machine.this(), large)
