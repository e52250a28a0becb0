"""A machine as an engine's kernels drive it: with what they reach of the data sheet instead of what ours do.

What an engine reaches was fitted to whole steps, so that the record keeps none of what our executor was measured to
take beside: launches, conversions, time between passes. Constants of one device err together, so each has the spread of
a whole prediction (`hwdb.engine_constants`)."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, hypot
from typing import Literal

from helmsman.hwdb.compose import MEMORY_SPEED
from helmsman.hwdb.core_reads import CORE_READS
from helmsman.hwdb.data_sheet import sheet_rates
from helmsman.hwdb.engine_classes import Backend, engine_class, half_ratio, int8_ratio, score_padding
from helmsman.hwdb.engine_constants import (
    Constants,
    Era,
    constants_of,
    engine_source,
    engine_table,
    family_of,
    latent_times,
    unpacked_values,
    unpacking_of,
)
from helmsman.hwdb.fit import Z90, exact
from helmsman.hwdb.pass_constants import ENGINE as OF_PASSES
from helmsman.hwdb.pass_constants import PassConstants, pass_constants
from helmsman.planner.cost.curves import interpolate
from helmsman.planner.cost.device_rates import efficiency_curve
from helmsman.planner.serving.engine_reserve import cards_of
from helmsman.planner.strategies.engines.engine_model import EngineModel
from helmsman.planner.strategies.engines.pass_kernels import driven_by
from helmsman.scheduler.iteration import PHASES
from helmsman.schemas.between_passes import BetweenPasses
from helmsman.schemas.errors import UsageError
from helmsman.schemas.figures import Figure, scaled_figure
from helmsman.schemas.formats import KV_FORMATS, StoredFormat
from helmsman.schemas.hardware import Compute, Device, Efficiency, Hardware, Link, Memory
from helmsman.schemas.same import Same

_BACKENDS: dict[str, tuple[Backend, ...]] = {
    "cuda": ("cuda", "vulkan", "opencl"),
    "rocm": ("rocm", "vulkan", "opencl"),
    "metal": ("metal",),
}
"""Backends by kind of device, the usual one first."""

_OTHERS: tuple[Backend, ...] = ("vulkan", "sycl", "opencl")

_STAND_INS: dict[Backend, Backend] = {"sycl": "vulkan"}
"""Backends without measurements, and by whose constants they are predicted."""

_FEW = (1.0, 32.0, 128.0)
"""Tokens of a pass at which fewer than `_MANY` reach a smaller share of the arithmetic."""

_MANY = 512.0

_SCORED = (512, 1024, 2048, 4096, 8192, 32768)
"""Tokens of prompts at which the padding of scores is given."""

_SHARE_OF_FEW = {1.0: 0.35, 32.0: 0.35, 128.0: 0.75}
"""Of the share at `_MANY` tokens where nothing is known of the device (assumed)."""


@dataclass(frozen=True, slots=True)
class EngineBuild:
    """An engine whose kernels are meant. `era` of its build; `backend`: None for the usual one of a device; `flash`:
    attention as a kernel of its own, None for what builds of the era do by themselves."""

    engine: str
    era: Era = "unknown"
    backend: Backend | None = None
    flash: bool | None = None


_USUAL = EngineModel()


def with_kernels(
    hardware: Hardware, build: EngineBuild, formats: Iterable[StoredFormat], model: EngineModel = _USUAL
) -> Hardware:
    """Return the machine whose accelerators are as fast as the engine's kernels for weights in these formats, the first
    of them the format of most, and for such a model. Raises UsageError for a backend that a device has not."""
    usual = build.engine == OF_PASSES  # what whole passes take is known, whatever the model
    return _driven(Same(hardware), build, tuple(dict.fromkeys(formats)), _USUAL if usual else model)


@lru_cache(maxsize=64)
def _driven(
    same: Same[Hardware], build: EngineBuild, formats: tuple[StoredFormat, ...], model: EngineModel
) -> Hardware:
    hardware = same.document
    known = {
        d.name: _host(d, build, formats) if d.kind == "cpu" else _device(d, build, formats, model)
        for d in hardware.devices
    }
    changed = {name: device for name, device in known.items() if device is not None}
    if not changed:
        return hardware
    read = {device.memory: device.read for device in changed.values() if device.kind != "cpu"}
    source = build.engine
    none = exact(0.0, source)
    begin = hardware.between_passes.begin if hardware.between_passes else {}
    between = BetweenPasses(begin={**begin, **dict.fromkeys(changed, none)}, submission=none)
    return hardware.model_copy(
        update={
            "devices": tuple(changed.get(device.name, device) for device in hardware.devices),
            "memories": tuple(_memory(memory, read) for memory in hardware.memories),
            "links": tuple(_link(link, build.engine) for link in hardware.links),
            "between_passes": between,
            "sources": {**hardware.sources, source: engine_source(build.engine)},
        }
    )


def _link(link: Link, engine: str) -> Link:
    """Return a link over which the engine copies from memory that is not pinned as fast as its table says, and no
    faster than the link is."""
    copies = engine_table(engine).get("copies")
    if link.pageable is None or copies is None:
        return link
    share, apart = min(1.0, copies["rate"] / link.bandwidth.value), exp(Z90 * copies["sd"])
    figure = Figure(value=share, p10=share / apart, p90=min(1.0, share * apart), n=len(copies["of"]), source=engine)
    return link.model_copy(update={"pageable": figure})


def _memory(memory: Memory, read: dict[str, Figure]) -> Memory:
    """Return a memory that hands out what is read from it at most."""
    rate = read.get(memory.name)
    faster = rate is not None and rate.value > memory.bandwidth.value
    return memory.model_copy(update={"bandwidth": rate}) if faster else memory


def device_constants(device: Device, build: EngineBuild, scale: float = 0.0) -> Constants | None:
    """Return the engine's constants on a device, for models of a size (`size_scale`); None for one of which its table
    says nothing, or has what whole passes take. Raises UsageError for a backend that the device has not."""
    if build.engine == OF_PASSES:
        return None
    if device.kind == "cpu":
        return _host_constants(device, build)
    backend = _backend_of(device, build)
    product = device.product or ""
    era, flash = build.era, build.flash
    return constants_of(build.engine, product, device.device_class, backend, era, flash, scale, device.edited)


def _backend_of(device: Device, build: EngineBuild) -> Backend:
    """Return the backend whose constants an accelerator has. Raises UsageError for one that the device has not."""
    possible = _BACKENDS.get(device.kind, _OTHERS)
    backend = build.backend or possible[0]
    if backend not in possible:
        remedy = f"use one of {', '.join(possible)}"
        raise UsageError(f"{device.product or device.name} has no such backend", field="backend", value=backend,
                         remedy=remedy)  # fmt: skip
    return _STAND_INS.get(backend, backend)


def usual_backend(hardware: Hardware) -> Backend | None:
    """Return the backend that engines use on the machine's first accelerator; None where it has none, or none is
    usual."""
    kind = next((device.kind for device in hardware.devices if device.kind != "cpu"), None)
    return _BACKENDS[kind][0] if kind in _BACKENDS else None


def _device(device: Device, build: EngineBuild, formats: tuple[StoredFormat, ...], model: EngineModel) -> Device | None:
    """Return the device as the engine drives it; None for one of which the engine's table says nothing."""
    if build.engine == OF_PASSES:
        return _of_passes(Same(device), build, formats)
    constants = device_constants(device, build, model.scale)
    return None if constants is None else _Kernels(device, constants, build.engine, formats, model).driven()


