"""A machine as an engine drives it, with its constants times the factors that runs there moved
(`hwdb.engine_calibration`).

Factors are named `PRODUCT:constant`: equal devices have the same ones. Constants of one device err together, as the fit
of the engine's table says (`covariance` there); of an engine without a table each figure errs as far as it says of
itself."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import exp, hypot, inf, log
from typing import Literal

import numpy as np

from helmsman.hwdb.engine_calibration import NOISE, Array, Factors, factors_in, rows_of
from helmsman.hwdb.engine_constants import FAMILIES, Constants, Family, family_of
from helmsman.hwdb.fit import Z90
from helmsman.hwdb.pass_constants import PassConstants, ProductConstants, kernel_of, weight_bytes
from helmsman.planner.strategies.engines.kernels import EngineBuild, device_constants, device_passes
from helmsman.schemas.engine_calibration import EngineCalibration
from helmsman.schemas.figures import Figure, Source, scaled_figure
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.hardware import Device, Efficiency, Hardware, Link
from helmsman.schemas.same import Same

DECODE = ("overhead", *(f"share.{family}" for family in FAMILIES), "cache")
"""Constants of decode steps, in the order of a table's covariance."""

PROMPT = ("prompt_overhead", "prompt.16", "prompt.4", "attending", "size")
"""Constants of prompts, in that order; the size of a model counts by its scale (`size_scale`)."""

_LINK = 0.25
"""The standard deviation of the logarithm of what a link reaches, where an engine moves weights over it."""
_OVERHEAD, _CACHE, _ATTENDING, _SIZE = 0.3, 0.3, 0.5, 0.1
"""Standard deviations of the logarithms of overheads, of reading caches, of attention in prompts and of the power of a
model's size, where no table says."""
_OF_FAMILY = 0.1
"""That of a family of formats beside what all of a device have in common, where no table says."""
_UNKNOWN = 0.15
"""That of a share whose figure says nothing of itself."""

HOST_DOUBT = 0.15
"""That of a run with work on a processor beside what constants explain: of a user's, and of rows that tables are
fitted to."""

_OPERATIONS, _BYTES, _FLOPS, _CHUNKS = 355, 4.6e9, 7.5e12, 4
"""A decode step of 8 billion parameters in 4 bits, and a prompt of 512 tokens: by these a device's spread is given."""


def calibrated(hardware: Hardware, known: EngineCalibration, main: StoredFormat, scale: float) -> Hardware:
    """Return a machine as an engine drives it, for weights of which most are in `main`, of a model of a size
    (`size_scale`), with its figures times the factors, and as certain as these are."""
    return _calibrated(Same(hardware), Same(known), main, scale)


@lru_cache(maxsize=256)
def _calibrated(same: Same[Hardware], known: Same[EngineCalibration], main: StoredFormat, scale: float) -> Hardware:
    hardware, factors = same.document, factors_in(known.document)
    runs = len(known.document.runs)
    where = f"calibrated by {runs} run{'s' if runs > 1 else ''} of {known.document.engine}"
    name = f"{known.document.engine} calibrated"
    source = Source(kind="measured", where=where, tool="helm-calibrate")
    build = EngineBuild(known.document.engine, backend=known.document.backend)
    rows = min((rows_of(run) for run in known.document.runs if run.of != "decode"), default=inf)
    devices = tuple(
        _Moved(device, factors, name, scale, device_passes(device, build), rows).device(main)
        if f"{product_of(device)}:overhead" in factors.names
        else device
        for device in hardware.devices
    )
    links = tuple(_link(link, factors) for link in hardware.links)
    sources = {**hardware.sources, name: source}
    return hardware.model_copy(update={"devices": devices, "links": links, "sources": sources})


def _link(link: Link, factors: Factors) -> Link:
    name = f"{link.name}:link"
    if name not in factors.names:
        return link
    by = 1.0 / factors.factor(name)
    carried = link.carries and scaled_figure(link.carries, max(1.0, by))
    return link.model_copy(update={"bandwidth": scaled_figure(link.bandwidth, by), "carries": carried})


