"""A machine's record with an engine's constants as a run on it says they are: what a plan of the engine predicted of
the run, in parts that each may be off, moved to the measured speeds (`hwdb.engine_calibration`)."""

from collections.abc import Mapping
from math import exp, log
from typing import Literal

from helmsman.hwdb.engine_calibration import Calibrated, calibrated, uncalibrated
from helmsman.hwdb.fit import Z90
from helmsman.planner.strategies.engines.kernels import ALL_FAMILIES, EngineBuild, with_kernels
from helmsman.schemas.errors import UsageError
from helmsman.schemas.figures import Figure, Source
from helmsman.schemas.hardware import Device, Efficiency, Hardware
from helmsman.schemas.plan import Plan
from helmsman.schemas.predicted import PhasePrediction

Phase = Literal["decode", "prefill"]

_ATTENDING = ("attention", "append", "index", "scores", "wv")
_OVERHEAD = 0.3
"""The standard deviation of the logarithm of overheads, of those of classes in the table."""

_ELSEWHERE = 0.25
"""That of what links and hand-overs take."""


def calibrated_record(bare: Hardware, plan: Plan, build: EngineBuild, speeds: Mapping[Phase, float]) -> Hardware:
    """Return the record of `bare`, the machine without an engine, with the constants of a `build` as a run of `plan` on
    it had them; `speeds`: its tokens/s of decode steps and of prompts, either or both. Plans on the record are priced
    with them.

    Raises UsageError for a plan that is not priced with the engine's constants, and for what is no speed."""
    if build.engine not in plan.hardware.sources:
        remedy = f"plan with --engine {build.engine}"
        raise UsageError("is not priced with the engine's constants", field="plan", remedy=remedy)
    for phase, speed in speeds.items():
        if not 0.0 < speed < 1e9:
            raise UsageError("not a speed", field=phase, value=speed, remedy="write tokens/s")
    hardware, work = with_kernels(bare, build, ALL_FAMILIES), plan.workload
    tokens = {"decode": work.batch, "prefill": work.batch * work.new_tokens}
    after = {phase: _moved(plan, phase, tokens[phase] / speed) for phase, speed in speeds.items()}
    where = " and ".join(f"{speed:g} tokens/s of {phase}" for phase, speed in speeds.items())
    source = Source(kind="measured", where=f"calibrated: {where}, {plan.model.name}", tool=build.engine)
    devices = tuple(_device(device, after) for device in hardware.devices)
    return hardware.model_copy(update={"devices": devices, "sources": {**hardware.sources, build.engine: source}})


def parts_of(plan: Plan, phase: Phase) -> dict[str, float]:
    """Return the seconds that a plan predicts of a phase by constant: `cuda.overhead`, `cuda.share`, `cuda.cache` of
    every device, and `elsewhere`; of prompts shares are those of arithmetic."""
    devices = {device.name: device for device in plan.hardware.devices}
    parts: dict[str, float] = {}
    for term in _phase(plan, phase).terms:
        device = devices.get(term.resource)
        seconds = term.seconds.mid
        if device is None:
            parts["elsewhere"] = parts.get("elsewhere", 0.0) + seconds
            continue
        added = min(seconds, term.tasks * _overhead(device, phase, plan))
        kind = "cache" if term.op in _ATTENDING else "share"
        for name, part in ((f"{device.name}.overhead", added), (f"{device.name}.{kind}", seconds - added)):
            parts[name] = parts.get(name, 0.0) + part
    return parts


def _overhead(device: Device, phase: Phase, plan: Plan) -> float:
    if phase == "decode":
        return device.overhead.value if device.overhead else 0.0
    chunks = -(-plan.workload.new_tokens // 128)
    return chunks * device.prompt_overhead.value if device.prompt_overhead else 0.0


def _phase(plan: Plan, phase: Phase) -> PhasePrediction:
    return plan.predicted.decode if phase == "decode" else plan.predicted.prefill


def _moved(plan: Plan, phase: Phase, seconds: float) -> tuple[Calibrated, float]:
    """Return the factors after a run, and the standard deviation of the logarithm of a prediction with them."""
    parts = parts_of(plan, phase)
    spread = {name: _spread(name, plan, phase) for name in parts}
    after = calibrated(uncalibrated(spread), parts, seconds)
    return after, after.predict(parts)[1]


def _spread(name: str, plan: Plan, phase: Phase) -> float:
    """Return the standard deviation of the logarithm of a part: of shares that of their figures in the plan."""
    device, _, kind = name.rpartition(".")
    if kind == "overhead":
        return _OVERHEAD
    if not device:
        return _ELSEWHERE
    bound = "memory" if phase == "decode" else "compute"
    curves = [c for c in plan.hardware.device(device).efficiency if c.bound == bound]
    return max((log(share.p90 / share.value) / Z90 for c in curves for share in c.share), default=_ELSEWHERE)


def _device(device: Device, after: Mapping[Phase, tuple[Calibrated, float]]) -> Device:
    """Return the device with its constants times their factors, and the spread that is left."""

    def moved(figure: Figure, name: str, phase: Phase, over: bool) -> Figure:
        if phase not in after:
            return figure
        known, spread = after[phase]
        factor = known.factor(name) if name in known.mean else 1.0
        value, apart = figure.value / factor if over else figure.value * factor, exp(Z90 * spread)
        return figure.model_copy(update={"value": value, "p10": value / apart, "p90": value * apart})

    def curve(of: Efficiency) -> Efficiency:
        phase: Phase = "decode" if of.bound == "memory" else "prefill"
        name = f"{device.name}.{'cache' if of.op == 'attention' else 'share'}"
        return of.model_copy(update={"share": tuple(moved(share, name, phase, True) for share in of.share)})

    name = f"{device.name}.overhead"
    first, step = device.prompt_overhead, device.overhead
    return device.model_copy(
        update={
            "efficiency": tuple(map(curve, device.efficiency)),
            "overhead": step and moved(step, name, "decode", False),
            "prompt_overhead": first and moved(first, name, "prefill", False),
        }
    )
