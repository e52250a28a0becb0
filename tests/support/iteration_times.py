"""The seconds of an iteration, from the work in it: the closed forms of each kind of schedule.

The oracle of the native core, and of replayed iterations. Everything is seconds; work is counted over all sequences. An
iteration of a pipeline of accelerators is a round, whose micro-batches have equal parts of the work (APEX-39)."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from helmsman.scheduler.cost import IterationCost
from helmsman.scheduler.pass_work import PassWork

_NOTHING = PassWork()


def prefill_attention(cost: IterationCost, work: PassWork) -> float:
    """Return one layer's attention of prompt chunks: bound by arithmetic or by the cache it reads."""
    return max(cost.prefill_compute(work.pairs), cost.prefill_read(work.prompt_kv))


def device_attention(cost: IterationCost, work: PassWork) -> float:
    """Return one layer's attention on the accelerator: of decodes, in fewer micro-batches than stages where there are
    fewer of them, and of prompt chunks."""
    spread = max(1.0, cost.stages / max(1, work.tokens))
    decodes = cost.gpu_attention(spread * work.gpu_kv) + cost.gpu_request * spread * work.gpu_requests
    return decodes + prefill_attention(cost, work)


def cpu_attention(cost: IterationCost, work: PassWork) -> float:
    """Return one layer's decode attention on the host (T_ca)."""
    return cost.cpu_attention(work.cpu_kv) + cost.cpu_request * work.cpu_requests


def transfers(cost: IterationCost, work: PassWork) -> float:
    """Return one layer's queries, keys and values to the host, and outputs back (TrQKV + TrO)."""
    return cost.to_host(work.cpu_requests) + cost.to_device(work.cpu_requests)


def reading(cost: IterationCost, work: PassWork) -> float:
    """Return seconds of one layer in which the accelerator reads memory: weights, as for one token, and caches of
    decodes."""
    return min(cost.linear(work.tokens), cost.linear(1)) + cost.gpu_attention(work.gpu_kv)


def contention(cost: IterationCost, reads: float, device: float, caches: float, host: float) -> tuple[float, float]:
    """Return the slowdowns (at least 1) of the accelerator and of the host in parts of a layer that run at the same
    time, where both read one memory.

    `device`, `host`: seconds of these parts by themselves, of which the accelerator reads for `reads` and the host for
    `caches`. The shorter part lies within the longer, and what reads in either is spread evenly over it."""
    if not device or not host:
        return 1.0, 1.0
    both = min(device, host) * (reads / device) * (caches / host)
    return 1.0 + cost.shared_device * both / device, 1.0 + cost.shared_host * both / host


def gpu_only_seconds(cost: IterationCost, work: PassWork) -> float:
    """Everything on the accelerator; caches are swapped layer by layer beside it (NEO-07)."""
    return max(_on_accelerator(cost, work), _link(cost, work))


def simple_seconds(cost: IterationCost, work: PassWork) -> float:
    """Return the host's decode attention and everything else one after the other (NEO-03)."""
    host = cost.layers * cpu_attention(cost, work)
    turns = _on_accelerator(cost, work) + (cost.layers * transfers(cost, work) + host) / cost.stages
    return max(turns, host + cost.ends(work.outputs), _link(cost, work))


