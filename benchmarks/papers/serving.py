"""One system serving requests on one site: a policy over the costs that the planner finds there."""

from dataclasses import dataclass, replace

import numpy as np

from benchmarks.papers.loads import SEED, at_rate
from benchmarks.papers.sites import Site, replica
from helmsman.planner.serving.iteration_cost import ReplicaCost
from helmsman.scheduler.policies import checked_options
from helmsman.schemas.requests import Floats, Requests
from helmsman.schemas.served_table import ServedInfo
from helmsman.schemas.serving import ServingReport
from helmsman.simulator.serving.bisection import bisect_rate
from helmsman.simulator.serving.metrics import per_token
from helmsman.simulator.serving.report import report
from helmsman.simulator.serving.run import Outcome, Setup, serve


@dataclass(frozen=True, slots=True)
class System:
    """What the papers call a system: a policy, its options, and how many tokens of prompts pass at a time (0: all).

    `spare_layer`: of the cache that a run was given, a layer is where prompts pass on their way to the host;
    `host_time`: its own kernel takes so many times as long for attention on the host as the record says."""

    name: str
    policy: str
    chunk: int = 0
    options: tuple[tuple[str, str], ...] = ()
    spare_layer: bool = False
    host_time: float = 1.0


VLLM = System("vLLM", "gpu-only", 512)
"""With --enable-chunked-prefill (NEO 5.1), whose passes then had 512 tokens."""
SWIFT = System("SwiftLLM", "gpu-only", options=(("preemption", "swap"),))
"""GPU-only: what NEO and APEX are built on; whole prompts, and the last to come is swapped out (its scheduler.py)."""
NEO = System("NEO", "neo", spare_layer=True)
FASTDECODE = System("FastDecode+", "fastdecode-plus", spare_layer=True)
"""With --extra-layer-for-cprf (NEO's server.py)."""
APEX = System("APEX", "apex")
NEO_BY_APEX = replace(NEO, host_time=2.0)
"""Beside APEX, whose kernel is up to twice as fast with large batches (APEX 4.1, APEX-29): the most that it says."""
STEADY = (0.3, 0.7)
"""Of all that end, what NEO's evaluation counts: neither the beginning nor the end of a run (its illustrator.py)."""


def served_by(site: Site, system: System) -> ReplicaCost:
    """What passes cost `system` on the site, and what fits."""
    found = replica(site, system.chunk)
    found = replace(found, cost=found.cost.scaled(cpu_attention=system.host_time))
    if not (system.spare_layer and site.gpu_tokens):
        return found
    layers, block = found.cost.layers, found.limits.block
    blocks = found.limits.gpu_tokens // block * layers // (layers + 1)
    return replace(found, limits=replace(found.limits, gpu_tokens=blocks * block))


def outcome(site: Site, system: System, requests: Requests) -> Outcome:
    """What became of every request."""
    found = served_by(site, system)
    options = checked_options(system.policy, dict(system.options))
    setup = Setup(found.cost, found.cost, found.limits, system.policy, options)
    about = ServedInfo(source="simulated", policy=system.policy, options=options, requests=site.name, seed=SEED)
    return serve(requests, setup, about)


def run(site: Site, system: System, requests: Requests) -> ServingReport:
    """Latencies, throughput, and who was busy."""
    found = outcome(site, system, requests)
    return report(found.served, activity=found.activity)


def throughput(site: Site, system: System, requests: Requests) -> float:
    """Output tokens a second, all requests at once."""
    return run(site, system, requests).throughput.output_tokens


def steady(site: Site, system: System, requests: Requests) -> float:
    """Requests a second, all at once, between the ends of 30 and 70 % of them: NEO's throughput."""
    ends = np.sort(outcome(site, system, requests).served.finish_s)
    first, last = (round(share * len(ends)) for share in STEADY)
    return (last - first) / float(ends[last] - ends[first])


def latencies(site: Site, system: System, requests: Requests, rate: float) -> Floats:
    """Seconds an output token of every request, at so many requests a second."""
    return per_token(outcome(site, system, at_rate(requests, rate)).served)


def latency(site: Site, system: System, requests: Requests, rate: float) -> float:
    """The papers' per-token latency: the mean of them."""
    return float(latencies(site, system, requests, rate).mean())


def load_at(site: Site, system: System, requests: Requests, limit: float) -> float:
    """The highest rate at which the per-token latency is within `limit` seconds. Raises InfeasibleError."""

    def keeps(rate: float) -> bool:
        return latency(site, system, requests, rate) <= limit

    guess = run(site, system, requests).throughput.requests
    return bisect_rate(keeps, guess, SEED).keeps
