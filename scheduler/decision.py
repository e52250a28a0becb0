"""A Decision: what one serving iteration does, as a policy has decided it; a value that both runners execute."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gpu-only", "simple", "pipelined", "deferred"]
"""gpu-only: all attention on the accelerator. simple: that of CPU requests on the host, nothing overlaps on purpose.
pipelined: two sub-batches in turns (NEO). deferred: CPU requests go one layer on in an iteration (APEX);
those of `decode0_cpu` who have no token under way begin one together."""
Home = Literal["gpu", "cpu"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """`tokens` of a request's prompt on top of `past` cached ones; their keys and values go to `home`."""

    id: int
    tokens: int
    past: int
    home: Home


@dataclass(frozen=True, slots=True)
class SchedulingDecision:
    """Requests by id. Sub-batch 0 has prompts, decode steps on the accelerator and some of those on the host,
    sub-batch 1 the other CPU requests. Swaps move all blocks of a request to the other home before it is used there;
    `preempted` lose theirs, and come again with a longer prompt. A first chunk whose `past` is not 0 begins with blocks
    that others have computed; `evicted`: hashes of such blocks that are given up, since the pass wants their room.

    Of models that keep states, such a request goes on from the snapshot behind those blocks. `kept`: requests whose
    state behind the pass becomes the snapshot of their prompt so far; `forgotten`: hashes of blocks whose snapshots
    make room for these."""

    kind: Kind
    prefill: tuple[Chunk, ...] = ()
    decode0_gpu: tuple[int, ...] = ()
    decode0_cpu: tuple[int, ...] = ()
    decode1_cpu: tuple[int, ...] = ()
    swap_out: tuple[int, ...] = ()
    swap_in: tuple[int, ...] = ()
    preempted: tuple[int, ...] = ()
    evicted: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    forgotten: tuple[int, ...] = ()
