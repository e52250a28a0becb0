"""What stages of a pipeline do for attention on the host: `python -m benchmarks.pipeline_stages` (simulated).

Llama-3.1-70B in 4 bits on 1, 2, 4 and 8 of eight H100 with all of their host: 200 requests of 1,000 + 200 tokens at
once. The accelerators' caches have 30,000 tokens whatever their number: an eighth of what is asked for."""

import numpy as np

from helmsman.hwdb.compose import compose
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.placement import Placement
from helmsman.planner.cost.model import CostModel
from helmsman.planner.machine import roles
from helmsman.planner.serving.iteration_cost import replica_cost
from helmsman.planner.serving.replica import ReplicaOptions
from helmsman.planner.strategies.layer_rules import SplitQuestion
from helmsman.planner.strategies.layer_split import LayerSplit
from helmsman.scheduler import _scheduling
from helmsman.scheduler.policies import checked_options
from helmsman.schemas.requests import make_requests
from helmsman.schemas.workload import Workload

REQUESTS, PROMPT, OUTPUT = 200, 1000, 200
POLICIES: dict[str, dict[str, str]] = {"gpu-only": {}, "apex": {"threshold": "0"}}


def plan() -> Placement:
    """All layers on one accelerator."""
    hardware = compose("8x H100 SXM 80GB", "2x Intel Xeon Platinum 8462Y+", 2 * 10**12, None, peer=360e9)
    options = SplitQuestion(weights="q4", kv="f16", objective="latency")
    costs = CostModel(hardware)
    return LayerSplit(load_model("Llama-3.1-70B"), roles(hardware), Workload(), options, costs).placement(0)


def row(placed: Placement, stages: int, policy: str) -> str:
    """One run: tokens a second, where tokens came from, and passes that were deferred."""
    options = ReplicaOptions(pipeline_parallel=stages, gpu_tokens=30_000, cpu_tokens=200_000, host_share=1.0)
    found, chosen = replica_cost(placed, options), checked_options(policy, POLICIES[policy])
    requests = make_requests(np.zeros(REQUESTS), np.full(REQUESTS, PROMPT), np.full(REQUESTS, OUTPUT))
    served = _scheduling.simulate(requests.columns(), found.cost, found.cost, found.limits, policy, chosen)
    rate = REQUESTS * OUTPUT / served["finish_s"].max()
    share = served["cpu_tokens"].sum() / served["produced"].sum()
    passes = served["passes"][0]
    return f"{stages} {policy:<9}{rate:6.0f} tok/s {share:6.1%} at the host {passes[3] / passes.sum():6.1%} deferred"


def main() -> None:
    """One line for each number of stages and policy."""
    placed = plan()
    for stages in (1, 2, 4, 8):
        for policy in POLICIES:
            print(row(placed, stages, policy))


if __name__ == "__main__":
    main()
