"""KV tokens that cross the link: what the core counts and prices, against decisions followed request by request."""

from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest
from hybrid_cases import random_cost, random_limits
from iteration_times import gpu_only_seconds, pipelined_seconds, simple_seconds

from helmsman.scheduler._scheduling import Scheduler, simulate
from helmsman.scheduler.cost import IterationCost
from helmsman.scheduler.decision import SchedulingDecision
from helmsman.scheduler.pass_work import PassWork
from helmsman.scheduler.policies import checked_options
from helmsman.schemas.requests import make_requests


@dataclass
class Followed:
    """What decisions do: tokens cached by request, and the tokens that crossed the link so far.

    `left`, `returned`: of whole requests. `prompts_left`: of prompts at the host, layer by layer; `read_again`: what
    later chunks of them attend to."""

    cost: IterationCost
    prompts: list[int]
    cached: dict[int, int] = field(default_factory=dict)
    left: int = 0
    returned: int = 0
    prompts_left: int = 0
    read_again: int = 0
    at_host: int = 0

    def seconds(self, made: SchedulingDecision) -> float:
        """What the pass takes, by the closed forms; it has been made then."""
        for request in made.preempted:
            had = self.cached.pop(request)
            self.prompts[request] = had + 1 if had >= self.prompts[request] else self.prompts[request]
        first = PassWork(
            swap_out=sum(self.cached[request] for request in made.swap_out),
            swap_in=sum(self.cached[request] for request in made.swap_in),
        )
        self.left, self.returned = self.left + first.swap_out, self.returned + first.swap_in
        counts = dict.fromkeys(PassWork.__dataclass_fields__, 0) | {
            "swap_out": first.swap_out,
            "swap_in": first.swap_in,
        }
        for chunk in made.prefill:
            self._prompt(counts, chunk.id, chunk.tokens, chunk.past, chunk.home == "cpu")
        for request in made.decode0_gpu:
            counts["gpu_kv"] += self._decode(counts, request)
        self._at_host(counts, made.decode0_cpu)
        if made.kind != "pipelined":
            seconds = simple_seconds if made.kind == "simple" else gpu_only_seconds
            return seconds(self.cost, PassWork(**counts))
        second = dict.fromkeys(counts, 0)
        self._at_host(second, made.decode1_cpu)
        return pipelined_seconds(self.cost, PassWork(**counts), PassWork(**second))

    def _prompt(self, counts: dict[str, int], request: int, tokens: int, past: int, leaves: bool) -> None:
        assert self.cached.get(request, 0) == past
        self.cached[request] = past + tokens
        counts["tokens"] += tokens
        counts["outputs"] += past + tokens == self.prompts[request]
        counts["pairs"] += tokens * past + tokens * (tokens + 1) // 2
        counts["prompt_kv"] += past + tokens
        if leaves:
            counts["swap_out"] += tokens
            counts["swap_in"] += past
            self.prompts_left += tokens
            self.read_again += past

    def _decode(self, counts: dict[str, int], request: int) -> int:
        self.cached[request] += 1
        counts["tokens"] += 1
        counts["outputs"] += 1
        return self.cached[request]

    def _at_host(self, counts: dict[str, int], requests: tuple[int, ...]) -> None:
        counts["cpu_kv"] += sum(self._decode(counts, request) for request in requests)
        counts["cpu_requests"] += len(requests)
        self.at_host += len(requests)


def followed(seed: int, policy: str) -> Followed:
    """Requests that come at once, through a simulation and decision by decision: the same counts and times."""
    chance = Random(seed)
    cost, limits = random_cost(chance), random_limits(chance)
    count, options = 40, checked_options(policy, {})
    prompts = [chance.choice([5, 40, 150, 600]) + chance.randint(0, 30) for _ in range(count)]
    outputs = [chance.choice([2, 8, 60]) + chance.randint(0, 20) for _ in range(count)]
    requests = make_requests(np.zeros(count), np.array(prompts), np.array(outputs))
    found = simulate(requests.columns(), cost, cost, limits, policy, options)
    scheduler, here, now = Scheduler(cost, limits, policy, options), Followed(cost, list(prompts)), 0.0
    for number in np.flatnonzero(np.isfinite(found["finish_s"])):
        scheduler.add(int(number), prompts[number], outputs[number])
    while (made := scheduler.decide()) is not None:
        seconds = here.seconds(made)
        scheduler.commit(seconds)
        now += seconds
    assert found["swapped_out"].sum() == here.left + here.prompts_left
    assert found["swapped_in"].sum() == here.returned + here.read_again
    assert np.nanmax(found["finish_s"], initial=0.0) == pytest.approx(now, rel=1e-9)
    return here


@pytest.mark.parametrize("policy", ["simple-offload", "symmetric", "fastdecode-plus", "neo"])
def test_what_crosses_the_link_is_counted_and_waited_for(policy: str) -> None:
    """More comes back than goes: tokens made at the host come too, and chunks read again what left before them."""
    all_of_them = [followed(seed, policy) for seed in range(12)]
    assert sum(each.prompts_left for each in all_of_them) > 0 < sum(each.read_again for each in all_of_them)
    assert (sum(each.returned for each in all_of_them) > 0) == (policy == "neo"), "who else brings nobody back"
    for each in all_of_them:
        assert each.returned <= each.left + each.prompts_left + each.at_host