def device_passes(device: Device, build: EngineBuild) -> PassConstants | None:
    """Return what whole passes take on a device; None for engines and processors of which that is not known, and where
    the cards of a plan are one already. Raises UsageError for a backend that the device has not."""
    product = device.product or ""
    if build.engine != OF_PASSES or device.kind == "cpu" or cards_of(product)[0] > 1:
        return None
    return pass_constants(product, device.device_class, _backend_of(device, build))


@lru_cache(maxsize=64)
def _of_passes(same: Same[Device], build: EngineBuild, formats: tuple[StoredFormat, ...]) -> Device | None:
    """Return the device as vLLM drives it, whatever the model; None where nothing is known."""
    known = device_passes(same.document, build)
    return None if known is None else driven_by(same.document, known, formats)


def _host_constants(device: Device, build: EngineBuild) -> Constants | None:
    """Return the constants of a processor; two sockets share worse."""
    product = re.sub(r"^\dx ", "", device.product or "")
    constants = constants_of(build.engine, product, device.device_class, "cpu", build.era, build.flash)
    if constants is None or product == device.product:
        return constants
    shared = engine_table(build.engine)["backends"]["cpu"]["sockets"]
    return replace(constants, shares={family: shared * of for family, of in constants.shares.items()})


def _host(device: Device, build: EngineBuild, formats: tuple[StoredFormat, ...]) -> Device | None:
    """Return a processor as the engine drives it: with shares of its plain reads and of its FP32 rate; None for one of
    which the engine's table says nothing."""
    constants = _host_constants(device, build)
    return None if constants is None else _HostKernels(device, constants, build.engine, formats).driven()


