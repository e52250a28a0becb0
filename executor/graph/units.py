"""Which partition unit a module belongs to: the embedding, a block, or the output (HELM-11)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Units:
    """The units of a module whose blocks are the elements of the list `blocks`: 0, 1..layers, layers + 1."""

    blocks: str
    layers: int

    @property
    def count(self) -> int:
        """Units of the module."""
        return self.layers + 2

    def of(self, module: str, reached: int) -> int:
        """The unit of a node of `module`, after nodes up to unit `reached`; what is in no block follows the last one
        that was reached, and belongs to the output once that is the last block."""
        inside = module.removeprefix(f"{self.blocks}.")
        if inside != module:
            return int(inside.partition(".")[0]) + 1
        return self.count - 1 if reached >= self.layers else reached
