"""Attention on a CPU that is reached over a network (NEO-43): what neo gains there, and when it leaves it alone."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from served_plans import layer_split

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.planner.serving.iteration_cost import ReplicaCost, replica_cost
from helmsman.scheduler._scheduling import simulate
from helmsman.scheduler.policies import POLICIES, checked_options
from helmsman.schemas.figures import Figure
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.requests import make_requests
from helmsman.schemas.served_table import FINISHED

LOCAL = "a10g-g5.4xlarge"
COUNT = 100


def _remote(bandwidth: float, latency: float) -> Hardware:
    """The same host at the other end of a network of `bandwidth` bytes/s and `latency` seconds."""
    machine = load_hardware(LOCAL, None)

    def exactly(figure: Figure, value: float) -> Figure:
        return figure.model_copy(update={"value": value, "p10": value, "p90": value})

    links = tuple(
        link.model_copy(
            update={"bandwidth": exactly(link.bandwidth, bandwidth), "latency": exactly(link.latency, latency)}
        )
        for link in machine.links
    )
    return machine.model_copy(update={"links": links})


@cache
def _site(bandwidth: float, latency: float) -> ReplicaCost:
    machine = _remote(bandwidth, latency) if bandwidth else LOCAL
    return replica_cost(layer_split("Llama-3.1-8B", machine))


def _seconds(site: ReplicaCost, policy: str) -> tuple[float, int]:
    """Until all requests are served, and tokens whose attention was on the host."""
    chance = np.random.default_rng(0)
    asked = make_requests(np.zeros(COUNT), chance.integers(900, 1100, COUNT), chance.integers(180, 220, COUNT))
    options = checked_options(policy, {})
    found = simulate(asked.columns(), site.cost, site.cost, site.limits, policy, options)
    return float(np.nanmax(found["finish_s"])), int(found["cpu_tokens"].sum())


def _gain(site: ReplicaCost) -> float:
    return _seconds(site, "gpu-only")[0] / _seconds(site, "neo")[0]


def test_a_fast_network_gains_what_the_machines_own_link_does() -> None:
    local, remote = _gain(_site(0, 0)), _gain(_site(12.5e9, 30e-6))
    assert local > 1.05 and remote == pytest.approx(local, abs=0.01)


@pytest.mark.parametrize("policy", [name for name, each in POLICIES.items() if each.homes == ("gpu", "cpu")])
def test_over_a_slow_network_the_accelerator_works_as_if_alone(policy: str) -> None:
    """1 Gb/s: caches are computed again sooner than they are there and back."""
    site = _site(0.125e9, 100e-6)
    assert _seconds(site, policy) == (_seconds(site, "gpu-only")[0], 0)


def test_accelerators_of_a_pipeline_move_caches_over_links_of_their_own() -> None:
    """A network that is half as fast as it must be for one accelerator is fast enough for four."""
    site = _site(0.5e9, 100e-6)
    four = replace(site, cost=replace(site.cost, stages=4))
    assert _seconds(site, "neo")[1] == 0 < _seconds(four, "neo")[1]


def test_who_is_too_long_for_the_accelerators_cache_goes_over_any_network() -> None:
    site = _site(0.125e9, 100e-6)
    limits = replace(site.limits, gpu_tokens=160)
    asked = make_requests(np.zeros(3), np.array([200, 100, 20]), np.array([5, 100, 20]))
    options = checked_options("neo", {})
    found = simulate(asked.columns(), site.cost, site.cost, limits, "neo", options, check=True)
    assert (found["status"] == FINISHED).all()
    assert (found["cpu_tokens"] > 0).tolist() == [True, True, False]
