"""The ways to run a block that one question offers."""

from helmsman.lowering.buffers import chunk_tokens
from helmsman.planner.strategies.optimal.block_ways import BlockWay, block_ways
from helmsman.planner.strategies.streaming.place import Frame


def offered(frame: Frame, prompts: bool = False) -> tuple[BlockWay, ...]:
    """Every way, but where a loopback accelerator executes prompts chunk by chunk only those in which one side has each
    half of a block in prompts: the executor passes hidden states of all chunks between halves, and nothing within.
    `prompts`: whether they matter."""
    found = block_ways(frame.model, frame.roles.separate, frame.store is not None, frame.quarters, prompts)
    return tuple(way for way in found if way.prompts_whole) if _chunked(frame) else found


def _chunked(frame: Frame) -> bool:
    work = frame.workload
    loopback = frame.roles.accelerator is not None and frame.accelerator.kind == "loopback"
    return loopback and work.new_tokens > chunk_tokens(work.batch)
