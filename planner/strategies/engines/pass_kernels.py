"""A device as vLLM's kernels drive it (`hwdb.pass_constants`): rates of its data sheet, and curves over the tokens of a
pass.

What a product takes is more than the longer of reading and arithmetic where both are alike, at batches of 16 to 256: so
the curve of arithmetic says what such products take in all, and that of reading alone counts below."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from helmsman.hwdb.data_sheet import sheet_rates
from helmsman.hwdb.fit import exact
from helmsman.hwdb.pass_constants import ENGINE, PROMPTS, PassConstants, ProductConstants, kernel_of, weight_bytes
from helmsman.scheduler.iteration import PHASES
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.hardware import Compute, Device, Efficiency

_STEPS = tuple(2.0 ** (half / 2.0) for half in range(29))
"""Tokens at which curves have points: from 1 to 16,384, two for every doubling."""

_PROMPTED = 256.0
"""Tokens of a pass beyond which it is of prompts."""

_BESIDE = 0.97
"""Of the seconds of reading, what arithmetic is said to take where it is hidden, so that reading is the bound."""

_PRODUCTS: tuple[Literal["linear", "experts"], ...] = ("linear", "experts")

_OURS = ("launch", "dispatch", "launching", "prompt_launch", "request", "decompress")
"""The figures of a device that only our executor was measured to have."""


def driven_by(device: Device, constants: PassConstants, formats: tuple[StoredFormat, ...]) -> Device:
    """Return the device with vLLM's kernels for weights in these formats, the first of them the format of most."""
    return _PassKernels(device, constants, formats, *sheet_rates(device)).driven()


@dataclass(frozen=True, slots=True)
class _PassKernels:
    """The kernels on a device of `bandwidth` bytes/s and 16-bit `flops` FLOP/s."""

    device: Device
    constants: PassConstants
    formats: tuple[StoredFormat, ...]
    bandwidth: float
    flops: float

    def driven(self) -> Device:
        """Return the device, with nothing of our executor's."""
        known = self.constants
        main, other = known.kernel(kernel_of(self.formats[0])), known.figure(known.other)
        changed: dict[str, object] = {
            "read": exact(self.bandwidth, ENGINE),
            "compute": tuple(Compute(phase=phase, flops=exact(self.flops, ENGINE)) for phase in PHASES),
            "efficiency": tuple(self._curves()),
            "overhead": known.figure(main.operation),
            "prompt_overhead": known.figure(main.chunk, prompt=True),
            "overheads": {
                "norm": other,
                "lookup": known.figure(known.choosing),
                "append": other,
                "attention": known.figure(known.attending),
                "linear": known.figure(main.operation),
                "experts": known.figure(known.kernel(kernel_of(self.formats[0]), experts=True).operation),
            },
            "elementwise": known.figure(known.moving * self.bandwidth, prompt=True),
        }
        return self.device.model_copy(update={**dict.fromkeys(_OURS), **changed})

    def _curves(self) -> Iterator[Efficiency]:
        named: dict[StoredFormat | Literal["*"], StoredFormat] = {"*": self.formats[0]}
        main = kernel_of(self.formats[0]), weight_bytes(self.formats[0])
        named |= {fmt: fmt for fmt in self.formats[1:] if (kernel_of(fmt), weight_bytes(fmt)) != main}
        for name, fmt in named.items():
            for op in _PRODUCTS:
                yield from self._products(op, name, fmt, self.constants.kernel(kernel_of(fmt), op == "experts"))
        reading, scoring = self.constants.cache, self.constants.prompts
        shares = tuple(self.constants.figure(share, prompt=True) for share in scoring)
        yield Efficiency(bound="memory", op="attention", at=(1.0,), share=(self.constants.figure(reading),))
        yield Efficiency(bound="compute", op="attention", at=PROMPTS, share=shares)

    def _products(
        self,
        op: Literal["linear", "experts"],
        name: StoredFormat | Literal["*"],
        fmt: StoredFormat,
        constants: ProductConstants,
    ) -> Iterator[Efficiency]:
        """Yield both curves of products with weights in `fmt`."""
        width = weight_bytes(fmt)
        alone = constants.seconds(1.0, width, self.bandwidth, self.flops)
        read = width / (alone * self.bandwidth)
        shares = []
        for rows in _STEPS:
            seconds = constants.seconds(rows, width, self.bandwidth, self.flops)
            hidden = seconds <= alone / _BESIDE
            shares.append(2.0 * rows / self.flops / (min(seconds, alone) * _BESIDE if hidden else seconds))
        reached = zip(_STEPS, shares, strict=True)
        figures = tuple(self.constants.figure(share, prompt=rows > _PROMPTED) for rows, share in reached)
        share = self.constants.figure(read)
        yield Efficiency(bound="memory", op=op, format=name, at=(1.0,), share=(share,))
        yield Efficiency(bound="compute", op=op, format=name, at=_STEPS, share=figures)
