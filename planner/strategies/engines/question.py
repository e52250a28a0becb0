"""An engine's plan for a question, or what would have to change for it to fit."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Protocol, Self, TypeVar

from helmsman.hwdb.interval_ends import kernels_at
from helmsman.hwdb.percentiles import End
from helmsman.lowering.pass_shape import pass_of
from helmsman.lowering.placement import Placement, shaped
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.decision import Decision
from helmsman.planner.machine import roles
from helmsman.planner.memory.usage import memory_use, shortages
from helmsman.planner.mixed_formats import format_sizes
from helmsman.planner.options import Recorded
from helmsman.planner.prediction.launches import launched, on_device
from helmsman.planner.prediction.pass_figures import works_by_price
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.registry import Method
from helmsman.planner.request import PlanRequest
from helmsman.planner.strategies.engines.calibrated_build import calibrated_build, calibration_of
from helmsman.planner.strategies.engines.engine_model import engine_model
from helmsman.planner.strategies.engines.heads_apart import with_heads_apart
from helmsman.planner.strategies.engines.kernels import EngineBuild, with_kernels
from helmsman.planner.strategies.engines.software import Software, looped, native
from helmsman.planner.strategies.engines.threads import with_threads
from helmsman.planner.strategies.streaming.framing import with_doubts
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.streaming.question import Question
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.figures import Source
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.hardware import Dispatch, Hardware
from helmsman.schemas.objective import DEFAULT_OBJECTIVE, Objective
from helmsman.schemas.same import Same
from helmsman.schemas.workload import Workload


class EngineRules(Protocol):
    """The rules that an engine adds: its name, where it puts things, and what a user of it would change."""

    @property
    def name(self) -> str:
        """Return its name on the command line."""

    @property
    def software(self) -> Software:
        """How it launches operations."""

    @property
    def recorded(self) -> Recorded:
        """Return what plans say beside the options that were given."""

    def settled(self, frame: Frame) -> Self:
        """Return the same rules, with what the engine chooses itself by the memory of a machine chosen."""

    def placement(self, frame: Frame) -> Placement:
        """Its rules, whether or not they fit. Raises UsageError for machines that it is not for."""

    def label(self, frame: Frame) -> str:
        """In a few words for people."""

    def smaller(self, frame: Frame) -> str | None:
        """The option with which it would fit, if there is one."""


@dataclass(frozen=True)
class EngineQuestion:
    """The plan of `engine` for the `requested` frame. `own_software`: priced with the engine's launch times, and with
    what kernels of its `build` reach where that is known, else with the figures of the machine's record, so that only
    placements are compared; `threads`: of processors, None: as many as their cores; `mixture`: formats of a file that
    has several, that of most weights first; `kernels`: at which end of what is known of them its kernels are taken."""

    requested: Frame
    engine: EngineRules
    cost_options: CostOptions
    own_software: bool = True
    objective: Objective = DEFAULT_OBJECTIVE
    build: EngineBuild | None = None
    threads: int | None = None
    mixture: tuple[StoredFormat, ...] = ()
    kernels: End = "mid"

    def decide(self, recorded: Recorded) -> Decision:
        """The plan. Raises InfeasibleError when it does not fit, with what would."""
        question = Question(self.frame, self.cost_options, self.objective)
        if not question.fits(self.placement):
            option = self.engine.smaller(self.frame)
            raise question.infeasible(
                self.engine.name, self.placement, lambda question: self.fits(question.frame.workload), option
            )
        options = {**recorded, **self.settled.recorded}
        asked = self.requested.roles.hardware
        machine = None if self.placement.hardware is asked else asked
        decision = question.decision(self.engine.name, self.label, self.placement, options, machine=machine)
        used = {rule.device for rule in self.placement.compute}
        here = {device.name for device in self.placement.hardware.devices}  # without cards that are one with another
        return replace(decision, unused=tuple(name for name in decision.unused if name in here - used))

    @cached_property
    def frame(self) -> Frame:
        """Return what is asked, on the machine as the engine finds it and its software drives it."""
        software = self.engine.software
        if self._bare is self.requested or software.dispatch is None or software.source is None:
            return self._bare
        return self._launched(self._bare, software.dispatch, software.source)

    @property
    def driven(self) -> Hardware:
        """Return the machine as the engine drives it, but for the least times of launching a plan's operations."""
        return self._bare.roles.hardware

    @cached_property
    def _bare(self) -> Frame:
        """Return what is asked, on the machine as the engine finds it."""
        if not self.own_software or looped(self.requested.roles.hardware):
            return self.requested
        frame, bare, build = self.requested, self.requested.roles.hardware, self.build
        known = calibration_of(bare, self.engine.name, build)
        before = hardware = _for_engines(Same(with_threads(bare, self.threads)))
        if build is not None:
            build = calibrated_build(build, known)
            hardware = with_kernels(hardware, build, self._formats, engine_model(frame.model))
        driven = {new.name for new, old in zip(hardware.devices, before.devices, strict=True) if new is not old}
        if self.engine.software.heads_apart and (build is None or build.flash is not False):
            hardware = with_heads_apart(hardware, frame.model, frame.workload.context)
        if known is not None:
            from helmsman.planner.strategies.engines.calibration import calibrated  # with numpy, which plans do without

            hardware = calibrated(hardware, known, self._formats[0], engine_model(frame.model).scale)
        if self.kernels != "mid":
            devices = tuple(
                kernels_at(device, self.kernels) if device.name in driven else device for device in hardware.devices
            )
            hardware = hardware.model_copy(update={"devices": devices})
        return _on(frame, hardware)

    @property
    def _formats(self) -> tuple[StoredFormat, ...]:
        """Return the formats of the weights, that of most first."""
        frame = self.requested
        return self.mixture or (frame.weights, *sorted(set(frame.formats.values())))

    def _launched(self, bare: Frame, dispatch: Dispatch, source: Source) -> Frame:
        """`bare` with the least times that launching the operations of a decode step leaves."""
        placed, device = self.settled.placement(bare), bare.accelerator.name
        costs = Question(bare, self.cost_options).costs(placed)
        works = works_by_price(pass_of(shaped(placed), mean_step(placed.workload)))
        work = on_device(works, device, costs)
        driven = launched(bare.roles.hardware, device, dispatch, bare.model.layers, work)
        sources = {**driven.sources, dispatch.seconds.source: source}
        return _on(bare, driven.model_copy(update={"sources": sources}))

    @cached_property
    def settled(self) -> EngineRules:
        """Return the engine with its choices made, for which only memories count."""
        return self.engine.settled(self._bare)

    @cached_property
    def placement(self) -> Placement:
        """The engine's rules."""
        return self.settled.placement(self.frame)

    @property
    def label(self) -> str:
        """The engine's, and the batches where there are several: `vllm cuda(38) 2x8`."""
        work = self.frame.workload
        shape = [f"{work.batches}x{work.batch}"] if work.batches > 1 else []
        return " ".join([self.settled.label(self.frame), *shape])

    def fits(self, workload: Workload) -> bool:
        """Whether the engine has a plan for a workload; how fast it launches operations does not count."""
        placed = self.engine.placement(replace(self._bare, workload=workload))
        return not shortages(memory_use(shaped(placed)))


