"""`vllm`: everything on the accelerator, within a share of its memory (HELM-71), or on several that divide every layer;
`--cpu-offload-gb` leaves the first blocks' weights in host memory, where kernels read them over the link in every pass.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, floor, isfinite
from pathlib import Path
from typing import Self

from helmsman.lowering.placement import Placement, shaped
from helmsman.lowering.tensor import Tensor
from helmsman.planner.machine import check_separate
from helmsman.planner.memory.usage import memory_use, shortages
from helmsman.planner.options import Recorded, option
from helmsman.planner.request import PlanRequest
from helmsman.planner.serving.tensor_parallel import most_alike
from helmsman.planner.strategies.common_options import (
    cards_option,
    check_cards,
    every_way_option,
    kv_rule_option,
    kv_store_option,
    same_software_option,
    table_option,
)
from helmsman.planner.strategies.engines.kernels import EngineBuild
from helmsman.planner.strategies.engines.parameters import block_parameters
from helmsman.planner.strategies.engines.quantised import QUANTISATIONS, Quantisation, quantised_formats
from helmsman.planner.strategies.engines.question import EngineQuestion, engine_method, engine_question
from helmsman.planner.strategies.engines.rules import home, on_accelerator
from helmsman.planner.strategies.engines.software import NATIVE, Software
from helmsman.planner.strategies.engines.vllm_cards import card_counts, joined, limited
from helmsman.planner.strategies.streaming.framing import frame_of
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.streaming.prefix_store import kv_store, store_label, store_rules
from helmsman.planner.tensor_formats import Formats, size_in, with_own_formats
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Residence, Schedule
from helmsman.schemas.same import Same

GIB = 2**30
"""What vLLM's `--cpu-offload-gb` counts in."""

UTILIZATION = 0.90
"""vLLM's default `--gpu-memory-utilization`."""

_Parameters = tuple[tuple[tuple[Tensor, ...], int], ...]

LEAST = "least"
"""The value of `cpu_offload_gb` for as few GiB as let the model fit."""