@dataclass(frozen=True, slots=True)
class _HostKernels:
    """The kernels of an engine on a processor, for weights in `formats`."""

    device: Device
    constants: Constants
    source: str
    formats: tuple[StoredFormat, ...]

    def driven(self) -> Device:
        """Return the processor with the engine's shares, and nothing of our executor's."""
        read, first = self.device.read.value, self.device.compute[0].flops.value
        rates = tuple(Compute(phase=phase, flops=exact(first, self.source)) for phase in PHASES)
        changed: dict[str, object] = {
            "read": self.device.read if self.device.read.source in _UNKNOWN_READS else exact(read, self.source),
            "compute": rates,
            "efficiency": tuple(self._curves()),
            "overhead": self.constants.figure(self.constants.overhead, "decode", self.source),
            "prompt_overhead": exact(self.constants.prompt_overhead, self.source),
        }
        return self.device.model_copy(update={**dict.fromkeys(_OURS), **changed})

    def _curves(self) -> Iterator[Efficiency]:
        main = self.formats[0]
        named: dict[StoredFormat | Literal["*"], StoredFormat] = {"*": main}
        named |= {fmt: fmt for fmt in self.formats[1:] if fmt != main}
        for name, fmt in named.items():
            share = self.constants.figure(self._share(fmt), "decode", self.source)
            yield Efficiency(bound="memory", op="linear", format=name, at=(1.0,), share=(share,))
            product = self.constants.figure(self._product(fmt), "prompt", self.source)
            yield Efficiency(bound="compute", op="linear", format=name, at=(1.0,), share=(product,))
        for curve in self.device.efficiency:
            if curve.op == "attention":
                slower = self.constants.cache if curve.bound == "memory" else self.constants.attending
                yield curve.model_copy(update={"share": tuple(scaled_figure(s, slower) for s in curve.share)})

    def _share(self, fmt: StoredFormat) -> float:
        """Return the share of plain reads at which weights in a format are multiplied: read, and then unpacked."""
        share, unpacking = self.constants.shares[family_of(fmt)], self.constants.unpacking
        if unpacking is None:
            return share
        read, flops = self.device.read.value, self.device.compute[0].flops.value
        values = unpacked_values(fmt)
        return 1.0 / (1.0 / share + read * values / (unpacking[unpacking_of(fmt)] * flops))

    def _product(self, fmt: StoredFormat) -> float:
        products = self.constants.products
        return self.constants.prompts["4"] if products is None else products[unpacking_of(fmt)]


_UNKNOWN_READS = frozenset({CORE_READS, MEMORY_SPEED})
"""Sources of reads from memory that are a guess, whose spread comes beside that of the engine's constants."""

_OURS = (
    *("overheads", "launch", "dispatch", "launching", "prompt_launch"),
    *("look_up", "request", "elementwise", "decompress"),
)
"""The figures of a device that only our executor was measured to have."""


