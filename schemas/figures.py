"""Numbers with a source and a spread: what every rate, share and delay of a machine is written as."""

from math import inf
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from helmsman.schemas.base import Frozen, Index, Name, NonNegative, mistake

SHARES = LEAST_SHARE, MOST_SHARE = 1e-6, 100.0
"""The least and most part of a rate: beyond these it was measured beside something else."""
SLOWINGS = 0.0, 100.0
"""The least and most that a slowing adds to a duration, as a part of it (0.4: 1.4 times as long)."""
DISTURBED = 0.08
"""Share of the time taken by others beyond which a measurement means little (rule 2 of measuring)."""
MOST_DISTURBED = 0.9
"""A figure from whose measurement others took more is no figure: with so much the spread is a hundredfold."""
Disturbed = Annotated[float, Field(gt=0.0, le=MOST_DISTURBED)]


class Source(Frozen):
    """Where numbers come from."""

    kind: Literal["measured", "fitted", "paper", "datasheet", "class", "assumed", "user"]
    where: Name
    date: Name | None = None
    tool: Name | None = None


class Figure(Frozen):
    """One number as a distribution: median `value`, 10th and 90th percentile, `n` samples (0: not sampled).

    `disturbed`: the share of the time that others took while it was measured. The spread is widened for it: what was
    held back for that share may be 1 / (1 - share) as fast, and what it was compared with as well, so p10 is
    (1 - share) of what the samples say, p90 1 / (1 - share) times that."""

    value: NonNegative
    p10: NonNegative
    p90: NonNegative
    n: Index = 0
    source: Name = Field(description="key in the record's `sources`")
    disturbed: Disturbed | None = Field(default=None, description="share of the time that others took")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.p10 <= self.value <= self.p90:
            numbers = f"{self.p10}, {self.value}, {self.p90}"
            raise mistake(f"expected p10 <= value <= p90, got {numbers}", "put the three numbers in order")
        return self


def scaled_figure(figure: Figure, factor: float) -> Figure:
    """Multiply a figure's median and both its percentiles by `factor`."""
    return figure.model_copy(update={end: factor * getattr(figure, end) for end in ("value", "p10", "p90")})


def disturbed_figure(figure: Figure, share: float, limits: tuple[float, float] = (0.0, inf)) -> Figure:
    """`figure`, from whose measurement others took `share` of the time, with the wider spread, which ends at `limits`:
    the least and most that a figure of its kind may be (`SHARES`, `SLOWINGS`)."""
    share = min(share, MOST_DISTURBED)
    p10, p90 = max(limits[0], figure.p10 * (1.0 - share)), min(limits[1], figure.p90 / (1.0 - share))
    wider = {"p10": min(figure.value, p10), "p90": max(figure.value, p90), "disturbed": share}
    return figure.model_copy(update=wider)


def undisturbed_figure(figure: Figure) -> Figure:
    """`figure` with the spread of its samples alone."""
    if figure.disturbed is None:
        return figure
    kept = 1.0 - figure.disturbed
    p10, p90 = min(figure.value, figure.p10 / kept), max(figure.value, figure.p90 * kept)
    return figure.model_copy(update={"p10": p10, "p90": p90, "disturbed": None})


def _rate(figure: Figure) -> Figure:
    if figure.p10 < 1e3:
        raise mistake("slower than anything Helm plans for", "use at least 1e3 per second", "p10", figure.p10)
    return figure


def _share(figure: Figure) -> Figure:
    if figure.p10 < LEAST_SHARE:
        raise mistake("too small for a share", f"use at least {LEAST_SHARE:g}", "p10", figure.p10)
    if figure.p90 > MOST_SHARE:
        raise mistake("too large for a share", f"use at most {MOST_SHARE:g}", "p90", figure.p90)
    return figure


def _delay(figure: Figure) -> Figure:
    if figure.p90 > 1e6:
        raise mistake("longer than any operation", "use at most 1e6 seconds", "p90", figure.p90)
    return figure


def _slowing(figure: Figure) -> Figure:
    if figure.p90 > SLOWINGS[1]:
        raise mistake(
            "too much: a hundred times as long", "write 0.4 for work that takes 1.4 times as long", "p90", figure.p90
        )
    return figure


Rate = Annotated[Figure, AfterValidator(_rate)]
"""Bytes/s or FLOP/s: times are quotients by these, so none is 0."""
Share = Annotated[Figure, AfterValidator(_share)]
"""A part of a rate. A measured one may exceed 1: the rate it is a part of was measured elsewhere."""
Delay = Annotated[Figure, AfterValidator(_delay)]
"""Seconds, 0 allowed."""
Slowing = Annotated[Figure, AfterValidator(_slowing)]
"""A share of a duration that is added to it, 0 allowed."""
