"""Random replicas, and requests that come in bursts and leave, for policies that use the host's attention."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np

from helmsman.scheduler import _scheduling
from helmsman.scheduler.cost import IterationCost, Line
from helmsman.scheduler.limits import Limits
from helmsman.scheduler.policies import checked_options, policy_options
from helmsman.schemas.requests import Requests, make_requests

HYBRID = ("simple-offload", "symmetric", "fastdecode-plus", "neo", "apex", "adaptive")
GPU_ONLY, SIMPLE, PIPELINED, DEFERRED = range(4)
"""Kinds of passes, as the core numbers them."""


def _line(per_unit: float) -> Line:
    return Line((0.0, 1.0), (0.0, per_unit))


def random_cost(chance: Random) -> IterationCost:
    """A host that attends 1 to 30 times as slowly as the accelerator; linear stages are flat at first."""
    flat, knee, gpu = chance.uniform(2e-4, 2e-3), chance.uniform(8, 300), chance.uniform(1e-9, 4e-8)
    pairs = chance.uniform(0.0, 1e-9)
    link = gpu * chance.uniform(1, 20)
    return IterationCost(
        layers=chance.randint(2, 40),
        linear=Line((0.0, 1.0, knee, 2 * knee), (0.0, flat, flat, 2 * flat)),
        gpu_attention=_line(gpu),
        prefill_compute=_line(pairs),
        prefill_read=_line(gpu),
        cpu_attention=_line(gpu * chance.uniform(1, 30)),
        cpu_request=chance.choice([0.0, 1e-6]),
        to_host=_line(link),
        to_device=_line(link / 2),
        swap_out=_line(link),
        swap_in=_line(link),
        ends=Line((0.0, 1.0, 64.0), (0.0, flat, 2 * flat)),
    )


def random_limits(chance: Random) -> Limits:
    """Caches of some requests at least, sometimes chunked prompts, sometimes few places."""
    return Limits(
        gpu_tokens=16 * chance.randint(8, 80),
        cpu_tokens=16 * chance.choice([0, 10, 60, 400]),
        batch_tokens=chance.choice([64, 400, 4000]),
        sequences=chance.choice([4, 64, 512]),
        chunk=chance.choice([0, 0, 48]),
    )


def random_requests(chance: Random, count: int) -> Requests:
    """Bursts; a fifth leave before they are done; some come first, and some prompts begin alike."""
    bursts = sorted(chance.uniform(0, 3) for _ in range(1 + count // 12))
    arrival = np.array(sorted(chance.choice(bursts) for _ in range(count)))
    prompt = np.array([chance.choice([5, 40, 150, 600]) + chance.randint(0, 30) for _ in range(count)])
    leave = [start + chance.expovariate(2) if chance.random() < 0.2 else np.inf for start in arrival]
    found = make_requests(
        arrival,
        prompt,
        np.array([chance.choice([1, 8, 60]) + chance.randint(0, 20) for _ in range(count)]),
        np.array([chance.choice([0, 0, 0, 1]) for _ in range(count)]),
        np.array(leave),
    )
    return _with_prefixes(chance, found) if chance.random() < 0.3 else found


def _with_prefixes(chance: Random, requests: Requests) -> Requests:
    """Prompts that begin like others, for some blocks of 32 tokens."""
    counts = requests.prompt_tokens // 32
    hashes = [
        family * 100 + place if place < shared else 1000 * (row + 1) + place
        for row, blocks in enumerate(counts)
        for family, shared in [(chance.randint(0, 2), chance.randint(0, 20))]
        for place in range(blocks)
    ]
    starts = np.concatenate([[0], np.cumsum(counts)])
    return replace(requests, hash_start=starts, hashes=np.array(hashes, np.int64), hash_block=32)


@dataclass(frozen=True)
class Case:
    """A replica, what its policy believes of it, and who comes."""

    cost: IterationCost
    believed: IterationCost
    limits: Limits
    requests: Requests
    pool: Mapping[str, str]

    def simulate(self, policy: str, *, reference: bool = False, check: bool = True, **options: str) -> dict[str, Any]:
        """Through one replica, with everything logged; cohorts as the case has them, unless `options` say otherwise."""
        mine = {name: text for name, text in self.pool.items() if name in policy_options(policy).options}
        chosen = checked_options(policy, mine | options)
        given = self.requests.columns(), self.cost, self.believed, self.limits, policy, chosen
        return _scheduling.simulate(*given, reference=reference, log=True, check=check)


def random_case(seed: int, count: int = 40) -> Case:
    """In half of the cases stages take up to three times as long as is believed, or a third (APEX-43). With up to 64
    cohorts at a time, on up to eight accelerators."""
    chance = Random(seed)
    believed = replace(random_cost(chance), stages=[1, 1, 2, 1, 3, 8][seed % 6])
    slow = [chance.uniform(1 / 3, 3) if seed % 2 else 1.0 for _ in range(4)]
    limits, requests = random_limits(chance), random_requests(chance, count)
    pool = {"cohorts": chance.choice(["1", "2", "5", "64"]), "order": chance.choice(["last", "first", "arrival"])}
    return Case(believed.scaled(*slow), believed, limits, requests, pool)
