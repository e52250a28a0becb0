"""A lane: one direction of a link, and what moves bytes over it."""

from dataclasses import dataclass

from helmsman.executor._kernels import CopyEngine


@dataclass(frozen=True)
class Lane:
    """The name that its transfers carry in traces, and the engine that moves bytes."""

    name: str
    engine: CopyEngine
