"""The figures that a record has of its devices because a table was measured: how fast they expand, and turn caches."""

from helmsman.executor.profile.disturbance import disturbed_beyond
from helmsman.executor.profile.layer_reshape import TurnTimes
from helmsman.executor.profile.table import TableSamples
from helmsman.executor.profile.table_place import TablePlace
from helmsman.hwdb.fit import curve, figure, quantile
from helmsman.schemas.figures import SHARES
from helmsman.schemas.formats import Format
from helmsman.schemas.hardware import Device, Efficiency

NOW = "measured-with-tables"
"""The source of what a record says of the machine because a table was measured."""


def informed(device: Device, place: TablePlace, samples: TableSamples) -> Device:
    """`device` with its rate of expansion (the accelerator's) and the share of a plain read that it turns caches at."""
    update: dict[str, object] = {}
    if device.name == place.accelerator.name and samples.expansion.rates:
        update["decompress"] = disturbed_beyond(figure(samples.expansion.rates, NOW), samples.expansion.disturbed)
    turned = samples.reshape.get(device.name)
    if turned is not None:
        update["efficiency"] = with_turning(device, turned, samples.question.kv_format)
    return device.model_copy(update=update)


def with_turning(device: Device, turned: TurnTimes, fmt: Format) -> tuple[Efficiency, ...]:
    """The device's efficiencies with one of turning caches (PARK-15), beside what is known of other sizes.

    Of the seconds while the link rests: what a busy link adds is the link's (`slows`)."""
    overhead = device.overhead.value if device.overhead else 0.0
    read = quantile(turned.reads, 0.5)
    shares = [turned.size / max(seconds - overhead, seconds / 2) / read for seconds in turned.idle]
    new = curve("memory", "reshape", fmt, {float(turned.size): shares}, NOW)
    new = new.model_copy(
        update={"share": tuple(disturbed_beyond(share, turned.disturbed, SHARES) for share in new.share)}
    )
    known = next((efficiency for efficiency in device.efficiency if _alike(efficiency, new)), None)
    others = (efficiency for efficiency in device.efficiency if efficiency is not known)
    return (*others, new if known is None else _joined(known, new))


def _alike(one: Efficiency, other: Efficiency) -> bool:
    return (one.bound, one.op, one.format) == (other.bound, other.op, other.format)


def _joined(old: Efficiency, new: Efficiency) -> Efficiency:
    """Both curves; of the same size the new share."""
    points = {**dict(zip(old.at, old.share, strict=True)), **dict(zip(new.at, new.share, strict=True))}
    at = tuple(sorted(points))
    return old.model_copy(update={"at": at, "share": tuple(points[size] for size in at)})
