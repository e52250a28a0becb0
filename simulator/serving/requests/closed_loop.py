"""Requests of a closed loop: users who wait for an answer, think, and then send the next one."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from helmsman.schemas.errors import UsageError
from helmsman.schemas.requests import Floats, Requests
from helmsman.schemas.units import parse_seconds
from helmsman.simulator.serving.requests.arrivals import generator, moved

_FIXED = "fixed:"
_REMEDY = "write 10s (exponential, with this mean) or fixed:10s"
MAX_THINK_S = 1e6


@dataclass(frozen=True, slots=True)
class ThinkTime:
    """Seconds that users think after an answer: `mean` on average, exponentially distributed, or always `mean`."""

    mean: float
    distribution: Literal["exponential", "fixed"] = "exponential"

    def draw(self, count: int, seed: int) -> Floats:
        """Return (count) seconds; for the same seed more of them begin alike."""
        if self.distribution == "fixed":
            return np.full(count, self.mean)
        return self.mean * -np.log1p(-generator(seed, "think").random(count))

    def draw_rest(self, count: int, seed: int) -> Floats:
        """Return (count) seconds that are left of think times at a moment that knows nothing of them: exponential ones
        have no memory, and of a fixed one any rest is as likely."""
        drawn = generator(seed, "first think").random(count)
        return self.mean * (drawn if self.distribution == "fixed" else -np.log1p(-drawn))


NO_THINK = ThinkTime(0.0)


def parse_think(text: str) -> ThinkTime:
    """Return the think time of `10s` or `fixed:10s`. Raises UsageError."""
    try:
        mean = parse_seconds(text.removeprefix(_FIXED), "think")
    except UsageError as error:
        raise UsageError("not a think time", field="think", value=text, remedy=_REMEDY) from error
    if not 0.0 <= mean <= MAX_THINK_S:
        raise UsageError(f"must be between 0 and {MAX_THINK_S:g} s", field="think", value=text, remedy=_REMEDY)
    return ThinkTime(mean, "fixed" if text.startswith(_FIXED) else "exponential")


def by_users(requests: Requests, users: int, think: ThinkTime, seed: int) -> Requests:
    """Return the same requests, sent in their order by as many users, whoever is next.

    Users are thinking when a run begins. Who leaves does so as long after a request is sent as before."""
    starts = np.sort(think.draw_rest(users, seed))
    still = moved(requests, np.zeros(len(requests)))
    return replace(still, starts_s=starts, think_s=think.draw(len(requests), seed))
