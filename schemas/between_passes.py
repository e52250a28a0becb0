"""The time between the passes of a run, as a hardware record has it."""

from typing import Annotated

from pydantic import Field

from helmsman.schemas.base import Frozen, Name
from helmsman.schemas.figures import Delay, Figure


class BetweenPasses(Frozen):
    """Seconds from the end of a pass to the start of the next: `begin` by the device that ends it, since one of several
    threads takes longer to wake whoever waits for it; and `submission` for everything that lanes are given to do in one
    piece."""

    begin: Annotated[dict[Name, Delay], Field(min_length=1)]
    submission: Delay

    def after(self, device: str) -> Figure:
        """Seconds after a pass that ends on `device`: of one that nobody measured, what the slowest takes."""
        return self.begin.get(device) or max(self.begin.values(), key=lambda figure: figure.value)
