"""`llama-cpp`: the last layers in the accelerator's memory, the others computed by the CPU where they live (HELM-72).

`-ngl N` counts the last N of layers + 1 slots, the output being the last one (as llama.cpp counts now; older versions
move the output only with N = layers + 1). The input layer stays with the CPU. Keys and values live with their layer.
Products of 32 tokens and more are computed on the accelerator even so, their weights copied each time (op offload)."""

from bisect import bisect_left
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from helmsman.lowering.placement import Placement, shaped
from helmsman.planner.decision import Decision
from helmsman.planner.memory.usage import memory_use, shortages
from helmsman.planner.options import option
from helmsman.planner.registry import Method
from helmsman.planner.request import PlanRequest
from helmsman.planner.strategies.common_options import same_software_option, table_option
from helmsman.planner.strategies.engines.overrides import Override, overrides_of
from helmsman.planner.strategies.engines.question import decide_as_engine
from helmsman.planner.strategies.engines.slots import SlotSplit, place
from helmsman.planner.strategies.engines.software import NATIVE, Software
from helmsman.planner.strategies.streaming.framing import frame_of
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.errors import UsageError


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """`ngl`: slots on the accelerator, None: as many as fit; `overrides`: tensors that live elsewhere; `op_offload`:
    large products go to the accelerator."""

    ngl: int | None = None
    overrides: tuple[Override, ...] = ()
    op_offload: bool = True

    @property
    def name(self) -> str:
        """Return its name on the command line."""
        return "llama-cpp"

    @property
    def software(self) -> Software:
        """Native code and captured graphs."""
        return NATIVE

    def settled(self, frame: Frame) -> Self:
        """Return the rules with the number of slots that fit."""
        return replace(self, ngl=self.slots(frame))

    def placement(self, frame: Frame) -> Placement:
        """The rules for `ngl` slots, or for as many as fit the accelerator's memory."""
        return self._at(frame, self.slots(frame))

    def slots(self, frame: Frame) -> int:
        """How many of layers + 1 slots are on the accelerator; more than there are means all."""
        if frame.roles.accelerator is None:
            return 0
        count = frame.model.layers + 1
        if self.ngl is not None:
            return min(self.ngl, count)
        most = bisect_left(range(count + 1), True, key=lambda slots: self._crowded(frame, slots)) - 1
        return max(most, 0)

    def label(self, frame: Frame) -> str:
        """`llama-cpp -ngl 17`, and how many `-ot` rules there are."""
        rules = f" -ot {len(self.overrides)}" if self.overrides else ""
        return f"{self.name} -ngl {self.slots(frame)}{rules}"

    def smaller(self, frame: Frame) -> str | None:
        """The largest `--ngl` that fits, where another was asked for."""
        other = replace(self, ngl=None)
        slots = other.slots(frame)
        suits = slots != self.slots(frame) and not shortages(memory_use(other.placement(frame)))
        return f"`ngl` {slots}" if suits else None

    def _crowded(self, frame: Frame, slots: int) -> bool:
        """Whether so many slots are too much for the accelerator's memory."""
        assert frame.roles.accelerator is not None
        return frame.roles.accelerator.memory in shortages(memory_use(shaped(self._at(frame, slots))))

    def _at(self, frame: Frame, slots: int) -> Placement:
        return place(SlotSplit(frame, slots, self.overrides, self.op_offload))


@dataclass(frozen=True, slots=True)
class LlamaCppOptions:
    """Options of `llama-cpp`."""

    table: Path | None = table_option()
    same_software: bool = same_software_option()
    ngl: int | None = option(
        None,
        "llama-cpp: the last N of layers + 1 (the output) on the accelerator (default: as many as fit)",
        metavar="N",
        parse=int,
    )
    override_tensor: str | None = option(
        None,
        "llama-cpp: tensors by name, as in 'blk\\.[0-9]\\.ffn_.*=CPU'; operations run where their weights live",
        metavar="PATTERN=MEMORY,..",
    )
    no_op_offload: bool = option(
        False, "llama-cpp: products of 32 tokens and more stay with the CPU that has their weights"
    )


def _decide(request: PlanRequest[LlamaCppOptions]) -> Decision:
    options = request.options
    frame = frame_of(request, options.table)
    if options.ngl is not None and options.ngl < 0:
        remedy = "use 0 or more, or leave it out for as many as fit"
        raise UsageError("not a number of layers", field="ngl", value=options.ngl, remedy=remedy)
    if options.ngl and frame.roles.accelerator is None:
        raise UsageError("this machine has no accelerator", field="ngl", value=options.ngl, remedy="use `ngl` 0")
    text = options.override_tensor
    rules = () if text is None else overrides_of(text, frame.model, frame.roles)
    engine = LlamaCpp(options.ngl, rules, not options.no_op_offload)
    return decide_as_engine(request, frame, engine, options.table, options.same_software)


STRATEGY = Method("llama-cpp", "llama.cpp: the last layers on the accelerator", LlamaCppOptions, _decide)
