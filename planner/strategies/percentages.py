"""`flexgen --percent`: FlexGen's allocator, so many per cent of every layer in each tier (GUPTA-11, 15, 50)."""

from dataclasses import dataclass

from helmsman.planner.strategies.offload.allocation import Percentages, by_position
from helmsman.planner.strategies.offload.place import Tiers
from helmsman.planner.strategies.offload.sublayers import achieved, sublayers
from helmsman.schemas.model import Model


@dataclass(frozen=True, slots=True)
class FlexGenPercentages:
    """Listing 2: every layer by the same percentages."""

    percentages: Percentages

    @property
    def name(self) -> str:
        """Return its name on the command line."""
        return "flexgen"

    def tiers(self, model: Model) -> Tiers:
        """The tier of every tensor."""
        return {layer.kind: by_position(layer.tensors, self.percentages) for layer in sublayers(model)}

    def title(self, model: Model) -> str:
        """`flexgen (0, 80, 20) -> (0, 91.7, 8.3)`: storage, host, accelerator, asked for and achieved (GUPTA-17)."""
        wanted, shares = self.percentages, achieved(model, self.tiers(model))
        text = f"({wanted.storage:g}, {wanted.host:g}, {wanted.accelerator:g})"
        return f"flexgen {text} -> ({shares['storage']:.3g}, {shares['host']:.3g}, {shares['accelerator']:.3g})"
