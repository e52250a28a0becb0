"""Passes as plans are priced: by the cost model, on a GPU with an engine's constants."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from benchmarks.engine_passes.questions import MeasuredPass
from helmsman.hwdb.compose import GIB, compose
from helmsman.hwdb.pass_constants import PROMPTS, RATES, ROWS, WIDTHS, PassConstants, ProductConstants
from helmsman.lowering.graph import Task
from helmsman.planner.cost.model import CostModel
from helmsman.planner.strategies.engines.pass_kernels import driven_by
from helmsman.schemas.figures import Source
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.hardware import Hardware

SOURCE = "vllm"


FORMATS: Mapping[str, StoredFormat] = {"16": "f16", "fp8": "fp8", "fp4": "nvfp4"}
"""The format of weights that stands for a kernel."""

EXPANDED = 0.9
"""Of the shares that plain weights reach, those of codes that kernels expand (AWQ, GPTQ, MXFP4; assumed)."""


def product_constants(known: Mapping[str, float], rate: float) -> ProductConstants:
    """Return fitted constants by name as those of a kernel."""
    factors = tuple(known[f"factor{at:g}"] for at in ROWS)
    shares = known["read"], known["compute"]
    return ProductConstants(*shares, known["joined"], factors, rate, known["operation"], known["chunk"])


def constants_from(
    known: Mapping[str, Mapping[str, float]], kernels: Sequence[str], halved: bool = False
) -> PassConstants:
    """Return fitted constants by part as those of a device, which may multiply at half its rate."""
    products = {kernel: product_constants(known[kernel], RATES[kernel]) for kernel in kernels}
    if halved:
        products = {kernel: of.on_halved(known["16"]["halved"]) for kernel, of in products.items()}
    plain = products["16"]
    products["w4"] = replace(plain, read=EXPANDED * plain.read, compute=EXPANDED * plain.compute)
    experts = {kernel: _of_experts(of, known["experts"], plain) for kernel, of in products.items()}
    attention, other = known["attention"], known["other"]
    return PassConstants(
        attending=attention["attending"],
        other=other["other"],
        choosing=other["choosing"],
        products=products,
        experts=experts,
        cache=attention["cache"],
        prompts=tuple(attention[f"prompt{at:g}"] for at in PROMPTS),
        moving=other["moving"],
        step=0.1,
        prompt=0.1,
        node="fitted",
        rows=1,
    )


def _of_experts(kernel: ProductConstants, known: Mapping[str, float], plain: ProductConstants) -> ProductConstants:
    """Return the constants of experts in a kernel: those of plain experts, as much off as its products are."""
    fitted = product_constants(known, kernel.rate)
    read, compute = kernel.read / plain.read, kernel.compute / plain.compute
    return replace(fitted, read=read * fitted.read, compute=compute * fitted.compute)


@cache
def _machine(gpu: str) -> Hardware:
    return compose(gpu, "AMD EPYC 9654", 1024 * GIB, None)


@dataclass(frozen=True)
class Predictor:
    """The cost model of a GPU with constants."""

    costs: CostModel
    kernel: str

    @classmethod
    def of(cls, gpu: str, constants: PassConstants, kernel: str = "16") -> "Predictor":
        """Return that of a GPU of the catalogue, for layers in the format of a kernel."""
        hardware = _machine(gpu)
        device = driven_by(hardware.device("cuda"), constants, tuple(dict.fromkeys((FORMATS[kernel], "f16"))))
        devices = tuple(device if other.name == "cuda" else other for other in hardware.devices)
        sources = {**hardware.sources, SOURCE: Source(kind="fitted", where="fitted: profiles of operators")}
        return cls(CostModel(hardware.model_copy(update={"devices": devices, "sources": sources})), kernel)

    def parts(self, row: MeasuredPass) -> dict[str, float]:
        """Return the seconds of the parts of a pass that were measured."""
        return {
            part: sum(
                times * self.costs.price(self._there(task, part == "products")).mid
                for task, times in row.tasks.parts[part]
            )
            for part in row.parts
        }

    def _there(self, task: Task, in_layers: bool) -> Task:
        """Return a task on the GPU, with the kernel's weights where it is a product of a layer."""
        there = task._replace(resource="cuda", memories=("vram",))
        if not in_layers:
            return there
        size = round(task.bytes * WIDTHS[self.kernel] / WIDTHS["16"])
        return there._replace(format=FORMATS[self.kernel], bytes=size)
