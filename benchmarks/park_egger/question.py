"""What the paper asked: a model, a shape of batches, compression, and who answers (PARK-58..61)."""

from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from benchmarks.park_egger.tables import with_link
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.strategies.flexgen import FlexGen
from helmsman.planner.strategies.op_split.split_rules import SplitRules
from helmsman.planner.strategies.op_split.strategy import OpSplit
from helmsman.planner.strategies.op_split.variants import with_cache_use
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.cache_use import PLAIN, CacheUse
from helmsman.schemas.workload import Workload

MACHINE = "a4000-7950x"
MODELS = {"OPT-30B": "opt-30b", "LLaMA-3-8B": "Meta-Llama-3-8B", "LLaMA-2-34B": "CodeLlama-34b-hf"}
"""The paper's models in the catalogue; the last was never released, CodeLlama has its shape (E-PARK-14)."""
PROMPT = 512
OUTPUTS = (32, 64, 128)
CHUNKS = 8
"""Parts of Scores (Table 2)."""
NVME = ("nvme0", "nvme1", "nvme2", "nvme3")

Method = Literal["op-split", "gpu-only", "flexgen", "flexgen cpu"]
METHODS: tuple[Method, ...] = get_args(Method)
"""Helm's operation splits; the paper's GPU-only mode; FlexGen, and FlexGen with attention on the host."""


@dataclass(frozen=True, slots=True)
class Question:
    """`batches` x `batch` sequences of 512 + `output` tokens; `storage`: weights may come from the NVMe devices.

    `faster`: the link's bandwidth, relative to the paper's; `chunks`: of Scores; `cache`: what attention reads;
    `reshape`: caches are kept (batch, tokens, hidden) and turned at every step (PARK-15)."""

    model: str = "OPT-30B"
    batches: int = 1
    batch: int = 50
    output: int = 32
    compressed: bool = False
    storage: bool = False
    chunks: int = CHUNKS
    faster: float = 1.0
    cache: CacheUse = field(default=PLAIN)
    reshape: bool = False

    @property
    def shape(self) -> str:
        """`4x50`, the paper's way to write it."""
        return f"{self.batches}x{self.batch}"

    def frame(self) -> Frame:
        """The planner's question."""
        work = Workload(
            prompt_tokens=PROMPT,
            output_tokens=self.output,
            batch=self.batch,
            batches=self.batches,
            context=PROMPT + self.output,
        )
        plain = Frame(load_model(MODELS[self.model]), roles(load_hardware(MACHINE, None)), work, reshape=self.reshape)
        linked = with_link(plain, self.faster)
        return linked if self.cache.plain else with_cache_use(replace(linked, cache=self.cache))


def strategy(asked: Question, method: Method, printed: bool = False) -> OpSplit | FlexGen:
    """Who answers `asked`; `printed`: op-split by the printed equations instead of L' (E-PARK-05)."""
    if method in ("flexgen", "flexgen cpu"):
        return FlexGen(asked.frame(), asked.compressed, method == "flexgen cpu", CostOptions(), "latency")
    return op_split(asked, offload=method == "op-split", printed=printed)


def op_split(asked: Question, offload: bool = True, printed: bool = False) -> OpSplit:
    """The operation splits of `asked`; without `offload`, the accelerator alone."""
    options = SplitRules(
        chunks={"scores": asked.chunks} if asked.chunks > 1 and asked.cache.holds == "kv" else {},
        compress="all" if asked.compressed else "none",
        storage=NVME if asked.storage else (),
        offload=offload,
        printed=printed,
    )
    return OpSplit(asked.frame(), options, CostOptions(), "latency")
