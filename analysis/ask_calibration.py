"""The record of a machine on which one run of an engine was measured."""

from typing import Any

from helmsman.hwdb.engine_constants import ERAS, Era
from helmsman.planner.decide import decide
from helmsman.planner.request import PlanRequest
from helmsman.planner.strategies.engines.calibration import Phase, calibrated_record
from helmsman.planner.strategies.engines.kernels import EngineBuild
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import Hardware

ENGINE = "llama.cpp"
"""The engine that has constants to calibrate."""


def calibrated_machine(request: PlanRequest[Any], decode: float | None, prefill: float | None) -> Hardware:
    """Return the record of the request's machine with the engine's constants as a run of the request had them;
    `decode`, `prefill`: its tokens/s of decode steps and of prompts, either or both.

    Raises UsageError for a request to another strategy, for none of the speeds, and what planning raises."""
    if request.strategy != "llama-cpp":
        remedy = f"use `engine` {ENGINE}"
        raise UsageError("has no constants to calibrate", field="strategy", value=request.strategy, remedy=remedy)
    given: dict[Phase, float | None] = {"decode": decode, "prefill": prefill}
    speeds = {phase: speed for phase, speed in given.items() if speed is not None}
    if not speeds:
        raise UsageError("nothing was measured", field="decode", remedy="give tokens/s of decode steps or of prompts")
    options = request.options
    era: Era = next((era for era in ERAS if era == options.build_era), "unknown")
    flash = None if options.flash_attn is None else options.flash_attn == "on"
    build = EngineBuild(ENGINE, era, options.backend, flash)
    return calibrated_record(request.hardware, decide(request).plan, build, speeds)
