"""Chooses the precision of activations in matrix products, and the measured efficiency curves that go with it."""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Literal

from helmsman.schemas.formats import Precision, StoredFormat, is_plain, is_small
from helmsman.schemas.hardware import NATIVE_KINDS, Device, Efficiency, Hardware
from helmsman.schemas.operation_table import OperationTable
from helmsman.schemas.rounding import DEFAULT_ROUNDING, AttentionPrecision, FloatPrecision, Rounding
from helmsman.schemas.same import Same

Wanted = Literal["auto"] | Precision

_BF16_UNITS = ("amx", "amx_bf16", "avx512bf16", "avx512_bf16", "neonbf16", "bf16")
"""Names, in records of measured and of listed processors, of units that multiply bf16 by bf16 into f32."""

_BYTE_UNITS = ("amx", "amx_bf16", "avx512bf16", "avx512_bf16", "avx512vnni", "avx512_vnni", "avxvnni", "avx_vnni",
               "neondot", "neoni8mm", "neonbf16")  # fmt: skip
"""Names of units that multiply numbers of 8 bits into sums of 32."""

_WORTH_A_LOSS = 1.15
"""The least factor by which products of quantised weights must be faster in bf16 than in int16 for `auto` to take it:
it loses an eighth of what a format of eight bits itself costs, and int16 nothing that shows."""

_WORTH_NO_LOSS = 1.1
"""The least factor by which attention of prompts must be faster with factors in int16 than in f32 for `auto` to take
it: its loss does not show, and two measurements of one speed rarely differ by so much."""

_WORTH_LITTLE_LOSS = 1.2
"""The least factor by which products of weights of fewer than five bits must be faster with activations in int8 than in
what other quantised weights meet for `auto` to take int8: it loses a hundredth of what their format itself costs."""


def with_rounding(hardware: Hardware, wanted: Wanted = "auto") -> Hardware:
    """The machine as a plan sees it: devices with Helm's own kernels say what they round activations to, and keep the
    efficiency curves, and the operation tables, that were measured so.

    `auto`: weights in bf16 meet bf16 where units multiply these, as every framework computes such models, and f32 was
    not measured to be faster (Intel's AVX-512 units multiply half as many bf16 as f32); quantised weights meet int16,
    whose loss is nothing beside what their own format costs, and bf16 where units were measured to be `_WORTH_A_LOSS`
    times as fast with it; those of fewer than five bits meet int8, as in other engines, where units of bytes were
    measured to be `_WORTH_LITTLE_LOSS` times as fast with it as with that; attention of prompts is in bf16 where units
    multiply these and f32 was not measured to be faster, else in int16 where that was measured to be `_WORTH_NO_LOSS`
    times as fast as f32. A precision that does not apply to weights of a kind, or to attention, leaves those as `auto`
    has them. One machine gives one."""
    return _rounded(Same(hardware), wanted)


@lru_cache(maxsize=64)
def _rounded(same: Same[Hardware], wanted: Wanted) -> Hardware:
    hardware = same.document
    devices = {device.name: _chosen(device, wanted) for device in hardware.devices}
    tables = tuple(table for table in hardware.tables if _as_measured(table, devices))
    return hardware.model_copy(update={"devices": tuple(devices.values()), "tables": tables})


def _as_measured(table: OperationTable, devices: Mapping[str, Device]) -> bool:
    """Whether a table's devices round activations to the default precision, with which all tables are measured."""
    rounds = [devices[name].rounds for name in (table.host, table.accelerator) if name in devices]
    return all(precision.of(table.format) == DEFAULT_ROUNDING.of(table.format) for precision in rounds)


def _chosen(device: Device, wanted: Wanted) -> Device:
    if device.kind not in NATIVE_KINDS:
        return device
    rounding = rounding_of(device, wanted)
    return device.model_copy(update={"rounding": rounding, "efficiency": tuple(_kept(device.efficiency, rounding))})


