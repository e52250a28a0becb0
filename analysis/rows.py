"""Terms of a comparison: one sample per pass and run, one row of medians per term."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from helmsman.analysis.samples import pair_difference, spread
from helmsman.schemas.check_report import CheckedTerm

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds of one term in one pass of one run; `scaled`: the prediction at the speeds of that run."""

    run: int
    tasks: int
    predicted: float
    scaled: float
    simulated: float
    measured: float


def make_row(key: Key, samples: Sequence[Sample]) -> CheckedTerm:
    """Return the medians of `samples`, which come in order of runs."""
    raw = [sample.measured / sample.predicted for sample in samples if sample.predicted > 0.0]
    scaled: dict[int, list[float]] = {}
    for sample in samples:
        if sample.scaled > 0.0:
            scaled.setdefault(sample.run, []).append(sample.measured / sample.scaled)
    ratios = [ratio for run in scaled.values() for ratio in run]
    runs = [median(run) for run in scaled.values()]
    repeated = runs if len(runs) > 1 else ratios
    phase, op, resource = key
    return CheckedTerm(
        phase=phase,
        op=op,
        resource=resource,
        tasks=max(sample.tasks for sample in samples),
        predicted=median(sample.predicted for sample in samples),
        scaled=median(sample.scaled for sample in samples),
        simulated=median(sample.simulated for sample in samples),
        measured=median(sample.measured for sample in samples),
        error=median(raw) - 1.0 if raw else None,
        scaled_error=median(ratios) - 1.0 if ratios else None,
        noise=spread(repeated) if repeated else 0.0,
        pairs=pair_difference(runs),
    )
