"""From samples of two devices at once, and of the time between tasks, to the figures of a record."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from helmsman.executor.profile.handovers import BYTES, LARGE
from helmsman.executor.profile.readings import MEASURED
from helmsman.executor.profile.samples import HandoverSamples, JointSamples
from helmsman.hwdb.fit import figure, quantile
from helmsman.schemas.between_passes import BetweenPasses
from helmsman.schemas.figures import Figure
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.hardware import Interrupts, JointProducts

_MAX_SHARE = 0.95
"""The part of a copy's time that it takes from a processor, at most: more would mean that work stands still."""

_TOGETHER = 5
"""Copies whose mean is one sample."""


def joint_rate(samples: JointSamples) -> Figure:
    """Bytes/s of plain reads of both devices together while the link is idle, which probes beside runs repeat."""
    return figure([*samples.read["idle"], *samples.throughout], MEASURED)


def joint_products(samples: JointSamples) -> tuple[JointProducts, ...]:
    """The shares of these that products reach, by format: each size and visit is a sample."""
    by_format: dict[StoredFormat, list[float]] = {}
    for (fmt, _), shares in samples.shares.items():
        by_format.setdefault(fmt, []).extend(shares)
    return tuple(JointProducts(format=fmt, share=figure(shares, MEASURED)) for fmt, shares in by_format.items())


def joint_compute(samples: JointSamples) -> Figure | None:
    """The part of its FLOP/s that a device keeps while the other computes, the mean of moments throughout the profile
    (a prompt takes longer than one of them); None where that was not measured."""
    return _chosen(fmean(samples.kept), samples.kept) if samples.kept else None


def of_device(samples: Mapping[str, list[float]], device: str) -> Figure | None:
    """Seconds of hand-overs of a kind; None for devices of which that was not measured."""
    return figure(samples[device], MEASURED) if device in samples else None


def copy_overhead(samples: HandoverSamples, link: str) -> Figure:
    """Seconds of a small copy beyond latency and bytes, whether the device at work there rests or goes on."""
    return figure(
        [max(0.0, beside - samples.nominal) for beside in (*samples.copy[link], *samples.beside[link])], MEASURED
    )


def interrupts_of(samples: HandoverSamples, link: str) -> dict[str, Interrupts] | None:
    """By device what copies take of its processors' time, as a part of the time that is left; None for nothing."""
    devices = {device: None for name, device, _ in samples.taken if name == link}
    by_device = {
        device: Interrupts(
            small=_part(samples.taken[link, device, BYTES]), large=_part(samples.taken[link, device, LARGE])
        )
        for device in devices
    }
    return {
        device: interrupts
        for device, interrupts in by_device.items()
        if interrupts.small.value or interrupts.large.value
    } or None


def _part(taken: Sequence[tuple[float, float]]) -> Figure:
    """Seconds added to work, by the seconds that are left of a copy's time: means of a few copies each, since one copy
    takes nothing or all of its time, as it wakes beside work or before it."""
    groups = [taken[start : start + _TOGETHER] for start in range(0, len(taken), _TOGETHER)]
    shares = [fmean(added for added, _ in group) / fmean(moved for _, moved in group) for group in groups]
    return figure([share / (1.0 - share) for share in (min(_MAX_SHARE, max(0.0, share)) for share in shares)], MEASURED)


def between(samples: Mapping[tuple[str, int], Sequence[float]]) -> BetweenPasses:
    """Seconds of a submission, from the device whose passes were handed over in few pieces and in many; and seconds
    before a pass by device, less its submissions. The spread is of every sample, the other constant given."""
    fewest = {device: min(pieces for name, pieces in samples if name == device) for device, _ in samples}
    divided, most = max(samples, key=lambda key: key[1])
    few = fewest[divided]
    once, often = quantile(samples[divided, few], 0.5), quantile(samples[divided, most], 0.5)
    submission = max(0.0, often - once) / (most - few) if most > few else 0.0
    begin = {device: _begin(samples[device, pieces], pieces * submission) for device, pieces in fewest.items()}
    rest = [max(0.0, seconds - begin[divided].value) / most for seconds in samples[divided, most]]
    return BetweenPasses(begin=begin, submission=_chosen(submission, rest if most > few else [0.0]))


def _begin(samples: Sequence[float], pieces: float) -> Figure:
    """Less the seconds that all `pieces` take."""
    return _chosen(max(0.0, quantile(samples, 0.5) - pieces), [max(0.0, sample - pieces) for sample in samples])


def _chosen(value: float, samples: Sequence[float]) -> Figure:
    """A figure of `value`, with the spread of the samples."""
    low, high = quantile(samples, 0.1), quantile(samples, 0.9)
    return Figure(value=value, p10=min(low, value), p90=max(high, value), n=len(samples), source=MEASURED)
