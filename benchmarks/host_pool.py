"""What a pool of the host's tasks brings apex (APEX-40), in virtual time: `python -m benchmarks.host_pool`.

Each row: a site with a host whose attention takes so many times as long as by the record, requests at a rate, and
means over seeds for 1, 2, 4 and 16 cohorts: output tokens a second, seconds a request, seconds a token of those on the
host, the host's busy share, and the share of passes that are deferred."""

import argparse
import json
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.papers.sites import APEX_A10, APEX_T4, Site, replica
from helmsman.scheduler._scheduling import simulate
from helmsman.scheduler.policies import checked_options
from helmsman.simulator.serving.requests.read import read_requests

COHORTS, SEEDS = (1, 2, 4, 16), 5


@dataclass(frozen=True)
class Row:
    """`host_time`: of the host's attention; `threshold`: apex's."""

    site: Site
    host_time: float
    requests: str
    threshold: str
    order: str = "last"


ROWS = (
    Row(APEX_A10, 1.0, "synthetic:n=400,input=1000,output=300,rate=3", "8"),
    Row(APEX_A10, 16.0, "synthetic:n=400,input=1000,output=300,rate=3", "1"),
    Row(APEX_T4, 16.0, "synthetic:n=400,input=500,output=100,rate=1", "8"),
    Row(APEX_T4, 16.0, "synthetic:n=400,input=500,output=100,rate=1", "1"),
    Row(APEX_T4, 32.0, "synthetic:n=400,input=100,output=300,rate=2", "1"),
    Row(APEX_T4, 32.0, "synthetic:n=400,input=100,output=300,rate=2", "1", "first"),
    Row(APEX_T4, 32.0, "synthetic:n=400,input=100,output=300,arrivals=all-at-once", "1"),
)


def measure(row: Row, cohorts: int, seed: int) -> list[float]:
    """Tokens/s, seconds a request, seconds a token on the host, busy share, deferred share."""
    found, requests = replica(replace(row.site, host_time=row.host_time)), read_requests(row.requests, seed)
    options = checked_options("apex", {"threshold": row.threshold, "cohorts": str(cohorts), "order": row.order})
    made = simulate(requests.columns(), found.cost, found.cost, found.limits, "apex", options)
    on_host, passes = made["cpu_tokens"] > 0, made["passes"][0]
    token = (made["finish_s"] - made["first_token_s"]) / (requests.output_tokens - 1)
    return [
        float(requests.output_tokens.sum() / (made["finish_s"].max() - requests.arrival_s[0])),
        float((made["finish_s"] - requests.arrival_s).mean()),
        float(token[on_host].mean()) if on_host.any() else 0.0,
        float(made["cpu_s"][0] / made["busy_s"][0]),
        float(passes[3] / passes.sum()),
    ]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="what a pool of the host's tasks brings apex")
    parser.add_argument("--json", type=Path)
    args, table = parser.parse_args(), []
    for row, cohorts in product(ROWS, COHORTS):
        means = np.mean([measure(row, cohorts, seed) for seed in range(SEEDS)], axis=0).tolist()
        table.append({"row": f"{row}", "cohorts": cohorts, "means": means})
        what = f"{row.site.name} host x{row.host_time:g} {row.requests} threshold={row.threshold} {row.order}"
        print(what, cohorts, *(f"{value:.3f}" for value in means))
    if args.json:
        args.json.write_text(json.dumps(table, indent=2))


if __name__ == "__main__":
    main()
