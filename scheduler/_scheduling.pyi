"""The contract of the native scheduling core. Seconds, tokens; costs, limits and work are those of this room."""

from collections.abc import Mapping
from typing import Any

from helmsman.scheduler.cost import IterationCost
from helmsman.scheduler.iteration_times import Work
from helmsman.scheduler.limits import Limits

def simulate(
    columns: Mapping[str, Any],
    cost: IterationCost,
    believed: IterationCost,
    limits: Limits,
    policy: str,
    options: Mapping[str, bool | int | float | str],
    replicas: int = 1,
    router: str = "round-robin",
    reference: bool = False,
    log: bool = False,
    check: bool = False,
) -> dict[str, Any]:
    """Requests (the columns of `schemas.requests.Requests`, which have been checked) through replicas in virtual time.

    `cost` is what passes take, `believed` what the policy takes them to. `options`: all of the policy's own, checked
    (`scheduler.policies`). `router`: round-robin, least-loaded or prefix-aware. `reference`: every pass on its own
    instead of runs of decodes in closed form. `log`: keep the order of events. `check`: compare all sums with what
    requests say after every pass.

    Arrays by name; n requests, r replicas (ids of passes' kinds: gpu-only, simple, pipelined, deferred):
    - (n): started_s, first_token_s, finish_s (nan where it did not come to that; of cancelled ones when they left);
      produced, cpu_tokens, preemptions, reused_tokens; replica (-1: none); status (a place in schemas.served.STATUSES)
    - gaps between tokens, as schemas.served.Gaps: itl_first_s, itl_step_s, itl_steps, itl_weight, itl_on_cpu
    - (r): busy_s, gpu_s, cpu_s, link_s (in passes, and by side); gpu_kv_s, cpu_kv_s (integrals over time of the KV
      tokens that requests hold); gpu_blocks, cpu_blocks (most that they hold at a time); swapped_out, swapped_in (KV tokens);
      jumps (runs taken in closed form); passes (r, 4) by kind
    - samples of the KV tokens that requests hold, of a replica from a time on, at most 4,096 of each: kv_replica,
      kv_at_s, kv_gpu_tokens, kv_cpu_tokens
    - with `log`, by replica and in order: event_s, event_request, event (0 started, 1 first token, 2 swapped out,
      3 swapped in, 4 preempted, 5 finished, 6 cancelled, 7 rejected)

    Raises ValueError for a name or option that does not exist, RuntimeError where a policy does what it must not."""

def pass_times(
    cost: IterationCost, kind: str, first: Work, second: Work, cohort: Work, done_layers: int = 0
) -> tuple[float, float, float, float]:
    """(seconds, accelerator, host, link) of a pass: how long it takes, and each side works in it.

    `kind`: gpu-only, simple, pipelined or deferred. `cohort`: requests on the host that join one layer's linear stage
    (deferred), or the part of `second` that has `done_layers` layers behind it (pipelined)."""
