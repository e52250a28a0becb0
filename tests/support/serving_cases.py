"""Random workloads, costs and limits for the scheduling core, and its results in a form that can be compared."""

from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random
from typing import Any

import numpy as np

from helmsman.scheduler import _scheduling
from helmsman.scheduler.cost import IterationCost, Line
from helmsman.scheduler.limits import Limits
from helmsman.scheduler.policies import POLICIES, Value, checked_options
from helmsman.schemas.requests import Floats, Requests, make_requests

ROUTERS = ("round-robin", "least-loaded", "prefix-aware")


@dataclass(frozen=True)
class Case:
    """Requests, who serves them, and how."""

    requests: Requests
    cost: IterationCost
    limits: Limits
    policy: str
    options: dict[str, Value]
    replicas: int
    router: str

    def run(self, **mode: bool) -> dict[str, Any]:
        """What the core finds; every pass is checked."""
        return _scheduling.simulate(
            self.requests.columns(),
            self.cost,
            self.cost,
            self.limits,
            self.policy,
            self.options,
            self.replicas,
            self.router,
            log=True,
            check=True,
            **mode,
        )


def random_case(seed: int, policy: str | None = None, most: int = 150) -> Case:
    """Up to `most` requests: bursts, round times, cancels, priorities, prefixes; caches too small, slow sides;
    pipelines of up to eight accelerators."""
    random = Random(f"{seed} {policy}")
    name = policy or random.choice(list(POLICIES))
    block = random.choice([1, 4, 16])
    limits = Limits(
        gpu_tokens=random.choice([400, 2000, 20000]),
        cpu_tokens=random.choice([0, 1000, 20000]) if name == "gpu-only" else random.choice([500, 2000, 20000]),
        batch_tokens=random.choice([64, 512, 4096]),
        sequences=random.choice([1, 4, 16, 256]),
        block=block,
        chunk=random.choice([0, 32, 512]),
    )
    stages = Random(f"stages {seed}").choice([1, 1, 1, 2, 3, 5, 8])
    given = {"preemption": random.choice(["recompute", "swap"])} if name == "gpu-only" else {}
    return Case(
        random_requests(random, random.randint(1, most), block),
        replace(random_cost(random), stages=stages),
        limits,
        name,
        checked_options(name, given),
        random.choice([1, 1, 2, 3]),
        random.choice(ROUTERS),
    )


def with_states(case: Case, seed: int) -> Case:
    """The same where requests keep states, of which up to eight are kept for prompts that begin alike."""
    random = Random(f"states {seed}")
    copied, out, back = (random.choice([0.0, random.uniform(0.0, 0.02)]) for _ in range(3))
    cost = replace(case.cost, state_copy=copied, state_out=out, state_in=back)
    limits = replace(case.limits, states=True, snapshots=random.choice([0, 1, 2, 8]))
    return replace(case, cost=cost, limits=limits)


def in_closed_loop(case: Case, seed: int) -> Case:
    """The same requests, sent by up to 40 users who think for no time, always as long, or as it comes."""
    random, requests, count = Random(f"users {seed}"), case.requests, len(case.requests)
    mean = random.choice([0.0, 0.1, 2.0])
    fixed, users = random.random() < 0.3, random.randint(1, 40)

    def think() -> float:
        return mean if fixed else mean * random.expovariate(1.0)

    closed = replace(
        requests,
        arrival_s=np.zeros(count),
        cancel_s=requests.cancel_s - requests.arrival_s,
        starts_s=np.sort([think() for _ in range(users)]),
        think_s=np.array([think() for _ in range(count)]),
    )
    return replace(case, requests=closed)


def random_requests(random: Random, count: int, block: int) -> Requests:
    """`count` requests; some workloads have prefixes in blocks of a few times `block`."""
    arrival = _arrivals(random, count)
    prompts = [random.randint(1, random.choice([20, 300, 1500])) for _ in range(count)]
    outputs = [random.choice([1, random.randint(1, 20), random.randint(1, 300)]) for _ in range(count)]
    ranked, leaving = random.random() < 0.3, random.random() < 0.5
    found = make_requests(
        np.array(arrival),
        np.array(prompts),
        np.array(outputs),
        np.array([random.randint(0, 2) if ranked else 0 for _ in range(count)]),
        np.array([_cancel(random, at) if leaving else np.inf for at in arrival]),
    )
    return _with_prefixes(random, found, block * random.randint(1, 4)) if random.random() < 0.4 else found


def _arrivals(random: Random, count: int) -> list[float]:
    burst, whole, scale = random.random() < 0.5, random.random() < 0.3, random.choice([0.01, 0.1, 1.0])
    gaps = [0.0 if burst and random.random() < 0.8 else random.expovariate(1) * scale for _ in range(count)]
    return [round(at, 1) if whole else at for at in accumulate(gaps)]


def _cancel(random: Random, arrival: float) -> float:
    return arrival + random.random() * random.choice([0.1, 3.0, 30.0]) if random.random() < 0.2 else np.inf


def _with_prefixes(random: Random, found: Requests, hash_block: int) -> Requests:
    """Requests of a few families, whose prompts are alike up to some block."""
    hashes: list[int] = []
    start = [0]
    for prompt in found.prompt_tokens:
        family, alike = random.randint(0, 5), random.randint(0, 20)
        blocks = random.randint(0, -(-int(prompt) // hash_block))
        hashes += [1000 * family + i if i < alike else random.randint(10**6, 10**9) for i in range(blocks)]
        start.append(len(hashes))
    columns = found.columns() | {"hash_start": np.array(start), "hashes": np.array(hashes, np.int64)}
    return Requests(**{**columns, "hash_block": hash_block})


def random_cost(random: Random) -> IterationCost:
    """Lines of up to five knots after (0, 0); attention may cost nothing or dominate."""

    def line(top: int, scale: float) -> Line:
        count = random.randint(1, 5)
        x = sorted(random.sample(range(1, top), count))
        return Line((0.0, *map(float, x)), (0.0, *sorted(random.random() * scale for _ in x)))

    return IterationCost(
        layers=random.randint(1, 40),
        linear=line(random.choice([10, 300, 3000]), 1e-3),
        gpu_attention=line(random.choice([50, 5000]), random.choice([0.0, 1e-4, 2e-3])),
        prefill_compute=line(100_000, 1e-3),
        prefill_read=line(3000, 1e-3),
        cpu_attention=line(3000, random.choice([1e-4, 1e-3])),
        cpu_request=1e-6 * random.random(),
        to_host=line(30, 1e-4),
        to_device=line(30, 1e-4),
        swap_out=line(3000, 1e-3),
        swap_in=line(3000, 1e-3),
        ends=line(30, 1e-3),
        gpu_request=random.choice([0.0, 1e-6]),
    )


def all_gaps(found: dict[str, Any]) -> Floats:
    """Every gap between two tokens of a request, ascending."""
    runs = zip(found["itl_first_s"], found["itl_step_s"], found["itl_steps"], found["itl_weight"], strict=True)
    gaps = [np.repeat(first + step * np.arange(steps), weight) for first, step, steps, weight in runs]
    return np.sort(np.concatenate([np.zeros(0), *gaps]))
