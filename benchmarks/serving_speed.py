"""Requests per CPU second in virtual time: `python -m benchmarks.serving_speed [FILE] [--json OUT]`.

Llama-3.1-8B on one H100 with chunks of 512. `FILE`: any file of requests, Azure's conversations for one; without it,
lengths made up like theirs. `alone`: the native core; `reported`: tables and percentiles too. `a million`: that many
requests like these, and the peak memory of a process of its own. Policies run with 256 requests at a time on NEO's
A10G: passes per CPU second. Seconds are CPU seconds of one thread, the least of three."""

import argparse
import json
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import numpy as np

from benchmarks.machine import print_machine
from benchmarks.papers.sites import A10G, replica, replica_on
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.planner.serving.replica import ReplicaOptions
from helmsman.scheduler import _scheduling
from helmsman.scheduler.policies import POLICIES, checked_options
from helmsman.schemas.requests import Requests, make_requests
from helmsman.schemas.served_table import ServedInfo
from helmsman.simulator.serving.report import report
from helmsman.simulator.serving.requests.read import read_requests
from helmsman.simulator.serving.run import Setup, serve

ALIKE = "synthetic:n=19366,input=1155,output=211,rate=5.5"
MILLION = 1_000_000
INFO = ServedInfo(source="simulated", policy="gpu-only", requests="benchmark")


def setup() -> Setup:
    """One H100 that keeps up."""
    options = ReplicaOptions(chunk=512, sequences=256)
    found = replica_on(load_hardware("h100-hgx", None), "Llama-3.1-8B", options)
    return Setup(found.cost, found.cost, found.limits, "gpu-only", checked_options("gpu-only", {}))


def speeds(requests: Requests) -> dict[str, float]:
    """CPU seconds of a run, and requests per CPU second."""
    served_by = setup()
    alone, _ = least(lambda: _core(requests, served_by))
    reported, _ = least(lambda: report(serve(requests, served_by, INFO).served))
    return {
        "requests": len(requests),
        "alone_s": alone,
        "reported_s": reported,
        "requests_per_s": len(requests) / reported,
    }


def million(requests: Requests) -> dict[str, float]:
    """The same of a million requests with lengths drawn from these, as often a second."""
    random = np.random.default_rng(0)
    row = random.integers(0, len(requests), MILLION)
    gap = float(requests.arrival_s[-1]) / len(requests)
    many = make_requests(
        np.cumsum(random.exponential(gap, MILLION)), requests.prompt_tokens[row], requests.output_tokens[row]
    )
    begin = time.process_time()
    report(serve(many, setup(), INFO).served)
    return {"seconds": time.process_time() - begin, "peak_mib": getrusage(RUSAGE_SELF).ru_maxrss / 1024}


def passes(policy: str) -> dict[str, float]:
    """Passes per CPU second of a policy with 256 requests running, on a host with room for them."""
    found = replica(A10G)
    limits = replace(found.limits, cpu_tokens=600_000, sequences=256)
    random = np.random.default_rng(0)
    requests = make_requests(np.zeros(1500), random.integers(900, 1100, 1500), random.integers(150, 250, 1500))
    options = checked_options(policy, {})
    seconds, done = least(lambda: _core(requests, Setup(found.cost, found.cost, limits, policy, options)))
    count = int(done["passes"].sum())
    return {"passes": count, "passes_per_s": count / seconds}


def least(run: Callable[[], Any]) -> tuple[float, Any]:
    """The least CPU seconds of three runs, and what the last gave."""
    seconds = []
    for _ in range(3):
        begin = time.process_time()
        found = run()
        seconds.append(time.process_time() - begin)
    return min(seconds), found


def _core(requests: Requests, served_by: Setup) -> dict[str, Any]:
    return _scheduling.simulate(
        requests.columns(), served_by.cost, served_by.believed, served_by.limits, served_by.policy, served_by.options
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", default=ALIKE)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    print_machine()
    requests = read_requests(args.file)
    found: dict[str, Any] = {"trace": speeds(requests)}
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        found["a million"] = pool.submit(million, requests).result()
    found |= {policy: passes(policy) for policy in POLICIES}
    for name, row in found.items():
        print(name, *(f"{key} {value:,.3f}" for key, value in row.items()), sep="  ")
    if args.json:
        args.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
