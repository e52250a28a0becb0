"""Constants of engines: what their kernels reach of a device's data sheet, and what every operation takes beside.

`hwdb/engines/*.json` has them by backend, kind, class and device, as `benchmarks.engine_rows` fitted them to others'
measurements; a device leans on its class where it has few rows, on its kind where its class has none, and on the
backend. How far a prediction may be off is a figure of each (`decode`, `prompt`), which intervals are made of: what
errs of one device errs together, and what is known of each constant alone is less (the table has it as `sd`)."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import exp, hypot, log, sqrt
from pathlib import Path
from typing import Any, Literal

from helmsman.hwdb.catalogue import find_gpu
from helmsman.hwdb.engine_classes import (
    HALF_ENERGY,
    SCORE_BYTES,
    engine_class,
    expands_weights,
    half_ratio,
    int8_ratio,
    lineage,
)
from helmsman.hwdb.fit import Z90
from helmsman.schemas.errors import HelmError, UsageError
from helmsman.schemas.figures import Figure, Source
from helmsman.schemas.formats import FORMAT_FACTS, StoredFormat, is_plain
from helmsman.schemas.hardware import UNEDITED, Edited

FOLDER = Path(__file__).parent / "engines"

Era = Literal["2023", "2024", "2025", "unknown"]
ERAS: tuple[Era, ...] = ("2023", "2024", "2025", "unknown")
"""Years of an engine's build; the last known one is 2025 and later."""

Family = Literal["16", "8", "6", "4", "2"]
FAMILIES: tuple[Family, ...] = ("16", "8", "6", "4", "2")
"""Formats of weights by bits a value: plain ones, and blocks of about so many."""

_FAMILY_OF: tuple[tuple[tuple[str, ...], Family], ...] = (
    (("q8", "fp8", "uint8"), "8"),
    (("q6", "q5", "iq5", "iq6"), "6"),
    (("q1", "q2", "q3", "iq1", "iq2", "iq3", "tq"), "2"),
)


def family_of(fmt: StoredFormat) -> Family:
    """Return the family of a format."""
    if is_plain(fmt):
        return "16"
    return next((family for starts, family in _FAMILY_OF if fmt.startswith(starts)), "4")


Unpacking = Literal["16", "8", "4", "k", "iq"]
UNPACKINGS: tuple[Unpacking, ...] = ("16", "8", "4", "k", "iq")
"""Formats by the arithmetic that processors need for a value: plain ones, bytes, fields of four bits with a scale,
blocks of blocks with scales of their own, and codes that are looked up in tables."""


def unpacking_of(fmt: StoredFormat) -> Unpacking:
    """Return how processors unpack values of a format."""
    family = family_of(fmt)
    if family in ("16", "8"):
        return "16" if family == "16" else "8"
    if re.match(r"i?q\d_k|iq4_xs", fmt):
        return "k"
    return "iq" if fmt.startswith("iq") and fmt != "iq4_nl" else "4"


def unpacked_values(fmt: StoredFormat) -> float:
    """Return the values in a byte of a format that are unpacked before they are multiplied; 0 of plain ones."""
    facts = FORMAT_FACTS[fmt]
    return 0.0 if is_plain(fmt) else facts.values / facts.size


@dataclass(frozen=True, slots=True)
class Constants:
    """An engine's constants on a device.

    `overhead`: seconds of every operation of a decode step, `prompt_overhead` of a prompt's for every chunk of 128
    tokens; `shares` of the bandwidth at which weights are read, by family; `cache`: that of keys and values; `prompts`:
    shares of the rate of arithmetic, of plain weights (16) and quantised ones (4), in a model of usual size; `size`:
    the power of a model's size with which these change; `attending`: of attention in prompts, `scored`: whether it
    writes scores of heads of 128 values. `decode`, `prompt`: standard deviations of the logarithm of a prediction.
    `node`: where in the table they are from; `rows`: how many measurements there are of
    that; `unpacking`: of processors, values that are unpacked for a FLOP that they could do, and `products`: shares of
    the FP32 rate in prompts, both by how formats are unpacked; `decode_covariance`: of the logarithms of what
    `overhead`, `shares` and `cache` take, `prompt_covariance`: of what `prompt_overhead`, `prompts` and `attending`
    take, and of the power of the size; None where the table does not say."""

    overhead: float
    prompt_overhead: float
    shares: Mapping[Family, float]
    cache: float
    prompts: Mapping[Family, float]
    attending: float
    decode: float
    prompt: float
    node: str
    rows: int
    scored: bool = False
    unpacking: Mapping[Unpacking, float] | None = None
    products: Mapping[Unpacking, float] | None = None
    decode_covariance: "Covariance | None" = None
    prompt_covariance: "Covariance | None" = None
    size: float = 0.0

    def figure(self, value: float, phase: Literal["decode", "prompt"], source: str) -> Figure:
        """Return a constant as a figure whose spread is that of a prediction of the phase."""
        apart = exp(Z90 * (self.decode if phase == "decode" else self.prompt))
        return Figure(value=value, p10=value / apart, p90=value * apart, n=self.rows, source=source)


