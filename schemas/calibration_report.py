"""The report of helm-calibrate: predictions before and after runs, rows that were refused, and factors."""

from typing import Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import Frozen, Name, Positive, Report, Words, version
from helmsman.schemas.engine_calibration import CalibratingRun
from helmsman.schemas.predicted import Interval


class CalibratedPrediction(Frozen):
    """A figure that is predicted, before and after runs: tokens/s, or seconds of a request."""

    of: Literal["decode", "prefill", "request"]
    model: Name
    format: Name
    prompt_tokens: int
    output_tokens: int
    before: Interval
    after: Interval


class CalibratedRun(Frozen):
    """A run that was used, and its prediction; `from_others`: how far the others alone predict its speed from the
    measured one, as a part of that; null where it is alone."""

    run: CalibratingRun
    prediction: CalibratedPrediction
    from_others: float | None


class RefusedRow(Frozen):
    """A row of a result that was not used, and why."""

    where: Words
    reason: Words


class CalibratedFactor(Frozen):
    """What a constant is multiplied by after the runs, and the ends of its interval of 90 %."""

    name: Name
    factor: Positive
    low: Positive
    high: Positive


class CalibrationReport(Report):
    """What runs said of an engine's constants on a machine. `others`: predictions of other work on it; `before`,
    `after`: the median of an interval's high over its low end, over those that are of the phases of runs."""

    schema_id: Literal["helm.calibration/1"] = version("helm.calibration/1")
    machine: Name
    engine: Name
    runs: Annotated[tuple[CalibratedRun, ...], Field(max_length=4096)]
    others: Annotated[tuple[CalibratedPrediction, ...], Field(max_length=64)]
    before: Positive
    after: Positive
    factors: Annotated[tuple[CalibratedFactor, ...], Field(max_length=256)]
    refused: Annotated[tuple[RefusedRow, ...], Field(max_length=65_536)]
