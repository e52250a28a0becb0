"""Constants of vLLM's kernels by device, fitted to profiles of single operators (`benchmarks.engine_passes`).

A product of m tokens with a matrix of W bytes takes o + T W, where T joins what reading a byte takes at a share of the
bandwidth and what its arithmetic takes at a share of the rate: (read^q + compute^q)^(1/q), times a factor by tokens
that is near 1. Attention reads a cache at another share, or does its arithmetic at a share that grows with the tokens
of a prompt; whatever else a layer has takes seconds of its own and moves its activations at a share of the bandwidth.
A device without profiles has the constants of its class, kind or backend."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from typing import Any

from helmsman.hwdb.engine_classes import engine_class, half_ratio, lineage
from helmsman.hwdb.engine_constants import engine_table
from helmsman.hwdb.fit import Z90
from helmsman.schemas.figures import Figure
from helmsman.schemas.formats import StoredFormat, is_plain, size_of

ENGINE = "vllm"

ROWS = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0)
"""Tokens of a pass at which products have factors of their own."""

PROMPTS = (16.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 16384.0)
"""Tokens of a prompt at which attention has a share of the rate of arithmetic."""

Kernel = str
"""How weights are multiplied: 16 (plain), fp8 (both sides), fp4 (both sides), w4 (4-bit codes expanded in the kernel:
AWQ, GPTQ, MXFP4)."""


WIDTHS: dict[Kernel, float] = {"16": 2.0, "fp8": 1.0, "fp4": 0.5625, "w4": 0.53}
"""Bytes of a weight, scales included."""

RATES: dict[Kernel, float] = {"16": 1.0, "fp8": 2.0, "fp4": 4.0, "w4": 1.0}
"""Operations/s over those of 16 bits, dense and by data sheet, on devices that have them."""


def kernel_of(fmt: StoredFormat) -> Kernel:
    """Return the kernel by which vLLM multiplies weights in a format."""
    if is_plain(fmt):
        return "16"
    if fmt.startswith(("fp8", "q8", "uint8")):
        return "fp8"
    return "fp4" if fmt.startswith("nvfp4") else "w4"


def weight_bytes(fmt: StoredFormat) -> float:
    """Return the bytes of a weight in a format, on average over whole blocks."""
    return size_of(_VALUES, fmt) / _VALUES


_VALUES = 2**14
"""Values of whole blocks of any format."""


def weighted(rows: float, points: Sequence[float]) -> list[tuple[int, float]]:
    """Return the places of the points around a number of rows, with their weights in the logarithm."""
    if rows <= points[0]:
        return [(0, 1.0)]
    for place in range(1, len(points)):
        if rows <= points[place]:
            low, high = log(points[place - 1]), log(points[place])
            part = (log(rows) - low) / (high - low)
            return [(place - 1, 1.0 - part), (place, part)]
    return [(len(points) - 1, 1.0)]


def along(rows: float, points: Sequence[float], values: Sequence[float]) -> float:
    """Return the value at a number of rows of a curve that is straight in both logarithms."""
    return exp(sum(weight * log(values[place]) for place, weight in weighted(rows, points)))


@dataclass(frozen=True, slots=True)
class ProductConstants:
    """A kernel's constants: `read`, `compute`: shares of bandwidth and rate; `joined`: the exponent by which both join;
    `factors`: of seconds at `ROWS`; `rate`: of its arithmetic over that of 16 bits; `operation`: seconds of a product
    beside its work, inputs that are quantised first included; `chunk`: of one of a prompt, for every 128 tokens, as
    small matrices keep less of a device busy."""

    read: float
    compute: float
    joined: float
    factors: tuple[float, ...]
    rate: float = 1.0
    operation: float = 0.0
    chunk: float = 0.0

    def on_halved(self, factor: float) -> "ProductConstants":
        """Return the constants on a device that multiplies at half its rate where it adds up in FP32: it reaches
        `factor` times as much of that."""
        return replace(self, compute=factor * self.compute)

    def seconds(self, rows: float, width: float, bandwidth: float, flops: float) -> float:
        """Return the seconds of a weight of `width` bytes that `rows` tokens are multiplied with, on a device of so
        many bytes/s and 16-bit FLOP/s."""
        reading, computing = self._parts(rows, width, bandwidth, flops)
        most = max(reading, computing)
        joined = most * ((reading / most) ** self.joined + (computing / most) ** self.joined) ** (1.0 / self.joined)
        return float(joined) * along(rows, ROWS, self.factors)

    def arithmetic_part(self, rows: float, width: float, bandwidth: float, flops: float) -> float:
        """Return the part that arithmetic has in those seconds, to the power of `joined`: by it their logarithm grows
        with that of what arithmetic takes."""
        reading, computing = self._parts(rows, width, bandwidth, flops)
        return 1.0 / (1.0 + float((reading / computing) ** self.joined))

    def _parts(self, rows: float, width: float, bandwidth: float, flops: float) -> tuple[float, float]:
        """Return the seconds of reading alone and of arithmetic alone."""
        return width / (self.read * bandwidth), 2.0 * rows / (self.compute * self.rate * flops)


@dataclass(frozen=True, slots=True)
class PassConstants:
    """What vLLM's kernels reach on a device.

    `attending`: seconds of attention beside its work, `other` of anything that is no product, `choosing` of the end of
    a pass; `products`, `experts` by kernel; `cache`: the share of the bandwidth at which steps read caches; `prompts`:
    shares of the rate of attention at `PROMPTS`; `moving`: share of the bandwidth at which activations move. `step`,
    `prompt`: standard deviations of the logarithm of a pass; `node`: where the constants are from; `rows`: how many
    passes there are of that."""

    attending: float
    other: float
    choosing: float
    products: Mapping[Kernel, ProductConstants]
    experts: Mapping[Kernel, ProductConstants]
    cache: float
    prompts: tuple[float, ...]
    moving: float
    step: float
    prompt: float
    node: str
    rows: int

    def kernel(self, name: Kernel, experts: bool = False) -> ProductConstants:
        """Return the constants of a kernel; devices that cannot multiply such numbers expand them, as 4-bit codes."""
        known = self.experts if experts else self.products
        return known.get(name, known["w4"])

    def figure(self, value: float, *, prompt: bool = False, source: str = ENGINE) -> Figure:
        """Return a constant as a figure whose spread is that of a pass."""
        apart = exp(Z90 * (self.prompt if prompt else self.step))
        return Figure(value=value, p10=value / apart, p90=value * apart, n=self.rows, source=source)


def pass_constants(product: str, device_class: str | None, backend: str) -> PassConstants | None:
    """Return the constants of a device, by the nearest node of its lineage; None where there is none."""
    table = engine_table(ENGINE)
    nodes = table["nodes"]
    name = next((name for name in lineage(product, device_class, backend) if name in nodes), None)
    if name is None:
        return None
    known, group = of_node(name, nodes[name]), engine_class(product, device_class)
    factor = table["halved"] if half_ratio(product, group) > 1.0 else 1.0
    products, experts = (
        {kernel: of.on_halved(factor) for kernel, of in kernels.items() if multiplies(group, kernel)}
        for kernels in (known.products, known.experts)
    )
    return replace(known, products=products, experts=experts)


def multiplies(group: str, kernel: Kernel) -> bool:
    """Whether devices of a class have units for the numbers of a kernel."""
    generations = {"fp8": ("ada", "hopper", "blackwell"), "fp4": ("blackwell",)}
    return kernel not in generations or group.endswith(generations[kernel])


def of_node(name: str, row: Mapping[str, Any]) -> PassConstants:
    """Return the constants of a row of the table."""
    return PassConstants(
        attending=row["attending"],
        other=row["other"],
        choosing=row["choosing"],
        products={kernel: _products(known) for kernel, known in row["products"].items()},
        experts={kernel: _products(known) for kernel, known in row["experts"].items()},
        cache=row["cache"],
        prompts=tuple(row["prompts"]),
        moving=row["moving"],
        step=row["spread"]["step"],
        prompt=row["spread"]["prompt"],
        node=name,
        rows=row["rows"],
    )


def _products(row: Mapping[str, Any]) -> ProductConstants:
    return ProductConstants(**{**row, "factors": tuple(row["factors"])})
