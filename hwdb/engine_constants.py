"""Constants of engines: what their kernels reach of a device's data sheet, and what every operation takes beside.

`hwdb/engines/*.json` has them by backend, kind, class and device, as `benchmarks.engine_rows` fitted them to others'
measurements; a device leans on its class where it has few rows, on its kind where its class has none, and on the
backend. How far a prediction may be off is a figure of each (`decode`, `prompt`), which intervals are made of: what
errs of one device errs together, and what is known of each constant alone is less (the table has it as `sd`)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import exp, hypot
from pathlib import Path
from typing import Any, Literal

from helmsman.hwdb.engine_classes import lineage
from helmsman.hwdb.fit import Z90
from helmsman.schemas.errors import UsageError
from helmsman.schemas.figures import Figure, Source
from helmsman.schemas.formats import StoredFormat, is_plain

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


@dataclass(frozen=True, slots=True)
class Constants:
    """An engine's constants on a device.

    `overhead`: seconds of every operation of a decode step, `prompt_overhead` of a prompt's for every chunk of 128
    tokens; `shares` of the bandwidth at which weights are read, by family; `cache`: that
    of keys and values; `prompts`: shares of the rate of arithmetic, of plain weights (16) and quantised ones (4);
    `attending`: of attention in prompts. `decode`, `prompt`: standard deviations of the logarithm of a prediction.
    `node`: where in the table they are from; `rows`: how many measurements there are of that."""

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

    def figure(self, value: float, phase: Literal["decode", "prompt"], source: str) -> Figure:
        """Return a constant as a figure whose spread is that of a prediction of the phase."""
        apart = exp(Z90 * (self.decode if phase == "decode" else self.prompt))
        return Figure(value=value, p10=value / apart, p90=value * apart, n=self.rows, source=source)


@cache
def engine_table(engine: str) -> Any:
    """Return the table of an engine's constants. Raises UsageError for one that has none."""
    path = FOLDER / f"{engine}.json"
    known = sorted(file.stem for file in FOLDER.glob("*.json"))
    if engine not in known:
        problem = "there are no constants of this engine"
        raise UsageError(problem, field="engine", value=engine, remedy=f"use one of {', '.join(known)}")
    return json.loads(path.read_bytes())


def engine_source(engine: str) -> Source:
    """Return where an engine's constants are from."""
    return Source(**engine_table(engine)["source"])


def constants_of(
    engine: str, product: str, device_class: str | None, backend: str, era: Era = "unknown", flash: bool | None = None
) -> Constants | None:
    """Return the constants of an engine on a device, by the nearest node of its lineage that the table has; None where
    the table does not know the backend. `flash`: whether attention is a kernel of its own; None: as builds of the era
    do by themselves. Raises UsageError for an engine without a table."""
    nodes = engine_table(engine)["nodes"]
    node = next((name for name in lineage(product, device_class, backend) if name in nodes), None)
    if node is None:
        return None
    row, factors = nodes[node], engine_table(engine)["backends"][backend]
    known = _of_node(node, row)
    built = _of_era(known, factors["eras"], era)
    flash = era in ("2025", "unknown") if flash is None else flash
    by = factors["flash"][str(flash).lower()]
    return replace(
        built,
        overhead=built.overhead * by["overhead"],
        prompt_overhead=built.prompt_overhead * by["prompt_overhead"],
        cache=built.cache * by["cache"],
        attending=built.attending * by["attending"],
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
    )


def _of_era(known: Constants, eras: Mapping[str, Any], era: Era) -> Constants:
    """Return the constants as builds of an era have them; of an unknown one the newest two's mean, with the difference
    between them as a further spread."""
    if era in eras:
        return _times(known, eras[era])
    newest = [eras[name] for name in sorted(eras)[-2:]]
    ends = [_times(known, factors) for factors in newest]
    middle = _times(known, {key: _mean([f[key] for f in newest]) for key in newest[0]})
    apart = abs(_step(ends[0]) / _step(ends[-1]) - 1.0) / 2.0
    prompts = abs(ends[0].prompts["4"] / ends[-1].prompts["4"] - 1.0) / 2.0
    return replace(middle, decode=hypot(known.decode, apart), prompt=hypot(known.prompt, prompts))


def _mean(values: list[Any]) -> Any:
    """Return the geometric mean of numbers, or of those of mappings, by key."""
    if isinstance(values[0], Mapping):
        return {key: _mean([value[key] for value in values]) for key in values[0]}
    product = 1.0
    for value in values:
        product *= value
    return product ** (1.0 / len(values))


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