Covariance = tuple[tuple[float, ...], ...]
"""Rows of a covariance of logarithms."""


@cache
def engine_table(engine: str) -> Any:
    """Return the table of an engine's constants. Raises UsageError for one that has none."""
    path = FOLDER / f"{engine}.json"
    known = sorted(file.stem for file in FOLDER.glob("*.json"))
    if engine not in known:
        problem = "there are no constants of this engine"
        raise UsageError(problem, field="engine", value=engine, remedy=f"use one of {', '.join(known)}")
    return json.loads(path.read_bytes())


@cache
def constants_digest(engine: str) -> str | None:
    """Return the beginning of the SHA-256 of an engine's table; None for an engine without one."""
    path = FOLDER / f"{engine}.json"
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.is_file() else None


def engine_source(engine: str) -> Source:
    """Return where an engine's constants are from."""
    return Source(**engine_table(engine)["source"])


def latent_times(engine: str) -> tuple[float, float] | None:
    """Return how many times longer attention of one token over latent vectors takes on accelerators than arithmetic of
    prompts does, and the standard deviation of its logarithm; None where nobody measured an engine."""
    known = engine_table(engine).get("latent")
    return None if known is None else (known["times"], known["sd"])


def size_scale(active: float) -> float:
    """Return the logarithm of a model's size, by parameters that a token meets, over the one at which shares of prompts
    are given."""
    return log(active / _USUAL_SIZE)


_USUAL_SIZE = 7.5e9
"""Parameters that a token of Llama-3-8B meets."""


def constants_of(
    engine: str,
    product: str,
    device_class: str | None,
    backend: str,
    era: Era = "unknown",
    flash: bool | None = None,
    scale: float = 0.0,
    edited: Edited = UNEDITED,
) -> Constants | None:
    """Return the constants of an engine on a device, by the nearest node of its lineage that the table has; None where
    the table does not know the backend. `flash`: whether attention is a kernel of its own; None: as builds of the era
    do by themselves; `scale`: of the model (`size_scale`); `edited`: what edits multiplied the rates of the data sheet
    by. Raises UsageError for an engine without a table."""
    nodes = engine_table(engine)["nodes"]
    node = next((name for name in lineage(product, device_class, backend) if name in nodes), None)
    if node is None:
        return None
    factors, known = engine_table(engine)["backends"][backend], _of_size(_of_node(node, nodes[node]), scale)
    flash = era in ("2025", "unknown") if flash is None else flash
    sheet = None if backend == "cpu" else _sheet(product, device_class, edited)
    built = []
    for year in (era,) if era in factors["eras"] else sorted(factors["eras"])[-2:]:
        of_era = _with_flash(_times(known, factors["eras"][year]), factors["flash"][str(flash).lower()])
        built.append(of_era if sheet is None else _reached(of_era, nodes[node], sheet, backend, year, flash))
    return built[0] if len(built) == 1 else _between(*built)


def _of_size(known: Constants, scale: float) -> Constants:
    """Return the constants for models of a size: with what products reach there, and with the doubt of that."""
    if known.prompt_covariance is None or not scale:
        return known
    doubt = sqrt(known.prompt_covariance[-1][-1]) * scale
    prompts = {family: share * exp(known.size * scale) for family, share in known.prompts.items()}
    return replace(known, prompts=prompts, prompt=hypot(known.prompt, doubt))


@dataclass(frozen=True, slots=True)
class _Sheet:
    """Of a device's data sheet: its class for engines, bytes/s, FLOP/s with FP16 accumulation, int8 operations/s, and
    watts, where they are known."""

    group: str
    bandwidth: float
    half: float
    int8: float
    power: float | None


