"""The rooflines of a device: seconds of a task's arithmetic and of its bytes by the rates of a record, and of moving
and preparing what it works on. What launching takes, and overheads, which differ by question, are not in them."""

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from math import exp, hypot, log
from typing import Literal, NamedTuple

from helmsman.hwdb.percentiles import STRETCH
from helmsman.lowering.graph import Task
from helmsman.lowering.nearest_format import ASSUMED
from helmsman.planner.cost.curves import interpolate, place_of
from helmsman.planner.cost.device_rates import DeviceRates, blended, input_bytes
from helmsman.planner.cost.estimate import Estimate, Rate
from helmsman.planner.cost.task_amounts import ATTENDING, caches_read, tokens_together
from helmsman.schemas.figures import Figure
from helmsman.schemas.hardware import Device, Efficiency, Hardware
from helmsman.schemas.same import Keyed, Same

MOST_PRICES = 20_000
"""Prices that are remembered of a device or a machine, some ten megabytes, and as many rates that they are made of; a
pass has a few dozen."""

_PRODUCTS = ("linear", "experts", "attention", "scores", "wv", "decompress", "pin", "reshape")
"""Kinds that move no activations beside what their price counts."""

_READ = ("compute", "efficiency", "read", "cache_read", "elementwise", "decompress", "rounds", "request")
"""The figures of a device that rooflines read, beside the size of its cache."""


class Roofline(NamedTuple):
    """Seconds of a task: of its arithmetic, of its bytes, of moving its activations, and of preparing its inputs."""

    compute: Estimate
    memory: Estimate
    elementwise: Estimate | None
    inputs: Estimate | None


class Rooflines:
    """The rooflines of one device; `kinds`: by source of a figure its kind; `corrections`, `l3_blend`: as in
    `CostOptions`."""

    def __init__(self, device: Device, kinds: Mapping[str, str], corrections: bool, l3_blend: bool) -> None:
        self._device, self._kinds = device, kinds
        self._corrections, self._l3_blend = corrections, l3_blend
        self._shares = DeviceRates(device)
        self._known: dict[Hashable, Roofline] = {}
        self._combined: dict[tuple[object, ...], Rate] = {}

    def of(self, task: Task, work: Hashable) -> Roofline:
        """Return that of a task, worked out once for all of equal `work`."""
        known = self._known.get(work)
        if known is None:
            if len(self._known) >= MOST_PRICES:
                self._known.clear()
            known = self._known[work] = Roofline(
                self._compute(task), self._memory(task), self._elementwise(task), self._inputs(task)
            )
        return known

    def _compute(self, task: Task) -> Estimate:
        curve = self._curve("compute", task)
        at = None if curve is None else place_of(curve, tokens_together(task, curve.op == "attention"))
        peak = self._shares.peak(task.phase, task.format)
        key = "compute", task.phase, task.kind, task.format, at
        return self._rate(key, peak, curve, at).seconds(task.flops, "compute")

    def _memory(self, task: Task) -> Estimate:
        device = self._device
        if task.kind == "decompress" and device.decompress is not None:
            return self._rate(("decompress",), device.decompress).seconds(task.bytes, "memory")
        curve = self._curve("memory", task)
        at = None if curve is None else place_of(curve, task.bytes / caches_read(task, device))
        if task.kind in ATTENDING and self._l3_blend:
            shares = [] if curve is None or at is None else [interpolate(curve, at)]
            return product([blended(device, task.bytes), *shares], self._kinds).seconds(task.bytes, "memory")
        key = "memory", task.kind, task.format, at
        return self._rate(key, device.read, curve, at).seconds(task.bytes, "memory")

    def _elementwise(self, task: Task) -> Estimate | None:
        """Norms, rotations and lookups also move activations through the cache."""
        rate = self._device.elementwise
        if rate is None or not self._corrections or task.kind in _PRODUCTS:
            return None
        return self._rate(("elementwise",), rate).seconds(task.activation_bytes, "overhead")

    def _inputs(self, task: Task) -> Estimate | None:
        """Products of several tokens bring what they take into a form of their own first, quantised for instance."""
        if self._device.elementwise is None or task.kind != "linear" or task.tokens < 2:
            return None
        curve = self._curve("inputs", task)
        if curve is None:
            return None
        at = place_of(curve, task.tokens)
        rate = self._rate(("inputs", task.format, at), self._device.elementwise, curve, at)
        return rate.seconds(input_bytes(task.tokens, task.columns), "compute")

    def _curve(self, bound: Literal["memory", "compute", "inputs"], task: Task) -> Efficiency | None:
        """Return the shares that a kind of task reaches of a rate; None of those that it reaches whole."""
        return self._shares.curve(bound, task.kind, task.format) if self._corrections else None

    def _rate(
        self, key: tuple[object, ...], figure: Figure, curve: Efficiency | None = None, at: float | None = None
    ) -> Rate:
        """Return a rate with the share of it that a curve has at a place, worked out once for each `key`: matrices of a
        pass have as many rows."""
        rate = self._combined.get(key)
        if rate is None:
            if len(self._combined) >= MOST_PRICES:
                self._combined.clear()
            shares = [] if curve is None or at is None else [interpolate(curve, at)]
            rate = self._combined[key] = product([figure, *shares], self._kinds)
        return rate


def rooflines_of(device: Device, hardware: Hardware, corrections: bool, l3_blend: bool) -> Rooflines:
    """Return the rooflines of a device of a machine: the same ones where only what launches take has changed, as from
    one question to the next to an engine that launches ahead."""
    kinds = {name: source.kind for name, source in hardware.sources.items()}
    figures = tuple([Same(getattr(device, name)) for name in _READ])
    key = figures, device.cache_bytes, corrections, l3_blend, tuple(kinds.items())
    return _rooflines(Keyed(key, (device, kinds)), corrections, l3_blend)


@lru_cache(maxsize=64)
def _rooflines(device: Keyed[tuple[Device, dict[str, str]]], corrections: bool, l3_blend: bool) -> Rooflines:
    return Rooflines(*device.value, corrections, l3_blend)


def product(rates: Sequence[Figure], kinds: Mapping[str, str]) -> Rate:
    """Return the product of a rate and shares of it; `kinds`: by source of a figure its kind.

    Relative errors of what was measured, fitted or read off a data sheet are independent and add in quadrature. What is
    assumed of a device that nobody measured is one ignorance, not several draws: those errors add up."""
    known_faster: list[float] = []
    known_slower: list[float] = []
    value, faster, slower, source = 1.0, 0.0, 0.0, ""
    for rate in rates:
        source = source_kind(rate, kinds)
        value *= rate.value
        if source == ASSUMED:
            faster += log(rate.p90 / rate.value)
            slower += log(rate.value / rate.p10)
        else:
            known_faster.append(log(rate.p90 / rate.value))
            known_slower.append(log(rate.value / rate.p10))
    low, high = exp(-STRETCH * hypot(*known_faster, faster)), exp(STRETCH * hypot(*known_slower, slower))
    return Rate(value, low, high, source)


def source_kind(figure: Figure, kinds: Mapping[str, str]) -> str:
    """Return the kind of source that a figure has."""
    return ASSUMED if figure.source == ASSUMED else kinds[figure.source]