class _Moved:
    """A device whose figures are moved by factors, for a model of a size; `source`: the name of where they are from
    then; `passes`: the constants of its products where reading and arithmetic are joined in them; `rows`: of the
    shortest prompt that ran, whose factor counts there in full."""

    def __init__(
        self, device: Device, factors: Factors, source: str, scale: float, passes: PassConstants | None, rows: float
    ) -> None:
        self.known, self.factors, self.source, self.scale = device, factors, source, scale
        self.passes, self.rows = passes, rows
        self.own = product_of(device)

    def device(self, fmt: StoredFormat) -> Device:
        """Return the device, whose curves for any format are those of weights in `fmt`."""
        main = family_of(fmt)
        known, typical = self.known, self._typical(main)
        delay, first = typical("overhead", main), typical("prompt_overhead", main)
        slower, started = self._factor("overhead"), self._factor("prompt_overhead")
        overheads = known.overheads and {
            kind: self._figure(figure, figure.value * slower, delay) for kind, figure in known.overheads.items()
        }
        changed: dict[str, object] = {
            "efficiency": tuple(self._curve(curve, fmt) for curve in known.efficiency),
            "overhead": known.overhead and self._figure(known.overhead, known.overhead.value * slower, delay),
            "overheads": overheads,
            "launch": known.launch and self._figure(known.launch, known.launch.value * slower, delay),
            "prompt_overhead": known.prompt_overhead
            and self._figure(known.prompt_overhead, known.prompt_overhead.value * started, first),
        }
        return known.model_copy(update=changed)

    def _curve(self, curve: Efficiency, main: StoredFormat) -> Efficiency:
        if curve.op not in ("linear", "experts", "attention", "*") or curve.bound == "inputs":
            return curve
        fmt = main if curve.format == "*" else curve.format
        family, typical = family_of(fmt), self._typical(family_of(main))
        if curve.op == "attention":
            name = "cache" if curve.bound == "memory" else "attending"
        else:
            name = f"share.{family}" if curve.bound == "memory" else f"prompt.{_products(family)}"
        factor, spread = self._factor(name), typical(name, family)
        if self.passes is not None and curve.bound == "compute" and curve.op != "attention":
            slower = self._factor(f"share.{family}"), factor
            kernel = self.passes.kernel(kernel_of(fmt), curve.op == "experts")
            return self._joined(curve, fmt, kernel, slower, (typical(f"share.{family}", family), spread))
        shares = tuple(self._figure(share, share.value / factor, spread) for share in curve.share)
        return curve.model_copy(update={"share": shares})

    def _joined(
        self,
        curve: Efficiency,
        fmt: StoredFormat,
        kernel: ProductConstants,
        slower: tuple[float, float],
        spreads: tuple[float, float],
    ) -> Efficiency:
        """Return the curve of products whose reading and whose arithmetic take so many times as long, each by its part
        and with its spread; from the shortest prompt on that ran they are as slow as prompts, but for experts, of whose
        rows each expert has a part that the run does not tell. More rows never take less."""
        about = weight_bytes(fmt), self.known.read.value, self.known.compute[0].flops.value
        whole = 1.0 if curve.op == "experts" else kernel.arithmetic_part(self.rows, *about)
        shares, longest = list[Figure](), 0.0
        for rows, share in zip(curve.at, curve.share, strict=True):
            part = min(1.0, kernel.arithmetic_part(rows, *about) / whole)
            reading, arithmetic = (times**kernel.joined for times in slower)
            times = ((1.0 - part) * reading + part * arithmetic) ** (1.0 / kernel.joined)
            longest = max(longest, times * rows / share.value)
            spread = (1.0 - part) * spreads[0] + part * spreads[1]
            shares.append(self._figure(share, rows / longest, spread))
        return curve.model_copy(update={"share": tuple(shares)})

    def _factor(self, name: str) -> float:
        """Return by how much longer what a constant stands for takes."""
        factor = self.factors.factor(f"{self.own}:{name}")
        return factor * self.factors.factor(f"{self.own}:size") ** self.scale if name.startswith("prompt.") else factor

    def _figure(self, figure: Figure, value: float, spread: float) -> Figure:
        """Return a figure that has moved to a value."""
        own = figure.p90 / figure.value if figure.value else 1.0
        apart = min(own, exp(Z90 * spread))  # runs of one phase leave the others' figures as certain as they were
        moved = {"value": value, "p10": value / apart, "p90": value * apart, "source": self.source}
        return figure.model_copy(update=moved)

    def _typical(self, main: Family) -> "_Typical":
        return _Typical(self.known, self.factors, self.own, main, self.scale)


