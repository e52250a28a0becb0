"""`accelerate`: Hugging Face Accelerate's `device_map=auto` (HELM-69): modules in order of use, the accelerator first;
what is left stays in host memory, and hooks copy it there and back out module by module, nothing overlapping."""

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, groupby
from pathlib import Path
from typing import Self

from helmsman.lowering.placement import Placement, shaped
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import block_tensors, embedding_tensors, output_tensors
from helmsman.planner.machine import check_separate
from helmsman.planner.memory.usage import memory_use, shortages
from helmsman.planner.options import Recorded, option
from helmsman.planner.request import PlanRequest
from helmsman.planner.strategies.common_options import same_software_option, table_option
from helmsman.planner.strategies.engines.question import EngineQuestion, engine_method, engine_question
from helmsman.planner.strategies.engines.rules import home, on_accelerator
from helmsman.planner.strategies.engines.software import EAGER, Software
from helmsman.planner.strategies.streaming.framing import frame_of
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Residence, Schedule

SHARE = 0.9
"""Of the only accelerator's free memory, for weights: accelerate.utils.modeling.get_balanced_memory; the rest is for
keys, values and activations."""


@dataclass(frozen=True, slots=True)
class Accelerate:
    """Greedy placement, copies from pageable memory just before use, freed after; `kept`: numbers of the modules on the
    accelerator, None: as many of the first as it would put there."""

    kept: frozenset[int] | None = None

    @property
    def name(self) -> str:
        """Return its name on the command line."""
        return "accelerate"

    @property
    def software(self) -> Software:
        """transformers' own modules."""
        return EAGER

    @property
    def recorded(self) -> Recorded:
        """Return nothing: options say all of it."""
        return {}

    def settled(self, frame: Frame) -> Self:
        """Return the rules with the modules that it puts on the accelerator."""
        check_separate(frame.roles, self.name)
        return replace(self, kept=self.modules(frame))

    def modules(self, frame: Frame) -> frozenset[int]:
        """Return the modules on the accelerator, by their numbers in order of use."""
        return frozenset(range(modules_kept(frame))) if self.kept is None else self.kept

    def placement(self, frame: Frame) -> Placement:
        """The device map. Raises UsageError on a machine without a separate accelerator."""
        check_separate(frame.roles, self.name)
        return _placed(frame, self.modules(frame))

    def label(self, frame: Frame) -> str:
        """`accelerate cuda(12)<-host(26)`: modules on the accelerator, and those that come when they are used."""
        kept, count = len(self.modules(frame)), len(_modules(frame.model))
        here = f"{self.name} {frame.accelerator.kind}({kept})"
        return here if kept == count else f"{here}<-{frame.roles.host.kind}({count - kept})"

    def smaller(self, frame: Frame) -> str | None:
        """Return that it chooses itself, where modules were named; else it has no further choice but the disk."""
        return None if self.kept is None else "leave `modules` out"


def modules_kept(frame: Frame) -> int:
    """How many of the modules, in order of use, go to the accelerator (infer_auto_device_map): as many as the budget
    allows beside which keys, values and activations fit, as with `max_memory` set to that.

    None where keys, values and activations lack room of their own."""
    most, memory = _most_kept(frame), frame.accelerator.memory
    placed = ((kept, _placed(frame, frozenset(range(kept)))) for kept in range(most, 0, -1))
    fitting = (kept for kept, placement in placed if memory not in shortages(memory_use(shaped(placement))))
    return next(fitting, 0)


def _most_kept(frame: Frame) -> int:
    """Return how many modules the budget allows."""
    needs = _needs(frame.model, frame.weights)
    budget = SHARE * frame.roles.hardware.memory(frame.accelerator.memory).available
    return next((place for place, need in enumerate(needs) if need > budget), len(needs))


@lru_cache(maxsize=64)
def _needs(model: Model, weights: StoredFormat) -> tuple[int, ...]:
    """Return by module the bytes of all up to it, and of the largest that is still to come, which might be streamed."""
    sizes = [sum(tensor.size(weights) for tensor in module) for module in _modules(model)]
    largest = [*accumulate(reversed(sizes[1:]), max, initial=0)][::-1]
    return tuple(filled + most for filled, most in zip(accumulate(sizes), largest, strict=True))


@lru_cache(maxsize=64)
def _modules(model: Model) -> tuple[tuple[Tensor, ...], ...]:
    """Return what is never divided: tables, blocks, final norm, head; a tied head goes with its table, and takes
    nothing."""
    *norm, head = output_tensors(model)
    tables = [(table,) for table in embedding_tensors(model)]
    blocks = [block_tensors(model, layer) for layer in range(model.layers)]
    return (*tables, *blocks, tuple(norm), *(() if head.tied_to else ((head,),)))


def _placed(frame: Frame, kept: frozenset[int]) -> Placement:
    """With these modules on the accelerator."""
    return on_accelerator(frame, _residence(frame, kept), Schedule(overlap="none"))


def _residence(frame: Frame, kept: frozenset[int]) -> list[Residence]:
    model, tables = frame.model, len(embedding_tensors(frame.model))
    here, there = frame.accelerator.memory, frame.roles.host.memory

    def ends(place: int, names: str) -> Residence:
        return home(frame, here if place in kept else there, names, path="pageable")

    runs = groupby(range(model.layers), key=lambda layer: tables + layer in kept)
    blocks = []
    for resident, run in runs:
        layers = list(run)
        span = layers[0], layers[-1] + 1
        blocks.append(home(frame, here if resident else there, layers=span, path="pageable"))
    last = tables + model.layers
    head = ends(0 if model.head.tied else last + 1, "head*")
    first = [ends(place, table.name) for place, table in enumerate(embedding_tensors(model))]
    output = [ends(last, tensor.name) for tensor in output_tensors(model)[:-1] if not tensor.name.startswith("head")]
    return [*first, *blocks, *output, head]


@dataclass(frozen=True, slots=True)
class AccelerateOptions:
    """Options of `accelerate`."""

    table: Path | None = table_option()
    same_software: bool = same_software_option()
    modules: str | None = option(
        None,
        "accelerate: modules on the accelerator by number in order of use, as in 0-12,25 (default: as many as fit)",
        metavar="N-N,..",
    )


def _question(request: PlanRequest[AccelerateOptions]) -> EngineQuestion:
    options = request.options
    frame = frame_of(request, options.table)
    kept = None if options.modules is None else _numbers(options.modules, len(_modules(request.model)))
    return engine_question(request, frame, Accelerate(kept))


def _numbers(text: str, count: int) -> frozenset[int]:
    """Return the numbers of modules that a text names. Raises UsageError for those that there are not."""
    chosen: set[int] = set()
    for part in () if text == "none" else text.split(","):
        first, dash, last = part.partition("-")
        ends = [int(end) if end.isdecimal() else count for end in (first, last if dash else first)]
        if max(ends) >= count or ends[0] > ends[1]:
            remedy = f"use 0 to {count - 1}, as in 0-12,25, or none"
            raise UsageError("not the number of a module", field="modules", value=part, remedy=remedy)
        chosen |= set(range(ends[0], ends[1] + 1))
    return frozenset(chosen)


STRATEGY = engine_method("accelerate", "Hugging Face Accelerate's device_map=auto", AccelerateOptions, _question)
