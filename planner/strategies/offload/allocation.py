"""Which memory each tensor of a layer goes to: the allocators of FlexGen and HeLM (Gupta & Dwarkadas Listings 2, 3).

Both go by the middle of a tensor: the share of the layer before it and of half of itself decides, so what is asked for
is met only where tensors are small (GUPTA-17, 18)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from helmsman.lowering.tensor import Tensor
from helmsman.schemas.errors import UsageError

Tier = Literal["storage", "host", "accelerator"]

LISTING_2: tuple[Tier, ...] = ("storage", "host", "accelerator")
LISTING_3: tuple[Tier, ...] = ("accelerator", "host", "storage")

_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Percentages:
    """How much of every layer is asked to live in each tier, per cent; they add up to 100.

    Raises UsageError when they do not."""

    storage: float
    host: float
    accelerator: float

    def __post_init__(self) -> None:
        parts = (self.storage, self.host, self.accelerator)
        if any(not 0 <= part <= 100 for part in parts) or abs(sum(parts) - 100) > _ROUNDING:
            remedy = "write percentages of storage, host and accelerator that add up to 100, as in 0,80,20"
            raise UsageError("no division of weights", field="percent", value=list(parts), remedy=remedy)

    @classmethod
    def read(cls, text: str | None) -> "Percentages":
        """Return the percentages of `0,80,20` (storage, host, accelerator); of None all in the host's memory."""
        try:
            storage, host, accelerator = (float(part) for part in ("0,100,0" if text is None else text).split(","))
        except ValueError:
            remedy = "write percentages of storage, host and accelerator, as in 0,80,20"
            raise UsageError("three numbers are expected", field="percent", value=text, remedy=remedy) from None
        return cls(storage, host, accelerator)

    def of(self, tier: Tier) -> float:
        """The percentage of `tier`."""
        return {"storage": self.storage, "host": self.host, "accelerator": self.accelerator}[tier]


def choice(middle: float, percentages: Percentages, order: Sequence[Tier]) -> Tier:
    """The first tier whose running sum of percentages exceeds `middle`, else the last (GUPTA-16)."""
    sums = accumulate(percentages.of(tier) for tier in order)
    return next((tier for tier, total in zip(order, sums, strict=True) if middle < total), order[-1])


def middles(tensors: Sequence[Tensor]) -> tuple[float, ...]:
    """For every tensor the per cent of the elements before its middle (E-GUPTA-01)."""
    ends = list(accumulate(tensor.elements for tensor in tensors))
    return tuple(100 * (end - tensor.elements / 2) / ends[-1] for tensor, end in zip(tensors, ends, strict=True))


def by_position(tensors: Sequence[Tensor], percentages: Percentages) -> tuple[Tier, ...]:
    """Listing 2: the tier of every tensor of a layer, in FlexGen's order of tensors and tiers."""
    return tuple(choice(middle, percentages, LISTING_2) for middle in middles(tensors))


def by_size(tensors: Sequence[Tensor], percentages: Percentages) -> tuple[Tier, ...]:
    """Listing 3: the smallest tensors first, the accelerator first; in the order of `tensors` (E-GUPTA-02)."""
    rising = sorted(range(len(tensors)), key=lambda place: tensors[place].elements)
    middle_of = dict(zip(rising, middles([tensors[place] for place in rising]), strict=True))
    return tuple(choice(middle_of[place], percentages, LISTING_3) for place in range(len(tensors)))
