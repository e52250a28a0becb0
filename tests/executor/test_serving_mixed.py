"""All that serving can do at once, on a real engine under the real scheduler: prefixes, cohorts, weights that come,
moves, cancellations, priorities and faults. Each request gets what it gets alone.

The scheduler is told virtual seconds, and passes find what the host had to do for cohorts done: which decisions come
follows from a case's seed, on whatever machine. In nightly cases real seconds decide."""

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from layer_machines import two_cpus
from on_torch import on_torch
from plans import make_hardware
from serving_cases import random_cost
from test_prefix_reuse import HASHES, LIMITS, prompt_of
from test_serving_engine import Alone, Checkpoints, plan_of
from test_serving_streams import SCHEDULES, streamed
from tests.support.virtual_serving import Clock, landed, real_seconds, virtual_seconds
from two_cpus import TWO_CPUS

from helmsman.executor._kernels import DiskFile
from helmsman.executor.serving.canary import Canary
from helmsman.executor.serving.engine import ServingEngine
from helmsman.executor.serving.request import RequestOptions
from helmsman.executor.serving.runner import StepResult
from helmsman.executor.system.machine import Machine
from helmsman.scheduler._scheduling import Scheduler
from helmsman.scheduler.decision import SchedulingDecision
from helmsman.scheduler.limits import HOST_ORDERS
from helmsman.scheduler.policies import checked_options
from helmsman.schemas.errors import HelmError
from helmsman.schemas.plan import Plan, Select

pytestmark = TWO_CPUS

COHORTS = {"cohorts": "3"}
OPTIONS = {"neo": {}, "apex": {"threshold": "0", **COHORTS}, "adaptive": COHORTS}
WEIGHTS = "resident", *SCHEDULES, "pytorch"


def plan_with(weights: str, random: Random) -> Plan:
    """`weights`: where they are, or how they come; over a link that is fast or slow."""
    plan = plan_of("qwen3", hardware=make_hardware(latency=random.choice([5e-6, 2e-4])))
    if weights in SCHEDULES:
        parts = [[Select()], [Select(names="q.*"), Select(names="embedding*")], [Select(names="head*")]]
        return streamed(plan, weights, random.choice(parts))
    return on_torch(plan) if weights == "pytorch" else plan


class Mixed:
    """Requests that come, leave and end. `made`: tokens by request, `left`: how many more of those that have not
    ended. `clock`: what the scheduler is told that passes take."""

    def __init__(self, engine: ServingEngine, policy: str, random: Random, clock: Clock) -> None:
        options = checked_options(policy, OPTIONS[policy])
        self.engine, self.random, self.clock = engine, random, clock
        cost = replace(random_cost(random), layers=3)
        self.scheduler = Scheduler(cost, engine.limits, policy, options, LIMITS.block)
        self.prompts: dict[int, list[int]] = {}
        self.made: dict[int, list[int]] = {}
        self.left: dict[int, int] = {}
        self.seen = Counter[str]()

    def arrive(self) -> None:
        number, prompt, output = len(self.prompts), prompt_of(self.random), self.random.randint(1, 30)
        self.prompts[number], self.made[number], self.left[number] = prompt, [], output
        hashes = HASHES(prompt)
        self.scheduler.add(number, len(prompt), output, self.random.choice([0, 0, 1]), hashes)
        self.engine.add(number, RequestOptions(prompt, output), hashes)

    def leave(self, number: int) -> None:
        self.seen["cancelled"] += 1
        self.scheduler.cancel(number)
        self.end(number)

    def end(self, number: int) -> None:
        del self.left[number]
        self.engine.release(number)

    def work(self) -> bool:
        """A pass; whether there was anything to do."""
        made = self.scheduler.decide()
        if made is None:
            return False
        self.note(made)
        came = self.engine.step(made)
        if self.clock is virtual_seconds:
            landed(self.engine)
        self.take(came)
        ended = [number for number in came.tokens if self.left[number] == 0 or self.random.random() < 0.02]
        seconds = self.clock(made, came)
        self.scheduler.observe(seconds.accelerator, seconds.cpu_attention, seconds.link)
        self.scheduler.commit(seconds.total, ended, list(came.tokens))
        for number in ended:
            self.end(number)
        self.engine.check_integrity()
        self.scheduler.check()
        return True

    def take(self, came: StepResult) -> None:
        self.seen["on the host"] += len(came.on_cpu)
        for number, token in came.tokens.items():
            self.made[number].append(token)
            self.left[number] -= 1

    def note(self, made: SchedulingDecision) -> None:
        self.seen[made.kind] += 1
        self.seen["moved"] += len(made.swap_out) + len(made.swap_in)
        self.seen["preempted"] += len(made.preempted)
        self.seen["evicted"] += len(made.evicted)
        self.seen["reused"] += sum(chunk.past > 0 for chunk in made.prefill)

    def fail(self, lane: int, nothing: DiskFile) -> None:
        """Work of a device fails, perhaps that of a cohort which is found with a later pass."""
        queue, cache = self.engine._lanes[lane], self.engine._seating.cpu
        assert queue is not None and cache is not None
        queue.read(nothing, 0, cache.buffer, 0, 4096)
        with suppress(OSError, HelmError):
            while self.work():
                pass
        self.engine.reset()
        self.scheduler.reset()
        self.left.clear()
        assert all(used == 0 for used, _ in self.engine.occupancy.values())

    def drain(self) -> None:
        """Nobody comes any more."""
        for _ in range(5000):
            if not self.work():
                break
        assert not self.left, "requests do not end"