@dataclass(frozen=True, slots=True)
class Vllm:
    """`offload`: GiB of weights in host memory, None: the least whole number with which it fits; `utilization`: share
    of the accelerator's memory that is used; `store`: the memory in which LMCache keeps known tokens of prompts;
    `cards`: equal accelerators that divide every layer; `graphs`: whether CUDA graphs are within that share; `keeps`:
    whether vLLM's own reserve counts, and not placements alone."""

    offload: float | None = 0.0
    utilization: float = UTILIZATION
    store: str | None = None
    cards: int = 1
    graphs: bool = False
    keeps: bool = True

    @property
    def name(self) -> str:
        """Return its name on the command line."""
        return "vllm"

    @property
    def software(self) -> Software:
        """Captured CUDA graphs."""
        return NATIVE

    @property
    def recorded(self) -> Recorded:
        """Return nothing: options say all of it."""
        return {}

    def settled(self, frame: Frame) -> Self:
        """Return the same rules, with what is offloaded as it fits."""
        check_separate(frame.roles, self.name)
        return replace(self, offload=self.offloads(frame))

    def placement(self, frame: Frame) -> Placement:
        """The rules, on a machine of which vLLM uses its share. Raises UsageError without a separate accelerator.

        Offloaded weights are page-locked and read one operation at a time, when it runs (vLLM's UVA offloader)."""
        check_separate(frame.roles, self.name)
        used = self._within(frame)
        rules = [*_offloaded(used, floor(self.offloads(frame) * GIB)), home(used, used.accelerator.memory)]
        placed = on_accelerator(used, rules, Schedule(overlap="none"))
        placed = replace(placed, kv=(*store_rules(used, self.store), *placed.kv))
        return with_own_formats(placed, frame.formats)

    def label(self, frame: Frame) -> str:
        """`vllm cuda(38)`, of several cards `vllm 2x cuda(38)`, and the GiB that are offloaded."""
        several = f"{self.cards}x " if self.cards > 1 else ""
        here = f"{self.name} {several}{frame.accelerator.kind}({frame.model.layers + 2})"
        offload = self.offloads(frame)
        more = [f"{offload:g} GiB offloaded"] if offload else []
        return " ".join([here, *more, *store_label(frame, self.store)])

    def smaller(self, frame: Frame) -> str | None:
        """The fewest equal cards with which it fits, if there are as many, or the least whole `--cpu-offload-gb`."""
        least = None if self.offload is None else self._least(frame, floor(self.offload) + 1)
        said = [f"`tensor_parallel_size` {cards}" for cards in self._more_cards(frame)]
        said += [] if least is None else [f"`cpu_offload_gb` {least}"]
        return ", or ".join(said) or None

    def _more_cards(self, frame: Frame) -> Iterator[int]:
        """The fewest equal cards that would do, if any number of them does."""
        for cards in range(self.cards + 1, len(most_alike(frame.roles)) + 1):
            try:
                placed = replace(self, cards=cards).placement(frame)
            except UsageError:
                continue
            if not shortages(memory_use(shaped(placed))):
                yield cards
                return

    def offloads(self, frame: Frame) -> float:
        """GiB in host memory: those asked for, or as few as let it fit; none where no number does."""
        if self.offload is not None:
            return self.offload
        return (self._least(frame, 1) or 0) if self._missing(frame, 0) else 0

    def _least(self, frame: Frame, first: int) -> int | None:
        """The least whole number of GiB, from `first` on, with which it fits."""
        blocks = _parameters(Same(frame.model), frame.weights, Same(frame.formats))
        most = ceil(sum(size for block in blocks for _, size in block) / GIB)
        sizes = range(first, most + 1)
        least = bisect_left(sizes, True, key=lambda size: self._enough(frame, size))
        fits = least < len(sizes) and not self._missing(frame, sizes[least])
        return sizes[least] if fits else None

    def _enough(self, frame: Frame, offload: int) -> bool:
        """Whether the accelerator's memory suffices when so much is offloaded."""
        return frame.accelerator.memory not in self._missing(frame, offload)

    def _missing(self, frame: Frame, offload: int) -> dict[str, int]:
        return shortages(memory_use(shaped(replace(self, offload=offload).placement(frame))))

    def _within(self, frame: Frame) -> Frame:
        """The question on a machine whose accelerators' memories have the share that vLLM uses; those that divide the
        layers are one."""
        mine = limited(frame.roles, frame.model if self.keeps else None, self.utilization, self.graphs)
        return joined(replace(frame, roles=mine), self.cards)


def _offloaded(frame: Frame, limit: int) -> Iterator[Residence]:
    """Whole parameters from the first block on, until `limit` bytes are offloaded."""
    whole, parts = offloaded(frame, limit)
    there = frame.roles.host.memory
    if whole:
        yield home(frame, there, layers=(0, whole))
    for tensor in parts:
        yield home(frame, there, tensor.name, (whole, whole + 1))


def offloaded(frame: Frame, limit: int) -> tuple[int, tuple[Tensor, ...]]:
    """Blocks that are offloaded whole, and the tensors of the next one: parameters go until `limit` bytes have gone."""
    gone, parts = 0, list[Tensor]()
    for layer, block in enumerate(_parameters(Same(frame.model), frame.weights, Same(frame.formats))):
        parts.clear()
        for parameter, size in block:
            if gone >= limit:
                return layer, tuple(parts)
            gone += size
            parts += parameter
    return frame.model.layers, ()


@lru_cache(maxsize=64)
def _parameters(same: Same[Model], weights: StoredFormat, own: Same[Formats]) -> tuple[_Parameters, ...]:
    """Return by block the (tensors, bytes) of every parameter, in vLLM's order; `own`: formats of tensors that are not
    kept in that of the other `weights`."""
    model, formats = same.document, own.document

    def of(layer: int) -> _Parameters:
        parameters = block_parameters(model, layer)
        return tuple((tensors, sum(size_in(tensor, formats, weights) for tensor in tensors)) for tensors in parameters)

    if formats:
        return tuple(of(layer) for layer in range(model.layers))
    kinds = {letter: of(model.pattern.index(letter)) for letter in model.pattern}
    return tuple(kinds[letter] for letter in model.pattern)