class _Typical:
    """The standard deviation of the logarithm of a typical step or prompt of a device, by what is asked of it."""

    def __init__(self, device: Device, factors: Factors, own: str, main: Family, scale: float) -> None:
        self.device, self.factors, self.own, self.main, self.scale = device, factors, own, main, scale

    def __call__(self, name: str, family: Family) -> float:
        """Return that of work with weights of a family, in the phase that the constant `name` belongs to."""
        if name in DECODE:
            added = _OPERATIONS * (self.device.overhead.value if self.device.overhead else 0.0)
            taken = _BYTES / (self.device.read.value * self._share("memory", family))
            parts = {"overhead": added, f"share.{family}": taken}
        else:
            prompt = self.device.prompt_overhead
            added = _CHUNKS * _OPERATIONS * (prompt.value if prompt else 0.0)
            taken = _FLOPS / (self.device.compute[0].flops.value * self._share("compute", family))
            parts = {"prompt_overhead": added, f"prompt.{_products(family)}": taken}
        if name in ("cache", "attending"):
            parts = {**parts, name: 0.1 * taken}
        moved = {f"{self.own}:{of}": seconds * self.factors.factor(f"{self.own}:{of}") for of, seconds in parts.items()}
        whole = sum(moved.values())
        noise = HOST_DOUBT if self.device.kind == "cpu" else NOISE
        slopes = {of: seconds / whole for of, seconds in moved.items()}
        if name not in DECODE:
            products = f"{self.own}:prompt.{_products(family)}"
            slopes[f"{self.own}:size"] = self.scale * slopes[products]
        return hypot(self.factors.spread(slopes), noise)

    def _share(self, bound: Literal["memory", "compute"], family: Family) -> float:
        curves = [c for c in self.device.efficiency if c.bound == bound and c.op in ("linear", "*")]
        own = [c for c in curves if c.format != "*" and family_of(c.format) == family] or curves
        return own[0].share[-1].value if own else 1.0


def product_of(device: Device) -> str:
    """Return the name that a device's factors have: equal ones share it."""
    return device.product or device.name


def _products(family: Family) -> str:
    return "16" if family == "16" else "4"


def prior_factors(hardware: Hardware, driven: Hardware, build: EngineBuild | None, used: Iterable[str]) -> Factors:
    """Return the factors before any run: of the devices and links in `used`, by lanes, of the machine, and of it as
    the engine drives it; all 1, as uncertain as the engine's table or the figures say."""
    lanes = set(used)
    blocks: dict[str, tuple[tuple[str, ...], Array]] = {}
    for bare, device in zip(hardware.devices, driven.devices, strict=True):
        if device.name in lanes and product_of(device) not in blocks:
            blocks[product_of(device)] = _block(bare, device, build)
    for link in hardware.links:
        if link.name in lanes:
            blocks[link.name] = ("link",), np.array([[_LINK**2]])
    names = tuple(f"{own}:{constant}" for own, (constants, _) in blocks.items() for constant in constants)
    covariance, at = np.zeros((len(names), len(names))), 0
    for _, block in blocks.values():
        covariance[at : at + len(block), at : at + len(block)] = block
        at += len(block)
    return Factors(names, np.zeros(len(names)), covariance)


def _block(bare: Device, driven: Device, build: EngineBuild | None) -> tuple[tuple[str, ...], Array]:
    """Return the constants of a device and their covariance."""
    known = None if build is None else device_constants(bare, build)
    decode, prompt = (known.decode_covariance, known.prompt_covariance) if known else (None, None)
    covariance = np.zeros((len(DECODE) + len(PROMPT),) * 2)
    covariance[: len(DECODE), : len(DECODE)] = _decode_block(driven, known) if decode is None else np.array(decode)
    covariance[len(DECODE) :, len(DECODE) :] = _prompt_block(driven, known) if prompt is None else np.array(prompt)
    return (*DECODE, *PROMPT), covariance


def _decode_block(device: Device, known: Constants | None) -> Array:
    common = known.decode if known else _spread(device, "memory")
    block = np.diag([_OVERHEAD**2, *([_OF_FAMILY**2] * len(FAMILIES)), _CACHE**2])
    block[1:-1, 1:-1] += common**2
    return block


def _prompt_block(device: Device, known: Constants | None) -> Array:
    common = known.prompt if known else _spread(device, "compute")
    block = np.diag([_OVERHEAD**2, _OF_FAMILY**2, _OF_FAMILY**2, _ATTENDING**2, _SIZE**2])
    block[1:3, 1:3] += common**2
    return block


def _spread(device: Device, bound: str) -> float:
    """Return the standard deviation of the logarithm of a device's shares, by its own figures."""
    shares = (share for curve in device.efficiency if curve.bound == bound for share in curve.share)
    return max((log(share.p90 / share.value) / Z90 for share in shares), default=0.0) or _UNKNOWN


def used_lanes(resources: Iterable[str]) -> Iterator[str]:
    """Yield the devices and links behind the lanes of a prediction's terms."""
    return (resource.partition(":")[0] for resource in resources)