@dataclass(frozen=True, slots=True)
class _Kernels:
    """The kernels of an engine on a device, for weights in `formats` of a `model`."""

    device: Device
    constants: Constants
    source: str
    formats: tuple[StoredFormat, ...]
    model: EngineModel

    def driven(self) -> Device:
        """Return the device with the engine's rates and shares, and nothing of our executor's."""
        bandwidth, flops = sheet_rates(self.device)
        group = engine_class(self.device.product or "", self.device.device_class)
        half = flops * half_ratio(self.device.product or "", group)
        int8 = flops * int8_ratio(self.device.product or "", group)
        rates = {fmt: half if family_of(fmt) == "16" else int8 for fmt in self.formats}
        changed: dict[str, object] = {
            "read": exact(bandwidth, self.source),
            "compute": tuple(self._rates(rates, half)),
            "efficiency": (*self._curves(), *self._halves(rates, half)),
            "overhead": self._figure(self.constants.overhead),
            "prompt_overhead": self._figure(self.constants.prompt_overhead, "prompt"),
        }
        return self.device.model_copy(update={**dict.fromkeys(_OURS), **changed})

    def _rates(self, rates: dict[StoredFormat, float], half: float) -> "list[Compute]":
        main = next(iter(rates.values()), half)
        by_format: dict[StoredFormat | Literal["*"], float] = {"*": main}
        by_format |= {fmt: rate for fmt, rate in {**rates, "f16": half}.items() if rate != main}
        return [
            Compute(phase=phase, format=fmt, flops=exact(rate, self.source))
            for phase in PHASES
            for fmt, rate in by_format.items()
        ]

    def _curves(self) -> "list[Efficiency]":
        main = self.formats[0]
        curves = [self._weights("*", main), self._prompts("*", main)]
        for fmt in self.formats[1:]:
            if family_of(fmt) != family_of(main):
                curves += [self._weights(fmt, fmt), self._prompts(fmt, fmt)]
        return [*curves, *self._caches(), self._scoring()]

    def _caches(self) -> Iterator[Efficiency]:
        """Yield the shares at which caches are read: of codes by kernels in which every head reads the keys of its head
        by itself (ggml-cuda's vector kernels, which alone take quantised caches in steps)."""
        reading = self._figure(self.constants.cache)
        yield Efficiency(bound="memory", op="attention", at=(1.0,), share=(reading,))
        if self.model.sharing > 1 and self.device.kind in ("cuda", "rocm"):
            apart = self._figure(self.constants.cache / self.model.sharing)
            yield Efficiency(bound="memory", op="attention", format="q8_0", at=(1.0,), share=(apart,))

    def _halves(self, rates: dict[StoredFormat, float], half: float) -> Iterator[Efficiency]:
        """Yield shares of attention over caches of which products with weights take another rate: keys and values
        become f16 before they are multiplied (ggml-cuda's launch_fattn)."""
        main = next(iter(rates.values()), half)
        for fmt in KV_FORMATS:
            rate = half if fmt == "f16" else rates.get(fmt, main)
            if rate != half:
                curve = self._scoring()
                share = tuple(scaled_figure(reached, half / rate) for reached in curve.share)
                yield curve.model_copy(update={"format": fmt, "share": share})

    def _scoring(self) -> Efficiency:
        """Return the share of arithmetic of attention in prompts: of a kernel of its own one share, but for one token
        over latent vectors, which are few for all heads; else what scores that are written and read leave, which are
        padded most in short prompts."""
        reached = self.constants.attending
        if not self.constants.scored:
            many = self._figure(reached, "prompt")
            slower = latent_times(self.source) if self.model.latent else None
            if slower is None:
                return Efficiency(bound="compute", op="attention", at=(1.0,), share=(many,))
            times, doubt = slower
            few = replace(self.constants, prompt=hypot(self.constants.prompt, doubt))
            one = few.figure(reached / times, "prompt", self.source)
            return Efficiency(bound="compute", op="attention", at=(1.0, _MANY), share=(one, many))
        shares = (reached * self.model.width / 128.0 / score_padding(tokens) for tokens in _SCORED)
        figures = tuple(self._figure(share, "prompt") for share in shares)
        return Efficiency(bound="compute", op="attention", at=tuple(map(float, _SCORED)), share=figures)

    def _weights(self, name: StoredFormat | Literal["*"], fmt: StoredFormat) -> Efficiency:
        share = self._figure(self.constants.shares[family_of(fmt)])
        return Efficiency(bound="memory", op="linear", format=name, at=(1.0,), share=(share,))

    def _prompts(self, name: StoredFormat | Literal["*"], fmt: StoredFormat) -> Efficiency:
        """Return the share of arithmetic of products with weights in `fmt`: as large as was measured of prompts of
        `_MANY` tokens, and of fewer as much smaller as it is of our kernels on the device's class."""
        share = self.constants.prompts["16" if family_of(fmt) == "16" else "4"]
        known = efficiency_curve(self.device, "compute", "linear", "f16")
        few = _SHARE_OF_FEW
        if known is not None:
            few = {at: min(1.0, interpolate(known, at).value / interpolate(known, _MANY).value) for at in _FEW}
        shares = [*(share * few[at] for at in _FEW), share]
        figures = tuple(self._figure(value, "prompt") for value in shares)
        return Efficiency(bound="compute", op="linear", format=name, at=(*_FEW, _MANY), share=figures)

    def _figure(self, value: float, phase: str = "decode") -> Figure:
        return self.constants.figure(value, "prompt" if phase == "prompt" else "decode", self.source)
