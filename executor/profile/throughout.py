"""What is measured beside every point of a profile: a figure of the whole profile, not of one spell of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from helmsman.executor.interference import disturbance
from helmsman.executor.profile.quality import Watch
from helmsman.schemas.figures import DISTURBED


@dataclass
class Throughout:
    """Samples of one figure, each taken by `measure` at a moment of its own; `shares`: of the time of each sample, the
    part that others took."""

    watch: Watch
    measure: Callable[[], float]
    values: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)

    def add(self) -> None:
        """Take one more sample."""
        before = self.watch.now()
        self.values.append(self.measure())
        self.shares.append(disturbance(before, self.watch.now()))

    @property
    def undisturbed(self) -> Sequence[float]:
        """The samples from which others took little; all where they took much from every one."""
        return [value for value, share in zip(self.values, self.shares, strict=True) if share <= self._accepted]

    @property
    def disturbed(self) -> float:
        """The mean share that others took from the `undisturbed` samples."""
        return fmean([share for share in self.shares if share <= self._accepted] or [0.0])

    @property
    def _accepted(self) -> float:
        return DISTURBED if any(share <= DISTURBED for share in self.shares) else 1.0
