"""`zero-inference`: DeepSpeed's ZeRO-Inference (HELM-70): every weight page-locked in host memory, streamed layer by
layer while the layer before computes.

Vectors of at most the model's width persist on the accelerator (`stage3_param_persistence_threshold` is the hidden size
in DeepSpeed's own example). DeepSpeed also moves the whole table of embeddings at every step; here its rows are looked
up, which is less by that table."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from helmsman.lowering.placement import Placement
from helmsman.lowering.tensors import block_tensors, output_tensors
from helmsman.planner.machine import check_separate
from helmsman.planner.options import Recorded, option
from helmsman.planner.request import PlanRequest
from helmsman.planner.strategies.common_options import same_software_option, table_option
from helmsman.planner.strategies.engines.question import EngineQuestion, engine_method, engine_question
from helmsman.planner.strategies.engines.rules import home, on_accelerator
from helmsman.planner.strategies.engines.software import EAGER, Software
from helmsman.planner.strategies.streaming.framing import frame_of
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.plan import Residence, Schedule


@dataclass(frozen=True, slots=True)
class ZeroInference:
    """Everything streamed; `resident`: everything on the accelerator instead, as DeepSpeed does without offloading."""

    resident: bool = False

    @property
    def name(self) -> str:
        """Return its name on the command line."""
        return "zero-inference"

    @property
    def software(self) -> Software:
        """transformers' own modules."""
        return EAGER

    @property
    def recorded(self) -> Recorded:
        """Return nothing: options say all of it."""
        return {}

    def settled(self, frame: Frame) -> Self:
        """Return the same rules."""
        return self

    def placement(self, frame: Frame) -> Placement:
        """The rules. Raises UsageError on a machine without a separate accelerator."""
        check_separate(frame.roles, self.name)
        if self.resident:
            return on_accelerator(frame, [home(frame, frame.accelerator.memory)], Schedule())
        ahead = Schedule(overlap="next-layer", prefetch=frame.prefetch)
        return on_accelerator(frame, _residence(frame), ahead)

    def label(self, frame: Frame) -> str:
        """`zero-inference cuda<-host(38)`, or `zero-inference cuda(38)`: units of the model."""
        units, kind = frame.model.layers + 2, frame.accelerator.kind
        return (
            f"{self.name} {kind}({units})" if self.resident else f"{self.name} {kind}<-{frame.roles.host.kind}({units})"
        )

    def smaller(self, frame: Frame) -> str | None:
        """Streaming, where everything was to stay."""
        return "leave `resident` out" if self.resident else None


def _residence(frame: Frame) -> Iterator[Residence]:
    model = frame.model
    for layers, group in (((0, model.layers), block_tensors(model, 0)), (None, output_tensors(model))):
        for tensor in group:
            if tensor.elements <= model.hidden:
                yield home(frame, frame.accelerator.memory, tensor.name, layers)
    yield home(frame, frame.roles.host.memory)


@dataclass(frozen=True, slots=True)
class ZeroInferenceOptions:
    """Options of `zero-inference`."""

    table: Path | None = table_option()
    same_software: bool = same_software_option()
    resident: bool = option(False, "zero-inference: weights stay on the accelerator")


def _question(request: PlanRequest[ZeroInferenceOptions]) -> EngineQuestion:
    options = request.options
    frame = frame_of(request, options.table)
    return engine_question(request, frame, ZeroInference(options.resident))


STRATEGY = engine_method("zero-inference", "DeepSpeed ZeRO-Inference", ZeroInferenceOptions, _question, streams=True)
