"""Limits: how much one replica holds, and how much one pass takes."""

from dataclasses import dataclass
from typing import Literal, get_args

BLOCK = 16
"""Tokens of a block of keys and values, as vLLM and NEO have them."""

LONGEST_CONTEXT = 2**28
"""No model has a larger one."""


HostOrder = Literal["last", "first", "arrival"]
"""To which of several cohorts the host attends first: at the last layer, at the first one, or as they come."""

HOST_ORDERS: tuple[HostOrder, ...] = get_args(HostOrder)


@dataclass(frozen=True, slots=True)
class Limits:
    """`gpu_tokens`, `cpu_tokens`: KV tokens that the accelerator's and the host's cache hold, all layers of them, given
    out in blocks of `block` tokens. `batch_tokens`: most tokens in one pass, what its activations have room for.
    `chunk`: most tokens of prompts and decodes in a pass of chunked prefill; 0: prompts go through whole. `sequences`:
    most requests that run at a time. `cohorts`: most that are under way on the host; what is kept of each
    between passes has room, and policies say how many they use. `context`: most tokens of prompt and output of a
    request, what the model has positions for. `keeps`: in a simulation, blocks of requests that are driven out stay in
    the prefix cache, whose blocks are then of `block` tokens too, until their room is wanted. `ahead`: there, a pass is
    decided when the one before it begins, so that who arrives meanwhile waits one pass longer. `states`: whether
    requests keep states beside their caches; the host then has room for those of `sequences` requests, if it has a
    cache. `snapshots`: most states of prompts that are kept on the accelerator for requests that begin alike; without
    them none begins with blocks of another."""

    gpu_tokens: int
    cpu_tokens: int
    batch_tokens: int
    sequences: int
    block: int = BLOCK
    chunk: int = 0
    cohorts: int = 1
    context: int = LONGEST_CONTEXT
    keeps: bool = False
    ahead: bool = False
    states: bool = False
    snapshots: int = 0

    def __post_init__(self) -> None:
        assert min(self.block, self.batch_tokens) > 0, "blocks and passes of at least a token"
        assert self.sequences > 0, "room for at least one request"
        assert self.context > 0, "positions for at least one token"
        assert min(self.gpu_tokens, self.cpu_tokens, self.chunk, self.snapshots) >= 0, "no less than nothing"
        assert self.states or not self.snapshots, "snapshots are of states"

    def blocks(self, tokens: int) -> int:
        """Blocks that a cache of `tokens` takes."""
        return -(-tokens // self.block)
