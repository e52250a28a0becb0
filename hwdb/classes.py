"""Device classes: what a device of a kind achieves of its data sheet when nobody measured it, with the spread."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from helmsman.hwdb.catalogue import read_catalogue
from helmsman.schemas.figures import Figure, Source
from helmsman.schemas.hardware import Efficiency


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """Shares and constants of a class.

    `sustained`: plain reads / data sheet bandwidth; `memory`, `attention`, `reshape`: bytes of operations, of
    attention, of turning a cache (if the class says) / `sustained`;
    `compute`: achieved / peak FLOP/s by tokens; seconds as in `Device`. `sources`: of all of them."""

    name: str
    sustained: Figure
    efficiency: tuple[Efficiency, ...]
    launch: Figure | None
    overhead: Figure | None
    sources: dict[str, Source]


@cache
def find_class(name: str) -> DeviceClass:
    """Return the class called `name`, made once; KeyError is a fault of the catalogue."""
    table = read_catalogue("classes")
    row = table["classes"][name]
    launch, overhead = _optional(row, "launch"), _optional(row, "overhead")
    sustained = Figure(**row["sustained"])
    turning = _optional(row, "reshape")
    curves = (
        Efficiency(bound="memory", at=(1.0,), share=(Figure(**row["memory"]),)),
        Efficiency(bound="memory", op="attention", at=(1.0,), share=(Figure(**row["attention"]),)),
        *((Efficiency(bound="memory", op="reshape", at=(1.0,), share=(turning,)),) if turning else ()),
        Efficiency(
            bound="compute",
            at=tuple(row["compute"]["at"]),
            share=tuple(Figure(**share) for share in row["compute"]["share"]),
        ),
    )
    figures = [sustained, *(s for curve in curves for s in curve.share), *(c for c in (launch, overhead) if c)]
    sources = {key: Source(**table["sources"][key]) for key in sorted({figure.source for figure in figures})}
    return DeviceClass(name, sustained, curves, launch, overhead, sources)


def scaled(amount: float, share: Figure) -> Figure:
    """`amount` times a share, with the share's relative spread and source."""
    return share.model_copy(
        update={"value": amount * share.value, "p10": amount * share.p10, "p90": amount * share.p90}
    )


def _optional(row: dict[str, Any], key: str) -> Figure | None:
    return Figure(**row[key]) if key in row else None
