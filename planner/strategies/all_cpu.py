"""`all-cpu`: every weight in host memory, the accelerator's for keys, values and hidden states (GUPTA-28)."""

from dataclasses import dataclass

from helmsman.planner.strategies.offload.place import Tiers
from helmsman.planner.strategies.offload.sublayers import sublayers
from helmsman.schemas.model import Model


@dataclass(frozen=True, slots=True)
class AllCpu:
    """Nothing but streamed weights: the largest batches."""

    @property
    def name(self) -> str:
        """As on the command line."""
        return "all-cpu"

    def tiers(self, model: Model) -> Tiers:
        """The host's, for every tensor."""
        return {layer.kind: tuple("host" for _ in layer.tensors) for layer in sublayers(model)}

    def title(self, model: Model) -> str:
        """`all-cpu`, whatever the model."""
        return self.name
