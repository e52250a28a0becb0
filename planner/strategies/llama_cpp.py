"""`llama-cpp`: the last layers in accelerators' memories, the others computed by the CPU where they live (HELM-72).

`-ngl N` counts the last N of layers + 1 slots, the output being the last one (as llama.cpp counts now; older versions
move the output only with N = layers + 1). The input layer stays with the CPU. Keys and values live with their layer.
Products of 32 tokens and more are computed on the first accelerator even so, their weights copied each time, of experts
those that tokens choose (op offload): of models with experts in micro-batches, so that a long prompt brings experts
several times. Our executor, where it stands for llama.cpp (`same_software`), takes a prompt in one pass."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self

from helmsman.lowering.buffers import score_bytes
from helmsman.lowering.placement import Placement, shaped
from helmsman.planner.decision import Decision
from helmsman.planner.memory.usage import memory_use, shortages
from helmsman.planner.options import Recorded, option
from helmsman.planner.request import PlanRequest
from helmsman.planner.settings.llama_grammar import MARGIN_MIB
from helmsman.planner.strategies.common_options import (
    every_way_option,
    same_software_option,
    table_option,
    threads_option,
)
from helmsman.planner.strategies.engines.automatic import AutomaticFit
from helmsman.planner.strategies.engines.kernels import EngineBuild
from helmsman.planner.strategies.engines.llama_flags import CPU_MOE, expert_rules, experts_flag, margin_of, slot_shares
from helmsman.planner.strategies.engines.overrides import Override, experts_override, overrides_of
from helmsman.planner.strategies.engines.question import (
    EngineQuestion,
    answer,
    engine_method,
    engine_question,
    fastest_way,
)
from helmsman.planner.strategies.engines.slots import SlotSplit, place, slot_counts
from helmsman.planner.strategies.engines.software import GGML, Software, looped
from helmsman.planner.strategies.engines.threads import check_threads
from helmsman.planner.strategies.streaming.framing import frame_of
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.formats import is_plain
from helmsman.schemas.plan import Schedule

MOST_SEQUENCES = 256
"""Sequences that llama.cpp takes at most (LLAMA_MAX_SEQ, ggml-org/llama.cpp#15916)."""
UBATCH = 512
"""llama.cpp's default micro-batch: a longer prompt takes several passes, and brings experts in each of them."""


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """`ngl`: slots on accelerators, None: as many as fit; `overrides`: tensors that live elsewhere, the last of them by
    the flag `experts` where that is said; `op_offload`: large products go to the accelerator; `shares` of the slots by
    accelerator, empty: all are the first's; `margin`: bytes that llama.cpp leaves free of each memory where it finds
    slots and overrides itself; `micro`: tokens of its micro-batch; `passes`: whether prompts of models with experts
    take several, as where llama.cpp itself runs the placement."""

    ngl: int | None = None
    overrides: tuple[Override, ...] = ()
    op_offload: bool = True
    experts: str = ""
    shares: tuple[float, ...] = ()
    margin: int | None = None
    micro: int = UBATCH
    passes: bool = True

    @property
    def name(self) -> str:
        """Return its name on the command line."""
        return "llama-cpp"

    @property
    def software(self) -> Software:
        """Native code and captured graphs."""
        return GGML

    @property
    def recorded(self) -> Recorded:
        """Return the flags that say what llama.cpp finds itself, and the switches that are on."""
        if self.margin is None or self.ngl is None:
            return {"cpu_moe": True} if self.experts == CPU_MOE else {}
        rules = ",".join(override.text for override in self.overrides)
        moved = f" -ot '{rules}'" if rules else ""
        return {"fit": True, "flags": f"-ngl {self.ngl}{self._divided(self.ngl)}{moved}"}

    def settled(self, frame: Frame) -> Self:
        """Return the rules with the slots that fit, and with what llama.cpp finds itself."""
        if self.margin is None or self.ngl is not None:
            return replace(self, ngl=self.slots(frame))
        split = AutomaticFit(frame, self.margin, self._schedule(frame), self.op_offload).split()
        shares = tuple(map(float, split.counts)) if len(split.counts) > 1 else ()
        return replace(self, ngl=split.slots, overrides=split.overrides, shares=shares)

    def placement(self, frame: Frame) -> Placement:
        """The rules for `ngl` slots, or for as many as fit the accelerators' memories."""
        settled = self.settled(frame)
        return settled._at(frame, settled.ngl or 0)

    def slots(self, frame: Frame) -> int:
        """Return how many of layers + 1 slots are on accelerators; more than there are means all."""
        if frame.roles.accelerator is None:
            return 0
        count = frame.model.layers + 1
        if self.ngl is not None:
            return min(self.ngl, count)
        if not self._crowded(frame, count):
            return count
        most = bisect_left(range(count), True, key=lambda slots: self._crowded(frame, slots)) - 1
        return max(most, 0)

    def label(self, frame: Frame) -> str:
        """`llama-cpp -ngl 17`, the flags beside, and how many `-ot` rules there are."""
        fitted = " --fit" if self.margin is not None else ""
        experts = f" {self.experts}" if self.experts else ""
        count = len(self.overrides) - bool(self.experts)
        rules = f" -ot {count}" if count else ""
        slots = self.slots(frame)
        return f"{self.name}{fitted} -ngl {slots}{self._divided(slots)}{experts}{rules}"

    def smaller(self, frame: Frame) -> str | None:
        """The largest `--ngl` that fits, and the least `--n-cpu-moe`, where others were asked for."""
        if self.margin is not None:
            return None
        return ", or ".join(filter(None, (self._fewer_slots(frame), self._experts_away(frame)))) or None

    def _fewer_slots(self, frame: Frame) -> str:
        other = replace(self, ngl=None)
        slots = other.slots(frame)
        return f"`ngl` {slots}" if slots != self.slots(frame) and other._fits(frame) else ""

    def _experts_away(self, frame: Frame) -> str:
        """Return of how many first layers experts would have to stay with the CPU, in words."""
        least = None if not frame.model.routed or self.experts else self.least_away(frame)
        return f"`n_cpu_moe` {least}" if least else ""

    def least_away(self, frame: Frame) -> int | None:
        """Return of how few first layers experts have to stay with the CPU for the others to fit the accelerators; None
        where no number does, or the host has no room for so many."""

        def without(count: int) -> LlamaCpp:
            return replace(self, overrides=(*self.overrides, experts_override(count, frame.model, "n_cpu_moe")))

        counts, slots = range(frame.model.layers + 1), self.slots(frame)
        least = bisect_left(counts, True, key=lambda count: not without(count)._crowded(frame, slots))
        return counts[least] if least < len(counts) and without(counts[least])._fits(frame) else None

    def _fits(self, frame: Frame) -> bool:
        return not shortages(memory_use(self.placement(frame)))

    def _counts(self, slots: int) -> tuple[int, ...]:
        return slot_counts(slots, self.shares) if self.shares else (slots,)

    def _divided(self, slots: int) -> str:
        """Return the flags that divide so many slots among accelerators."""
        return f" -sm layer -ts {','.join(map(str, self._counts(slots)))}" if self.shares else ""

    def _crowded(self, frame: Frame, slots: int) -> bool:
        """Whether so many slots are too much for the accelerators' memories."""
        missing = shortages(memory_use(shaped(self._at(frame, slots))))
        return any(device.memory in missing for device in frame.roles.accelerators)

    def _at(self, frame: Frame, slots: int) -> Placement:
        placed = place(SlotSplit(frame, self._counts(slots), self.overrides, self.op_offload))
        return replace(placed, schedule=self._schedule(frame))

    def _schedule(self, frame: Frame) -> Schedule:
        """Return that buffers have room for a micro-batch, and that prompts take several of a model with experts; of
        another's one pass stands for all, as its weights do not come again."""
        work = frame.workload
        several = self.passes and frame.model.routed and self.micro < work.batch * work.new_tokens
        tokens = max(1, self.micro // work.batch) if several else None
        least = -(-self.micro // work.batch)
        return Schedule(pass_tokens=tokens, buffered_tokens=least, experts_apart=self.passes)


@dataclass(frozen=True, slots=True)
class LlamaCppOptions:
    """Options of `llama-cpp`."""

    table: Path | None = table_option()
    same_software: bool = same_software_option()
    every_way: bool = every_way_option()
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
    n_cpu_moe: int | None = option(
        None,
        "llama-cpp: experts of the first N layers stay with the CPU (default: as few as is fastest)",
        metavar="N",
        parse=int,
    )
    cpu_moe: bool = option(False, "llama-cpp: experts of all layers stay with the CPU", recorded=False)
    fit: bool = option(False, "llama-cpp: layers and experts where llama.cpp's --fit puts them", recorded=False)
    fit_target: int | None = option(
        None, f"llama-cpp: MiB that --fit leaves free on each accelerator (default {MARGIN_MIB})", metavar="MIB",
        parse=int,
    )  # fmt: skip
    split_mode: Literal["none", "layer"] | None = option(
        None,
        "llama-cpp: of several accelerators the first alone, or layers on each (default: the faster)",
        choices=("none", "layer"),
    )
    tensor_split: str | None = option(
        None, "llama-cpp: shares of the layers by accelerator, as in 3,1 (default: by free memory)", metavar="N,N,.."
    )
    ubatch: int = option(
        UBATCH, "llama-cpp: tokens of a micro-batch, for which buffers have room; prompts of models with experts take "
        f"as many at a time (default {UBATCH})",
        metavar="N", parse=int,
    )  # fmt: skip
    no_op_offload: bool = option(
        False, "llama-cpp: products of 32 tokens and more stay with the CPU that has their weights"
    )
    build_era: Literal["2023", "2024", "2025"] | None = option(
        None, "llama-cpp: the year of the build, 2025 for later ones too (default: unknown, a wider interval)",
        choices=("2023", "2024", "2025"),
    )  # fmt: skip
    backend: Literal["cuda", "rocm", "vulkan", "metal", "sycl", "opencl"] | None = option(
        None, "llama-cpp: the backend it was built with (default: the device's usual one)",
        choices=("cuda", "rocm", "vulkan", "metal", "sycl", "opencl"),
    )  # fmt: skip
    flash_attn: Literal["on", "off"] | None = option(
        None, "llama-cpp: attention as a kernel of its own (default: on in builds from 2025 on)", choices=("on", "off")
    )
    threads: int | None = threads_option()


def _question(request: PlanRequest[LlamaCppOptions]) -> EngineQuestion:
    options = request.options
    frame = replace(frame_of(request, options.table), formats=request.formats)
    if options.ngl is not None and options.ngl < 0:
        remedy = "use 0 or more, or leave it out for as many as fit"
        raise UsageError("not a number of layers", field="ngl", value=options.ngl, remedy=remedy)
    if options.ubatch < 1:
        raise UsageError("not a number of tokens", field="ubatch", value=options.ubatch, remedy="use 1 or more")
    if not options.same_software and request.workload.batch > MOST_SEQUENCES:
        problem, remedy = (
            f"llama.cpp serves at most {MOST_SEQUENCES} sequences at once",
            f"use {MOST_SEQUENCES} or fewer",
        )
        raise InfeasibleError(problem, field="batch", value=request.workload.batch, remedy=remedy)
    if options.ngl and frame.roles.accelerator is None:
        raise UsageError("this machine has no accelerator", field="ngl", value=options.ngl, remedy="use `ngl` 0")
    check_threads(options.threads)
    return engine_question(request, frame, _engine(options, frame), _build(options), options.threads)


def _build(options: LlamaCppOptions) -> EngineBuild:
    flash = None if options.flash_attn is None else options.flash_attn == "on"
    return EngineBuild("llama.cpp", options.build_era or "unknown", options.backend, flash)


def _engine(options: LlamaCppOptions, frame: Frame) -> LlamaCpp:
    """Return the engine with a request's options. Raises UsageError for those that do not go together."""
    margin = margin_of(options, frame.roles)
    shares = slot_shares(options.tensor_split, options.split_mode, frame.roles)
    text, experts = options.override_tensor, expert_rules(options, frame.model)
    rules = () if text is None else overrides_of(text, frame.model, frame.roles)
    offload, passes = not options.no_op_offload, not options.same_software
    return LlamaCpp(
        options.ngl, (*rules, *experts), offload, experts_flag(options), shares, margin, options.ubatch, passes
    )


WORTH = 0.95
"""The share of the seconds that attention in steps must not exceed: what differs less is left as builds have it."""


def _decide(request: PlanRequest[LlamaCppOptions]) -> Decision:
    """Return the plan: of the ways that the request leaves open, the one that is predicted to be the fastest.

    Attention of processors is in one operation or in steps, whichever is faster: in steps caches are read once, in one
    operation prompts write no scores. Raises as `fastest_way` does."""
    whole, way = fastest_way(_ways(request), _question)
    question = _question(way)
    if not _may_attend_stepwise(way, question):
        return whole
    options = replace(way.options, flash_attn="off")
    steps = replace(question, engine=question.settled, build=_build(options))  # memories are the same: so are slots
    stepwise = answer(replace(way, options=options), steps)
    return stepwise if stepwise.seconds < WORTH * whole.seconds else whole


def _ways(request: PlanRequest[LlamaCppOptions]) -> Iterator[PlanRequest[LlamaCppOptions]]:
    """Yield the request, and where it says nothing of that: with layers on all accelerators instead of the first; with
    experts of as few layers with the CPU as let all else be on accelerators, on several of them also as --fit does.

    Where `best` compares with placements of engines, and where --fit is asked for, there is the request alone."""
    options, frame = request.options, frame_of(request, request.options.table)
    yield request
    if (options.same_software and not options.every_way) or options.fit or frame.roles.accelerator is None:
        return
    open_mode = options.split_mode is None and options.tensor_split is None and len(frame.roles.accelerators) > 1
    divided = replace(request, options=replace(options, split_mode="layer")) if open_mode else None
    if divided is not None:
        yield divided
    if request.model.routed and _places_nothing(options):
        alone = replace(request, options=replace(options, split_mode="none")) if open_mode else request
        for way in filter(None, (alone, divided)):
            yield from _with_experts_away(way)
        if divided is not None:
            yield replace(request, options=replace(options, fit=True))


def _places_nothing(options: LlamaCppOptions) -> bool:
    """Whether a request says nothing of where layers and experts are."""
    return options.ngl is None and options.override_tensor is None and options.n_cpu_moe is None and not options.cpu_moe


def _with_experts_away(way: PlanRequest[LlamaCppOptions]) -> Iterator[PlanRequest[LlamaCppOptions]]:
    """Yield a request with the fewest experts with the CPU that let all slots be on accelerators, or with all of them;
    nothing where all fit as they are."""
    question = _question(way)
    assert isinstance(question.engine, LlamaCpp)
    least = replace(question.engine, ngl=way.model.layers + 1).least_away(question.frame)
    if least is None:
        yield replace(way, options=replace(way.options, cpu_moe=True))
    elif least:
        yield replace(way, options=replace(way.options, n_cpu_moe=least))


def _may_attend_stepwise(request: PlanRequest[LlamaCppOptions], question: EngineQuestion) -> bool:
    """Whether a request leaves open how a processor attends, and scores have room in steps where Helm chooses how many
    layers accelerators have."""
    options = request.options
    if options.flash_attn is not None or options.same_software or not is_plain(request.kv):
        return False
    if looped(request.hardware):
        return False
    placed = question.settled
    if not isinstance(placed, LlamaCpp) or placed.slots(question.frame) > request.model.layers:
        return False
    if options.ngl is not None:
        return True
    work, room = request.workload, memory_use(placed.placement(question.frame))
    scores = score_bytes(request.model, placed.micro, work.context * work.batch)
    return all(use.used + scores <= use.available for use in room if use.buffers)


STRATEGY = replace(
    engine_method(
        "llama-cpp",
        "llama.cpp: the last layers on the accelerator",
        LlamaCppOptions,
        _question,
        own_formats=True,
        ways=_ways,
    ),
    decide=_decide,
)