def pipelined_seconds(cost: IterationCost, first: PassWork, second: PassWork) -> float:
    """Two sub-batches in turns, one's linear stage beside the other's attention (NEO-10, with transfers: E-NEO-05).

    Per layer the longest cycle of what waits for each other: all of the accelerator; all of the host; each sub-batch's
    own way through linear stage, link and host; and, over two layers, both sub-batches' ways one after the other, with
    the accelerator's attention between or without it. Where the host is hidden (NEO-15, transfers included) that is
    L (max(l0, tr1 + ca1) + max(l1 + ga0, tr0 + ca0)); elsewhere it is less, because nothing waits for both halves.
    The accelerator attends for `first` only (NEO-08). Each sub-batch's attention on the host goes on beside the other's
    stages on the accelerator, and what both read of one memory takes longer (`contention`)."""
    assert not (second.gpu_kv or second.pairs), "the second sub-batch has its attention on the host"
    both = first, second
    linear, host = [cost.linear(work.tokens) for work in both], [cpu_attention(cost, work) for work in both]
    attention = device_attention(cost, first)
    caches = [cost.cpu_attention(work.cpu_kv) for work in both]
    longer, waits = contention(cost, reading(cost, first), linear[0] + attention, caches[1], host[1])
    longer_second, waits_first = contention(cost, reading(cost, second), linear[1], caches[0], host[0])
    linear, attention = [longer * linear[0], longer_second * linear[1]], longer * attention
    host = [waits_first * host[0], waits * host[1]]
    there, back, away = (
        [cost.to_host(work.cpu_requests) / cost.stages for work in both],
        [cost.to_device(work.cpu_requests) / cost.stages for work in both],
        [seconds / cost.stages for seconds in host],
    )
    ways = map(sum, zip(linear, there, away, back, strict=True))
    turns = attention + there[0] + back[1], there[1] + back[0]
    longest = max(turns) + sum(linear) + sum(away)
    joins = sum(work.cpu_requests > 0 for work in both)
    device, attending = sum(linear) + attention + joins * cost.join_device, sum(host) + joins * cost.join_host
    layer = max(device, attending, *ways, longest / 2)
    return max(cost.layers * layer + cost.ends(first.outputs + second.outputs), _link(cost, first, second))


def deferred_seconds(
    cost: IterationCost, work: PassWork, joining: Sequence[int], yielding: int = 0, cohorts: PassWork = _NOTHING
) -> float:
    """As on the accelerator alone, but that requests whose attention the host has done take part in the linear stage of
    one layer each, so many in every one of `joining` (APEX-13..16, APEX-40), and `yielding` of them yield their token:
    those whose pass has the last of all stages. `work` is without them; the host is not waited for (APEX-17). In a
    round they join one micro-batch each time: as many rows more as that makes of all of them. `cohorts`: what the host
    attends to beside the pass."""
    rows = (work.tokens + cost.stages * count for count in joining)
    joined = sum(cost.linear(row) - cost.linear(work.tokens) for row in rows)
    alone = _on_accelerator(cost, replace(work, outputs=work.outputs + yielding))
    device, host = (alone + joined) / cost.layers, cpu_attention(cost, cohorts) / cost.layers
    longer, _ = contention(cost, reading(cost, work), device, cost.cpu_attention(cohorts.cpu_kv) / cost.layers, host)
    return max(longer * (alone + joined), _link(cost, work))


def deferred_iterations(cost: IterationCost, iteration: float, cohort: PassWork) -> int:
    """Iterations of `iteration` seconds until a token of a cohort of requests on the host: one layer on with every one
    in which the host is ready (APEX-19, E-APEX-05), its queries and outputs moved (APEX-42).

    One more begins the token: layer by layer the pre-projection is in one iteration, the post-projection in a later
    one, so L layers of attention lie between L + 1 linear stages. In a pipeline of N accelerators it goes on with every
    slot, and waits for L/N layers instead of L (APEX-39, E-APEX-08); one slot more for each accelerator that it comes
    to."""
    host = cpu_attention(cost, cohort) + transfers(cost, cohort)
    slots = cost.layers * max(1, ceil(cost.stages * host / iteration)) + cost.stages
    return ceil(slots / cost.stages)


def _on_accelerator(cost: IterationCost, work: PassWork) -> float:
    layer = cost.linear(work.tokens) + device_attention(cost, work)
    return cost.layers * layer + cost.ends(work.outputs)


def _link(cost: IterationCost, *batches: PassWork) -> float:
    """Return seconds that the busier direction of the link needs for what all layers of a pass move, hand-overs
    included; of a pipeline, each accelerator's of its own layers."""
    out = sum(cost.to_host(batch.cpu_requests) + cost.swap_out(batch.swap_out) for batch in batches)
    back = sum(cost.to_device(batch.cpu_requests) + cost.swap_in(batch.swap_in) for batch in batches)
    return cost.layers * max(out, back) / cost.stages
