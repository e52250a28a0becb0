"""Whether a record has been calibrated for an engine, and which build its runs were of."""

from dataclasses import replace

from helmsman.hwdb.engine_constants import constants_digest
from helmsman.planner.strategies.engines.kernels import EngineBuild
from helmsman.schemas.engine_calibration import EngineCalibration
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.hardware import Hardware


def calibration_of(hardware: Hardware, strategy: str, build: EngineBuild | None) -> EngineCalibration | None:
    """Return the factors that a record has of the engine of a strategy; None where it has none, or of another backend
    than the build's. Raises BadInputError for factors of constants that the package no longer has."""
    known = next((one for one in hardware.calibrations if one.strategy == strategy), None)
    if known is None or (build is not None and build.backend not in (None, known.backend)):
        return None
    if known.constants is not None and known.constants != constants_digest(known.engine):
        problem, remedy = f"calibrates other constants of {known.engine} than Helm has now", "run helm-calibrate again"
        raise BadInputError(problem, field="calibrations", value=known.constants, remedy=remedy)
    return known


def calibrated_build(build: EngineBuild, known: EngineCalibration | None) -> EngineBuild:
    """Return the build that is meant: where a question leaves something open, that of the runs."""
    if known is None:
        return build
    return replace(
        build,
        era=known.era if build.era == "unknown" and known.era is not None else build.era,
        backend=build.backend or known.backend,
        flash=known.flash if build.flash is None else build.flash,
    )
