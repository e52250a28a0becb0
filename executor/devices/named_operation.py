"""The parts that the specifications of all operations of a stage have."""

from typing import TypedDict


class Named(TypedDict):
    """The parts of every operation."""

    name: str
    block: int | None
    """Among the blocks of the stage; None: outside them."""
    inputs: list[str]
    output: str
