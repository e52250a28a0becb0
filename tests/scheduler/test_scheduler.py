"""The scheduler that executors ask, against the simulation that has the same policies."""

from collections.abc import Iterator
from random import Random

import numpy as np
import pytest
from hybrid_cases import random_cost as hybrid_cost
from serving_cases import random_case, random_cost

from helmsman.scheduler import _scheduling
from helmsman.scheduler._scheduling import Scheduler
from helmsman.scheduler.cost import IterationCost, Line
from helmsman.scheduler.decision import SchedulingDecision
from helmsman.scheduler.limits import Limits
from helmsman.scheduler.pass_work import PassWork
from helmsman.scheduler.policies import POLICIES, checked_options
from helmsman.schemas.requests import make_requests

LIMITS = Limits(gpu_tokens=320, cpu_tokens=960, batch_tokens=64, sequences=8)
ON_GPU = {"preemption": "recompute"}


def _all_at_once(random: Random, count: int) -> tuple[list[int], list[int]]:
    return [random.randint(1, 60) for _ in range(count)], [random.randint(1, 40) for _ in range(count)]


class Runner:
    """Runs decisions in no time: it knows what each request has cached, and who yields."""

    def __init__(self, prompts: list[int], outputs: list[int]) -> None:
        self.prompt, self.output = dict(enumerate(prompts)), dict(enumerate(outputs))
        self.cached = dict.fromkeys(self.prompt, 0)
        self.made = dict.fromkeys(self.prompt, 0)

    def work(self, made: SchedulingDecision) -> PassWork:
        """What a pass on the accelerator alone has to do."""
        ends = sum(chunk.past + chunk.tokens == self.to_cache(chunk.id) for chunk in made.prefill)
        return PassWork(
            tokens=len(made.decode0_gpu) + sum(chunk.tokens for chunk in made.prefill),
            outputs=len(made.decode0_gpu) + ends,
            gpu_requests=len(made.decode0_gpu),
            gpu_kv=sum(self.cached[each] + 1 for each in made.decode0_gpu),
            pairs=sum(c.tokens * c.past + c.tokens * (c.tokens + 1) // 2 for c in made.prefill),
            prompt_kv=sum(chunk.past + chunk.tokens for chunk in made.prefill),
        )

    def to_cache(self, request: int) -> int:
        return self.prompt[request] + self.made[request]

    def run(self, made: SchedulingDecision) -> list[int]:
        """Who yields a token."""
        for each in made.preempted:
            self.cached[each] = 0
        for chunk in made.prefill:
            assert self.cached[chunk.id] == chunk.past, "chunks go on where the cache ends"
            self.cached[chunk.id] += chunk.tokens
        decodes = [*made.decode0_gpu, *(() if made.kind == "deferred" else made.decode0_cpu), *made.decode1_cpu]
        for each in decodes:
            assert self.cached[each] + 1 == self.to_cache(each), "only its last token is not cached"
            self.cached[each] += 1
        yields = decodes + [chunk.id for chunk in made.prefill if self.cached[chunk.id] == self.to_cache(chunk.id)]
        for each in yields:
            self.made[each] += 1
        return yields


def _decisions(scheduler: Scheduler) -> Iterator[SchedulingDecision]:
    while (made := scheduler.decide()) is not None:
        yield made


def test_passes_are_those_of_the_simulation() -> None:
    random = Random(1)
    cost, (prompts, outputs) = random_cost(random), _all_at_once(random, 40)
    scheduler, runner, now = Scheduler(cost, LIMITS, "gpu-only", ON_GPU), Runner(prompts, outputs), 0.0
    for request, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
        scheduler.add(request, prompt, output)
    finish, preempted = np.full(40, np.nan), 0
    for made in _decisions(scheduler):
        seconds = _scheduling.pass_times(cost, made.kind, runner.work(made), PassWork(), [])[0]
        now, preempted = now + seconds, preempted + len(made.preempted)
        for each in runner.run(made):
            finish[each] = now
        scheduler.commit(seconds)
        scheduler.check()
    requests = make_requests(np.zeros(40), np.array(prompts), np.array(outputs))
    found = _scheduling.simulate(requests.columns(), cost, cost, LIMITS, "gpu-only", ON_GPU)
    assert runner.made == runner.output
    assert preempted == found["preemptions"].sum() > 0
    np.testing.assert_allclose(finish, found["finish_s"], rtol=1e-9)


def test_seconds_of_observed_passes_are_summed_as_priced_and_as_they_took() -> None:
    """A pass that nobody observed counts in neither sum."""
    cost, (prompts, outputs) = random_cost(Random(3)), _all_at_once(Random(3), 4)
    scheduler, runner, priced = Scheduler(cost, LIMITS, "gpu-only", ON_GPU), Runner(prompts, outputs), np.zeros(3)
    for request, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
        scheduler.add(request, prompt, output)
    for count, made in enumerate(_decisions(scheduler)):
        work = runner.work(made)
        if count % 2:
            priced += _scheduling.pass_times(cost, made.kind, work, PassWork(), [])[:3]
            scheduler.observe(2.0, 1.0, 0.5)
        runner.run(made)
        scheduler.commit(3.0)
    found, took = scheduler.pass_sums
    assert count > 4 and found == pytest.approx(tuple(priced))
    assert took == tuple((count + 1) // 2 * seconds for seconds in (3.0, 2.0, 1.0))


@pytest.mark.parametrize("shared_host", [0.0, 0.9])
def test_cohorts_are_as_slow_as_in_the_simulation(shared_host: float) -> None:
    """Where the accelerator reads the same memory the host gets less done in a pass: later layers, more passes."""
    cost = IterationCost(
        layers=4,
        linear=Line((0.0, 1.0, 64.0, 1000.0), (0.0, 1e-3, 1e-3, 2e-2)),
        gpu_attention=_rising(1e-6),
        prefill_compute=_rising(1e-9),
        prefill_read=_rising(1e-8),
        cpu_attention=_rising(2e-5),
        cpu_request=0.0,
        to_host=_rising(1e-6),
        to_device=_rising(1e-6),
        swap_out=_rising(1e-7),
        swap_in=_rising(1e-7),
        ends=_rising(1e-5),
        shared_host=shared_host,
    )
    limits = Limits(gpu_tokens=720, cpu_tokens=4000, batch_tokens=64, sequences=24)
    options, outputs = checked_options("apex", {"threshold": 0.0}), [120] * 8 + [20] * 2
    requests = make_requests(np.zeros(10), np.full(10, 50), np.array(outputs))
    found = _scheduling.simulate(requests.columns(), cost, cost, limits, "apex", options)
    taken: list[float] = []
    while (price := _next_price(Scheduler(cost, limits, "apex", options), outputs, taken)) is not None:
        taken.append(price)
    assert sum(taken) == pytest.approx(found["finish_s"].max())


def _rising(slope: float) -> Line:
    return Line((0.0, 1.0, 1e6), (0.0, slope, 1e6 * slope))


def _next_price(scheduler: Scheduler, outputs: list[int], taken: list[float]) -> float | None:
    """Return the predicted seconds of the pass after those that took `taken` seconds; None where no pass is left. All
    requests arrive at once."""
    for request, output in enumerate(outputs):
        scheduler.add(request, 50, output)
    for seconds in taken:
        scheduler.decide()
        scheduler.commit(seconds)
    if scheduler.decide() is None:
        return None
    scheduler.observe(0.0, 0.0, 0.0)
    scheduler.commit(1.0)
    return scheduler.pass_sums[0][0]


@pytest.mark.parametrize("policy", POLICIES)
def test_sums_hold_whatever_happens(policy: str) -> None:
    """Requests come, stop early and go away, also while a pass runs; passes fail; hosts are slower than believed."""
    random = Random(policy)
    case = random_case(2, policy)
    scheduler = Scheduler(case.cost, LIMITS, policy, checked_options(policy, {}))
    live: set[int] = set()
    for request in range(300):
        scheduler.add(request, random.randint(1, 100), random.randint(1, 60), random.randint(0, 1))
        live.add(request)
        made = scheduler.decide()
        if random.random() < 0.2:
            scheduler.cancel(random.randrange(request + 1))
        if made is None or random.random() < 0.1:
            continue
        everybody = [*made.decode0_gpu, *made.decode0_cpu, *made.decode1_cpu]
        scheduler.observe(random.random(), random.random(), random.random())
        came = made.decode0_cpu if random.random() < 0.1 else ()
        scheduler.commit(0.01 * random.random(), [each for each in everybody if random.random() < 0.05], list(came))
        scheduler.check()
        assert scheduler.running <= LIMITS.sequences
    for request in live:
        scheduler.cancel(request)
    assert scheduler.decide() is None and (scheduler.running, scheduler.waiting) == (0, 0)
    assert scheduler.free() == (LIMITS.gpu_tokens // LIMITS.block, LIMITS.cpu_tokens // LIMITS.block)


def test_passes_of_two_sub_batches_that_take_cohorts_on_have_room_for_all_rows() -> None:
    """Prompts that leave for the host fill passes, and a cohort goes on in what they leave."""
    limits = Limits(gpu_tokens=64, cpu_tokens=6400, batch_tokens=64, sequences=64)
    for seed in range(6):
        random = Random(seed)
        scheduler = Scheduler(hybrid_cost(random), limits, "adaptive", checked_options("adaptive", {}))
        for request in range(100):
            prompt = random.randint(1, random.choice([20, 400]))
            scheduler.add(request, prompt, random.randint(1, 40))
            made = scheduler.decide()
            assert made is not None
            rows = sum(chunk.tokens for chunk in made.prefill) + len(made.decode0_gpu)
            assert made.kind == "deferred" or rows + len(made.decode0_cpu) + len(made.decode1_cpu) <= 64
            scheduler.observe(random.random(), random.random(), random.random())
            scheduler.commit(0.1 * random.random())


def test_tokens_of_a_cohort_come_when_the_runner_says() -> None:
    """Few requests fit the accelerator, so APEX defers the others, and nobody waits for the host."""
    cost = random_cost(Random(4))
    limits = Limits(gpu_tokens=64, cpu_tokens=32_000, batch_tokens=512, sequences=200)
    options = checked_options("apex", {"threshold": "1"})
    scheduler = Scheduler(cost, limits, "apex", options)
    for request in range(100):
        scheduler.add(request, 8, 40)
    deferred = 0
    for _ in range(2000):
        made = scheduler.decide()
        assert made is not None
        if made.kind == "deferred":
            deferred += 1
            scheduler.commit(100.0, (), list(made.decode0_gpu))
            again = scheduler.decide()
            assert again is not None
            assert again.kind != "deferred" or set(again.decode0_cpu) == set(made.decode0_cpu)
        scheduler.commit(1e-3, (), [])
        if deferred > 3:
            return
    pytest.fail("nothing was deferred")


def test_what_cannot_be_is_refused() -> None:
    scheduler = Scheduler(random_cost(Random(0)), LIMITS, "gpu-only", ON_GPU)
    scheduler.add(5, 10, 10)
    with pytest.raises(ValueError, match="numbered"):
        scheduler.add(5, 10, 10)
    with pytest.raises(ValueError, match="no cache has room"):
        scheduler.add(6, 300, 22)
    with pytest.raises(RuntimeError, match="no pass"):
        scheduler.commit(1.0)
    assert scheduler.decide() is not None


def test_a_pass_that_was_not_committed_is_decided_again() -> None:
    scheduler = Scheduler(random_cost(Random(0)), LIMITS, "gpu-only", ON_GPU)
    scheduler.add(0, 10, 10)
    first = scheduler.decide()
    assert first == scheduler.decide() is not None
    scheduler.commit(0.1)
    scheduler.check()
    assert scheduler.free()[0] == LIMITS.gpu_tokens // LIMITS.block - 1