def _offload(text: str) -> float | str:
    """Return what `cpu_offload_gb` names: GiB, or `least`. Raises UsageError."""
    try:
        return text if text == LEAST else float(text)
    except ValueError:
        remedy = f"write a number of GiB, or {LEAST}"
        raise UsageError("not a size", field="cpu_offload_gb", value=text, remedy=remedy) from None


@dataclass(frozen=True, slots=True)
class VllmOptions:
    """Options of `vllm`."""

    table: Path | None = table_option()
    same_software: bool = same_software_option()
    every_way: bool = every_way_option()
    cpu_offload_gb: float | str = option(
        0.0,
        f"vllm: so many GiB of weights in host memory, read in every pass; {LEAST}: as few as let it fit",
        metavar=f"N|{LEAST}",
        parse=_offload,
    )
    gpu_memory_utilization: float | None = option(
        None, "vllm: of the accelerator's memory (default: 0.90)", metavar="SHARE", parse=float
    )
    tensor_parallel_size: int | None = cards_option()
    quantization: Quantisation | None = option(
        None, "vllm: how the checkpoint's blocks are quantised (default: as --format says)", choices=QUANTISATIONS
    )
    graphs_within: bool = option(False, "vllm: CUDA graphs are within that share, as from 0.21 on")
    kv_rule: str | None = kv_rule_option()
    kv_store: str | None = kv_store_option()


def _question(request: PlanRequest[VllmOptions]) -> EngineQuestion:
    options = request.options
    if options.quantization is not None:
        weights, formats = quantised_formats(request.model, options.quantization, request.weights, request.formats)
        request = replace(request, weights=weights, formats=formats)
    frame = replace(frame_of(request, options.table), formats=request.formats)
    offload = None if options.cpu_offload_gb == LEAST else float(options.cpu_offload_gb)
    share = options.gpu_memory_utilization
    if offload is not None and not (isfinite(offload) and 0 <= offload <= 2**20):
        remedy = f"use 0 or more GiB, or {LEAST}"
        raise UsageError("not a size", field="cpu_offload_gb", value=offload, remedy=remedy)
    if share is not None and not 0 < share <= 1:
        remedy = "use 0 < SHARE <= 1"
        raise UsageError("not a share of a memory", field="gpu_memory_utilization", value=share, remedy=remedy)
    check_cards(options.tensor_parallel_size)
    if options.kv_rule not in (None, "accelerator", "lmcache"):
        problem, remedy = "vLLM keeps its cache on the accelerator", "use lmcache, or leave it out"
        raise UsageError(problem, field="kv_rule", value=options.kv_rule, remedy=remedy)
    store = kv_store(frame, options.kv_rule, options.kv_store)
    used = UTILIZATION if share is None else share
    cards = options.tensor_parallel_size or 1
    engine = Vllm(offload, used, store, cards, options.graphs_within, not options.same_software)
    return engine_question(request, frame, engine, EngineBuild("vllm"))


def _ways(request: PlanRequest[VllmOptions]) -> Iterator[PlanRequest[VllmOptions]]:
    """Yield a request for every number of cards that it leaves open; for one card alone where `best` compares with
    placements of engines."""
    options = request.options
    frame = frame_of(request, options.table)
    alone = options.same_software and not options.every_way
    for count in card_counts(options.tensor_parallel_size, frame, alone):
        yield replace(request, options=replace(options, tensor_parallel_size=count))


STRATEGY = engine_method(
    "vllm",
    "vLLM, with weights that the accelerator has no room for in host memory",
    VllmOptions,
    _question,
    own_formats=True,
    ways=_ways,
)