def _on(frame: Frame, hardware: Hardware) -> Frame:
    return replace(frame, roles=roles(hardware))


@lru_cache(maxsize=64)
def _for_engines(same: Same[Hardware]) -> Hardware:
    """Return a machine as engines find it: with the memory that is free, and the launch times of devices' classes."""
    return native(_with_free_memory(same.document))


def _with_free_memory(hardware: Hardware) -> Hardware:
    """`hardware` whose memories have what any program finds free, not the budget of the executor measured there."""
    memories = tuple(
        memory if memory.free is None else memory.model_copy(update={"available": memory.free, "free": None})
        for memory in hardware.memories
    )
    return hardware.model_copy(update={"memories": memories})


class EngineOptions(Protocol):
    """The options of every engine: the user's `table`, and `same_software`, priced with the launch times of the
    machine's record."""

    @property
    def table(self) -> Path | None:
        """Return the file of measured operations."""

    @property
    def same_software(self) -> bool:
        """Whether launch times are the machine's."""


EngineOptionsT = TypeVar("EngineOptionsT", bound=EngineOptions)
Asks = Callable[[PlanRequest[EngineOptionsT]], EngineQuestion]
"""Reads a request as a question to an engine, raising UsageError for options that make no sense."""
Ways = Callable[[PlanRequest[EngineOptionsT]], Iterable[PlanRequest[EngineOptionsT]]]
"""Yields the requests that a request stands for, each with a choice made that it leaves open."""


