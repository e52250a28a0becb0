"""Plans of Gupta & Dwarkadas' evaluation: an allocator, a memory configuration and a batch of OPT models."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.cost.plan_costs import cost_model
from helmsman.planner.machine import roles
from helmsman.planner.strategies.layerwise_map import PRINTED, LayerwiseMap
from helmsman.planner.strategies.offload.allocation import Percentages
from helmsman.planner.strategies.offload.place import Keeping
from helmsman.planner.strategies.offload.strategy import Allocator, Offloading
from helmsman.planner.strategies.percentages import FlexGenPercentages
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.weights_on_host import WeightsOnHost
from helmsman.schemas.plan import Plan
from helmsman.schemas.workload import Workload
from helmsman.simulator.per_layer import LayerKind, PassLayers, per_layer
from helmsman.simulator.pricing import median_price

PROMPT, OUTPUT = 128, 21
ASKED, STORED = Percentages(0, 80, 20), Percentages(65, 15, 20)
"""Storage, host and accelerator (GUPTA-50)."""
Method = Literal["Baseline", "HeLM", "All-CPU"]
ALLOCATORS: dict[Method, Allocator] = {
    "Baseline": FlexGenPercentages(ASKED),
    "HeLM": LayerwiseMap(PRINTED["attention"], PRINTED["ffn"], ASKED),
    "All-CPU": WeightsOnHost(),
}
MEMORIES: dict[str, tuple[str, str, str | None]] = {
    "SSD": ("a100-ssd", "dram", "ssd"),
    "FSDAX": ("a100-fsdax", "dram", "fsdax"),
    "NVDRAM": ("a100-optane", "optane", None),
    "MemoryMode": ("a100-memory-mode", "dram", None),
    "DRAM": ("a100-dram-ideal", "dram", None),
    "CXL-FPGA": ("a100-cxl-fpga", "cxl", None),
    "CXL-ASIC": ("a100-cxl-asic", "cxl", None),
}
"""Table II and III: the record, the memory that is the host's tier, and that of storage."""
_KINDS: tuple[LayerKind, ...] = ("attention", "ffn")


@dataclass(frozen=True, slots=True)
class Asked:
    """One bar of the paper; links of CXL are faster than the lanes behind them as printed (E-GUPTA-10)."""

    memory: str
    method: Method = "Baseline"
    batch: int = 1
    compress: bool = True
    model: str = "opt-175b"

    @property
    def question(self) -> Offloading:
        """The planner's."""
        machine, host, storage = MEMORIES[self.memory]
        work = Workload(prompt_tokens=PROMPT, output_tokens=OUTPUT, batch=self.batch, context=PROMPT + OUTPUT)
        frame = Frame(load_model(self.model), roles(load_hardware(machine, None)), work)
        allocator = ALLOCATORS[self.method] if storage is None else FlexGenPercentages(STORED)
        options = CostOptions(capped=not self.memory.startswith("CXL"))
        return Offloading(frame, allocator, Keeping(host, storage, compress=self.compress), options)


@dataclass(frozen=True)
class Run:
    """A plan with the metrics of III-C."""

    plan: Plan

    @property
    def ttft(self) -> float:
        """Seconds to the first token."""
        return self.plan.predicted.ttft.seconds.mid

    @property
    def tbt(self) -> float:
        """Seconds between tokens."""
        return self.plan.predicted.decode.seconds.mid

    @property
    def rate(self) -> float:
        """Tokens per second of the whole batch."""
        work = self.plan.workload
        return work.batch * work.output_tokens / (self.ttft + work.decode_steps * self.tbt)

    @cached_property
    def layers(self) -> tuple[PassLayers, PassLayers]:
        """The prompt's pass and the mean decode step, layer by layer."""
        costs = cost_model(self.plan)
        return per_layer(self.plan, median_price(self.plan), costs.slowed(), costs.between())

    @property
    def ratios(self) -> tuple[float | None, ...]:
        """Compute of attention over what loads meanwhile, then of the FFN; prompt first, then a step (Table IV)."""
        return tuple(_ratio(phase, kind) for phase in self.layers for kind in _KINDS)


def _ratio(phase: PassLayers, kind: LayerKind) -> float | None:
    return next(each.ratio for each in phase.overlaps if each.kind == kind)


@lru_cache(maxsize=64)
def run(asked: Asked) -> Run:
    """The plan of `asked`, once."""
    question = asked.question
    return Run(question.decide({"capped": question.cost_options.capped}).plan)