def _sheet(product: str, device_class: str | None, edited: Edited) -> _Sheet | None:
    """Return what the catalogue says of a device, times what edits multiplied it by: more FLOP/s may take as many more
    watts; None for a device that it does not have."""
    try:
        gpu, _ = find_gpu(product)
    except HelmError:
        return None
    group = engine_class(product, device_class)
    half, int8 = half_ratio(product, group), int8_ratio(product, group)
    flops, power = gpu.flops * edited.flops, gpu.power and gpu.power * edited.flops
    return _Sheet(group, gpu.bandwidth * edited.read, flops * half, flops * int8, power)


def _reached(known: Constants, row: Mapping[str, Any], sheet: _Sheet, backend: str, era: str, flash: bool) -> Constants:
    """Return the constants with what prompts reach of rates in the end: within the device's power, with weights
    expanded where builds did so, and of attention that writes its scores."""
    watt = 1.0 / (row["joule"] * sheet.power) if sheet.power else 0.0
    plain = 1.0 / (known.prompts["16"] * sheet.half) + HALF_ENERGY * watt
    coded = 1.0 / (known.prompts["4"] * sheet.int8) + watt
    if expands_weights(era, backend, sheet.group):
        coded = plain + _EXPANDED / (row["expanding"] * sheet.bandwidth)
    prompts: dict[Family, float] = {"16": 1.0 / (plain * sheet.half), "4": 1.0 / (coded * sheet.int8)}
    attending = row["attending"]
    if not flash:
        attending = 4.0 * 128.0 * row["scores"] * sheet.bandwidth / (SCORE_BYTES * sheet.half)
    return replace(known, prompts=prompts, attending=attending, scored=not flash)


_EXPANDED = (0.58 + 2.0) / (2.0 * 512)
"""Bytes for each FLOP of a micro-batch of 512 tokens where 4-bit weights are read and written as FP16 first."""


def _with_flash(known: Constants, by: Mapping[str, float]) -> Constants:
    return replace(
        known,
        overhead=known.overhead * by["overhead"],
        prompt_overhead=known.prompt_overhead * by["prompt_overhead"],
        cache=known.cache * by["cache"],
    )


def _of_node(name: str, row: Mapping[str, Any]) -> Constants:
    return Constants(
        overhead=row["overhead"],
        prompt_overhead=row["prompt_overhead"],
        shares=row["shares"],
        cache=row["cache"],
        prompts=row["prompts"],
        attending=row["attending"],
        decode=row["spread"]["decode"],
        prompt=row["spread"]["prompt"],
        node=name,
        rows=row["rows"],
        unpacking=row.get("unpacking"),
        products=row.get("products"),
        decode_covariance=_covariance(row, "decode"),
        prompt_covariance=_covariance(row, "prompt"),
        size=row.get("size", 0.0),
    )


def _covariance(row: Mapping[str, Any], phase: str) -> Covariance | None:
    """Return a covariance whose rows the table has as far as the diagonal."""
    half: list[list[float]] | None = row.get("covariance", {}).get(phase)
    if half is None:
        return None
    count = range(len(half))
    return tuple(tuple(half[max(a, b)][min(a, b)] for b in count) for a in count)


def _between(older: Constants, newer: Constants) -> Constants:
    """Return the mean of two eras' constants, with the difference between them as a further spread."""
    apart = abs(_step(older) / _step(newer) - 1.0) / 2.0
    prompts = abs(older.prompts["4"] / newer.prompts["4"] - 1.0) / 2.0
    return replace(
        newer,
        overhead=_mean(older.overhead, newer.overhead),
        prompt_overhead=_mean(older.prompt_overhead, newer.prompt_overhead),
        shares={family: _mean(older.shares[family], newer.shares[family]) for family in newer.shares},
        prompts={family: _mean(older.prompts[family], newer.prompts[family]) for family in newer.prompts},
        decode=hypot(newer.decode, apart),
        prompt=hypot(newer.prompt, prompts),
    )


def _mean(one: float, other: float) -> float:
    """Return the geometric mean of two constants."""
    return sqrt(one * other)


def _times(known: Constants, factors: Mapping[str, Any]) -> Constants:
    return replace(
        known,
        overhead=known.overhead * factors["overhead"],
        prompt_overhead=known.prompt_overhead * factors["prompt_overhead"],
        shares={family: known.shares[family] * factors["shares"][family] for family in known.shares},
        prompts={family: known.prompts[family] * factors["prompts"][family] for family in known.prompts},
    )


_STEP = 355, 4e9 / 1e12
"""Operations of a step of a model of 32 layers, and seconds of its 4-bit weights at 1 TB/s: by these two steps of eras
are compared."""


def _step(known: Constants) -> float:
    operations, seconds = _STEP
    return operations * known.overhead + seconds / known.shares["4"]