def only_way(request: PlanRequest[EngineOptionsT]) -> tuple[PlanRequest[EngineOptionsT]]:
    """Return a request that leaves nothing open."""
    return (request,)


def engine_question(
    request: PlanRequest[EngineOptionsT],
    frame: Frame,
    engine: EngineRules,
    build: EngineBuild | None = None,
    threads: int | None = None,
) -> EngineQuestion:
    """Return a request's question to an engine, and a build of it with so many threads, framed with the user's
    table."""
    own = not request.options.same_software
    mixture = tuple(format_sizes(request.model, request.formats)) if request.formats else ()
    prices, kernels = request.prices, request.kernels
    return EngineQuestion(frame, engine, prices, own, request.objective, build, threads, mixture, kernels)


def answer(request: PlanRequest[EngineOptionsT], question: EngineQuestion) -> Decision:
    """Return the plan of a request's question, with what to doubt of the user's table. Raises what `decide` raises."""
    return with_doubts(lambda: question.decide(request.recorded()), request.options.table, question.requested)


def fastest_way(
    ways: Iterable[PlanRequest[EngineOptionsT]], asks: Asks[EngineOptionsT]
) -> tuple[Decision, PlanRequest[EngineOptionsT]]:
    """Return the plan that is predicted to be the fastest of those of several requests, the first of equal ones, and
    its request; requests after the first that the engine cannot express are passed over.

    Raises what the first request does but for InfeasibleError, and where none fits that of the one that has room for
    most sequences, or lacks least."""
    refused = list[InfeasibleError]()
    answers = list[tuple[Decision, PlanRequest[EngineOptionsT]]]()
    for number, way in enumerate(ways):
        try:
            answers.append((answer(way, asks(way)), way))
        except InfeasibleError as error:
            refused.append(error)
        except UsageError:
            if not number:
                raise
    if not answers:
        raise min(refused, key=lambda error: (-(error.largest_batch or 0), sum(error.lacks.values())))
    return min(answers, key=lambda pair: pair[0].seconds)


def any_fits(ways: Iterable[PlanRequest[EngineOptionsT]], asks: Asks[EngineOptionsT]) -> bool:
    """Whether the engine has a plan for any of several requests; those after the first that it cannot express have
    none. Raises UsageError as the first does."""
    for number, way in enumerate(ways):
        try:
            if asks(way).fits(way.workload):
                return True
        except UsageError:
            if not number:
                raise
    return False


def engine_method(
    name: str,
    summary: str,
    options: type[EngineOptionsT],
    asks: Asks[EngineOptionsT],
    *,
    streams: bool = False,
    own_formats: bool = False,
    ways: Ways[EngineOptionsT] = only_way,
) -> Method[EngineOptionsT]:
    """Return the method of an engine; `streams`, `own_formats`: as a Method says; `ways`: what a request leaves open,
    of which the fastest is planned."""

    def decide(request: PlanRequest[EngineOptionsT]) -> Decision:
        return fastest_way(ways(request), asks)[0]

    def fits(request: PlanRequest[EngineOptionsT]) -> bool:
        return any_fits(ways(request), asks)

    def driven(request: PlanRequest[EngineOptionsT]) -> Hardware:
        return asks(request).driven

    return Method(name, summary, options, decide, streams, fits, quick=True, own_formats=own_formats, driven=driven)
