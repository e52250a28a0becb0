"""The rates that a hardware record gives a device: peaks by phase and format, efficiency curves, reads near a cache."""

from helmsman.lowering.nearest_format import assumed, nearest
from helmsman.planner.cost.curves import interpolate
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.figures import Figure
from helmsman.schemas.formats import StoredFormat, is_plain
from helmsman.schemas.hardware import Device, Efficiency
from helmsman.schemas.probed_product import PROBED


def blended(device: Device, bytes_read: int) -> Figure:
    """M_hat = alpha B_L3 + (1 - alpha) M with alpha = min(1, C_L3 / W_kv) (eq 4.14)."""
    if device.cache_bytes is None or bytes_read == 0:
        return device.read
    cache = cache_rate(device)
    alpha = min(1.0, device.cache_bytes / bytes_read)
    factor = (alpha * cache + (1 - alpha) * device.read.value) / device.read.value
    read = device.read
    return read.model_copy(update={"value": read.value * factor, "p10": read.p10 * factor, "p90": read.p90 * factor})


def cache_rate(device: Device) -> float:
    """B_L3, estimated as 3 M where it was not measured (HELM-23)."""
    return device.cache_read.value if device.cache_read else 3 * device.read.value


def input_bytes(tokens: int, columns: int) -> int:
    """Bytes of the f32 values that a product takes."""
    return 4 * tokens * columns


def weights_rate(device: Device, fmt: StoredFormat, matrix_bytes: float) -> float:
    """Return the bytes/s at which products with one token read matrices of `matrix_bytes` bytes in `fmt`: plain reads,
    times the share of them that such products reach in the record."""
    curve = efficiency_curve(device, "memory", "linear", fmt)
    return device.read.value * (interpolate(curve, matrix_bytes).value if curve else 1.0)


def product_rate(device: Device, phase: Phase, fmt: StoredFormat, tokens: int) -> float:
    """FLOP/s of the probed product of weights in `fmt` with so many tokens: its arithmetic, and the seconds that bring
    its inputs into its form."""
    curve, inputs = (efficiency_curve(device, bound, "linear", fmt) for bound in ("compute", "inputs"))
    flops = 2.0 * tokens * PROBED[0] * PROBED[1]
    seconds = flops / (peak_rate(device, phase, fmt).value * (interpolate(curve, tokens).value if curve else 1.0))
    if inputs is not None and device.elementwise is not None:
        rate = device.elementwise.value * interpolate(inputs, tokens).value
        seconds += input_bytes(tokens, PROBED[1]) / rate
    return flops / seconds


def peak_rate(device: Device, phase: Phase, fmt: StoredFormat) -> Figure:
    """P of the phase; an exact format match wins over "*", that over the nearest format, the phase must match."""
    fitting = [c for c in device.compute if c.phase == phase and c.format in (fmt, "*")]
    if not fitting and not is_plain(fmt):
        near = nearest(fmt, (c for c in device.compute if c.phase == phase))
        return assumed(near.flops) if near else device.compute[0].flops
    fitting = fitting or list(device.compute)
    return next((c.flops for c in fitting if c.format == fmt), fitting[0].flops)


NEAREST_KIND = {"experts": "linear", "index": "attention", "recurrence": "attention", "convolution": "norm"}
"""The kind of operation by whose shares others are priced where nobody measured their own."""


def efficiency_curve(device: Device, bound: str, kind: str, fmt: StoredFormat) -> Efficiency | None:
    """The most specific efficiency curve: operation first, then format; else that of the nearest format. Of attention's
    that of the device's precision where there is one; scores and weighted sums of values alone are f32."""
    op = "attention" if kind in ("scores", "wv") else kind
    if op in NEAREST_KIND and not any(
        c.bound == bound and c.op == op and (c.format in (fmt, "*") or not is_plain(fmt)) for c in device.efficiency
    ):
        op = NEAREST_KIND[op]
    about = [c for c in device.efficiency if c.bound == bound and c.op in (op, "*")]
    if op == "attention":
        precision = device.rounds.attention if kind == op else "f32"
        about.sort(key=lambda c: c.rounding not in (precision, None))
    fitting = [c for c in about if c.format in (fmt, "*")]
    if not fitting and not is_plain(fmt):
        near = nearest(fmt, about)
        return near and near.model_copy(update={"share": tuple(assumed(share) for share in near.share)})
    return max(fitting, key=lambda c: (c.op != "*", c.format != "*"), default=None)


def least_seconds(device: Device) -> Figure | None:
    """The least time between two operations; where launches run ahead, but the question is not known
    (`planner.prediction.launches`), what launching each takes."""
    known = (device.launch, device.dispatch and device.dispatch.seconds)
    return max((figure for figure in known if figure), key=lambda figure: figure.value, default=None)


class DeviceRates:
    """The rates of one device, each looked for once: tasks of a few kinds ask for them again and again."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._peaks: dict[tuple[Phase, StoredFormat], Figure] = {}
        self._curves: dict[tuple[str, str, StoredFormat], Efficiency | None] = {}

    def peak(self, phase: Phase, fmt: StoredFormat) -> Figure:
        """Return `peak_rate`."""
        key = phase, fmt
        if key not in self._peaks:
            self._peaks[key] = peak_rate(self._device, phase, fmt)
        return self._peaks[key]

    def curve(self, bound: str, kind: str, fmt: StoredFormat) -> Efficiency | None:
        """Return `efficiency_curve`."""
        key = bound, kind, fmt
        if key not in self._curves:
            self._curves[key] = efficiency_curve(self._device, bound, kind, fmt)
        return self._curves[key]