def serve(engine: ServingEngine, policy: str, random: Random, nothing: DiskFile, passes: int, clock: Clock) -> Mixed:
    mixed, canary = Mixed(engine, policy, random, clock), Canary()
    first, lanes = canary.run(engine), [1] if engine.devices.accelerators.devices else [0, 1]
    for step in range(passes):
        if random.random() < 0.5 and len(mixed.left) < 12:
            mixed.arrive()
        if mixed.left and random.random() < 0.05:
            mixed.leave(random.choice(list(mixed.left)))
        if step == passes // 2:
            mixed.fail(random.choice(lanes), nothing)
            assert canary.run(engine) == first
        mixed.work()
    mixed.drain()
    assert mixed.scheduler.free() == tuple(total - used for used, total in engine.occupancy.values())
    return mixed


def check(alone: Alone, mixed: Mixed) -> None:
    made = [(mixed.prompts[number], made) for number, made in mixed.made.items() if made]
    equal = sum(alone.check(prompt, tokens) for prompt, tokens in made)
    assert equal >= 0.98 * sum(len(tokens) for _, tokens in made)


@pytest.fixture
def nothing(tmp_path: Path) -> DiskFile:
    """A file to read from in vain."""
    found = DiskFile(str(tmp_path / "nothing"), 4096, direct=False, create=True)
    (tmp_path / "nothing").write_bytes(b"")
    return found


def run(directory: Path, nothing: DiskFile, case: str, passes: int, clock: Clock) -> Counter[str]:
    """`case`: policy, weights and seed. What happened."""
    policy, weights, _ = case.split(", ")
    random, alone = Random(case), Alone("qwen3", directory)
    machine = replace(two_cpus(), accelerators={"cuda": ("cpu",)}) if weights == "pytorch" else Machine.this()
    limits, order = replace(LIMITS, cohorts=3, cpu_tokens=random.choice([96, 240])), random.choice(HOST_ORDERS)
    with ServingEngine.load(plan_with(weights, random), directory, machine, limits, order) as engine:
        mixed = serve(engine, policy, random, nothing, passes, clock)
    check(alone, mixed)
    return mixed.seen


@pytest.mark.parametrize("case", ["apex, one stage ahead, 6", "adaptive, one stage ahead, 3"])
def test_each_gets_what_it_gets_alone(checkpoints: Checkpoints, nothing: DiskFile, case: str) -> None:
    seen = run(checkpoints("qwen3"), nothing, case, 60, virtual_seconds)
    assert all(seen[each] for each in ("reused", "evicted", "moved", "deferred", "pipelined")), seen


@pytest.mark.nightly
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("policy", OPTIONS)
@pytest.mark.parametrize("seed", range(10))
def test_many_get_what_they_get_alone(
    checkpoints: Checkpoints, nothing: DiskFile, policy: str, weights: str, seed: int
) -> None:
    run(checkpoints("qwen3"), nothing, f"{policy}, {weights}, {seed}", 150, real_seconds)
