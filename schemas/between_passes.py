"""The time between the passes of a run, as a hardware record has it."""

from typing import Annotated, Any

from pydantic import Field, field_validator

from helmsman.schemas.base import Frozen, Name, mistake
from helmsman.schemas.figures import Delay, Figure


class BetweenPasses(Frozen):
    """Seconds from the end of a pass to the start of the next: `begin` by the device that ends it, since one of several
    threads takes longer to wake whoever waits for it; and `submission` for everything that lanes are given to do in one
    piece."""

    begin: Annotated[dict[Name, Delay], Field(min_length=1)]
    submission: Delay

    @field_validator("begin", mode="before")
    @classmethod
    def _by_device(cls, begin: Any) -> Any:
        """Refuses the one figure that profiles took before every device had one of its own."""
        if isinstance(begin, dict) and isinstance(begin.get("value"), int | float):
            said, remedy = (
                "one figure, where every device that ends a pass has one of its own",
                "run helm-profile again",
            )
            raise mistake(said, remedy, value=begin["value"])
        return begin

    def after(self, device: str) -> Figure:
        """Return seconds after a pass that ends on `device`: of one that nobody measured, what the slowest takes."""
        return self.begin.get(device) or max(self.begin.values(), key=lambda figure: figure.value)
