"""Samples of one rate that are spread over a whole profile: a host's speed changes for seconds at a time, which samples
of one second would miss."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from helmsman.executor.profile.quality import Watch
from helmsman.executor.system.interference import disturbance
from helmsman.schemas.figures import DISTURBED


@dataclass
class SpreadSamples:
    """Collects samples of one rate, one after each of many points of a profile. `measure` takes a sample; `shares` are
    the parts of the processors' time that other processes took during each of the `values`."""

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
        """The samples during which other processes took at most DISTURBED; all samples where there is none."""
        return [value for value, share in zip(self.values, self.shares, strict=True) if share <= self._accepted]

    @property
    def disturbed(self) -> float:
        """The mean share of the time that other processes took during the `undisturbed` samples; 0 without samples."""
        return fmean([share for share in self.shares if share <= self._accepted] or [0.0])

    @property
    def _accepted(self) -> float:
        """The largest share at which a sample counts."""
        return DISTURBED if any(share <= DISTURBED for share in self.shares) else 1.0