def rounding_of(device: Device, wanted: Wanted) -> Rounding:
    """Return the precision of activations on a device, for the setting `wanted`."""
    units = any(name in _BF16_UNITS for name in device.isa)
    floats: FloatPrecision = "bf16" if units and _gain(device, "linear", "bf16", "f32") >= 1 else "f32"
    attention = _attention(device, units)
    gains = [_gain(device, "linear", fmt, "int16") for fmt in _formats_of_codes(device, "bf16")]
    codes: Precision = "bf16" if units and gains and min(gains) >= _WORTH_A_LOSS else "int16"
    small: Precision | None = "int8" if _int8_pays(device, codes) else None
    if wanted == "f32":
        floats, attention, codes = "f32", "f32", "f32"
    elif wanted == "bf16":
        floats, attention, codes = "bf16", "bf16", "bf16"
    elif wanted in ("int16", "int8"):
        codes = wanted
        attention = "int16" if wanted == "int16" else attention
    return Rounding(bf16=floats, codes=codes, small_codes=small if wanted == "auto" else None, attention=attention)


def _attention(device: Device, units: bool) -> AttentionPrecision:
    """Return the precision of attention of prompts under `auto`; `units`: whether the device has units for bf16."""
    if units and _gain(device, "attention", "*", "f32") >= 1:
        return "bf16"
    return "int16" if _gain(device, "attention", "*", "f32", "int16") >= _WORTH_NO_LOSS else "f32"


def _int8_pays(device: Device, other: Precision) -> bool:
    """Return whether the device has units for int8, and products of weights of fewer than five bits were measured to be
    `_WORTH_LITTLE_LOSS` times as fast with activations in int8 as in `other`."""
    formats = [fmt for fmt in _formats_of_codes(device, "int8") if is_small(fmt)]
    gains = [_gain(device, "linear", fmt, other, "int8") for fmt in formats]
    return any(name in _BYTE_UNITS for name in device.isa) and bool(gains) and min(gains) >= _WORTH_LITTLE_LOSS


def _gain(device: Device, op: str, fmt: str, other: Precision, rounding: Precision = "bf16") -> float:
    """Return the factor by which operations of the most tokens are faster with activations in `rounding` than in
    `other`; 1 where not both were measured."""
    last = {
        curve.rounding: curve.share[-1].value
        for curve in device.efficiency
        if (curve.bound, curve.op, curve.format) == ("compute", op, fmt)
    }
    return last[rounding] / last[other] if {rounding, other} <= last.keys() else 1.0


def _formats_of_codes(device: Device, rounding: Precision) -> set[StoredFormat]:
    """Return the quantised formats whose products were measured with activations in `rounding`."""
    return {
        curve.format
        for curve in device.efficiency
        if (curve.bound, curve.op, curve.rounding) == ("compute", "linear", rounding)
        and curve.format != "*"
        and not is_plain(curve.format)
    }


def _kept(curves: tuple[Efficiency, ...], rounding: Rounding) -> Iterator[Efficiency]:
    """The curves without those of other precisions, where there is one of this; else all of them, of which the first
    counts, as of experts in records that have them in the default precision alone. Of attention all: what devices
    divide is f32 whatever was chosen."""
    for curve in curves:
        if curve.rounding is None or curve.format == "*" or curve.op == "attention":
            yield curve
            continue
        chosen = rounding.of_experts(curve.format) if curve.op == "experts" else rounding.of(curve.format)
        if curve.rounding == chosen or not _measured(curves, curve, chosen):
            yield curve


def _measured(curves: Iterable[Efficiency], like: Efficiency, rounding: Precision) -> bool:
    """Whether there is a curve of the same products with activations of that precision."""
    kind = (like.bound, like.op, like.format)
    return any((curve.bound, curve.op, curve.format) == kind and curve.rounding == rounding for curve in curves)
