"""The ways to run a block that one question offers."""

from helmsman.planner.strategies.optimal.configurations.block_ways import BlockWay, block_ways
from helmsman.planner.strategies.streaming.place import Frame, Quarter


def offered(frame: Frame, prompts: bool = False) -> tuple[BlockWay, ...]:
    """Every way for what a question's machine and formats are. `prompts`: whether they matter."""
    return block_ways(frame.model, frame.roles.separate, frame.store is not None, frame.quarters, prompts)


def quarters(frame: Frame) -> tuple[Quarter, ...]:
    """Return what may be in 4-bit groups, where anything can come to an accelerator."""
    return frame.quarters if frame.roles.separate else ()
