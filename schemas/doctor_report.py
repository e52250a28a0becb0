"""The report of helm-doctor: hardware and software of a machine, and requirements of commands that it lacks."""

from typing import Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import Frozen, Name, Report, version
from helmsman.schemas.detected import DetectedDisk, DetectedMachine, DetectedProblem, DetectedTool, LocalModel, Text

Purpose = Literal["plan", "profile", "run", "serve", "gpu", "engines", "web"]


class PurposeNeed(Frozen):
    """States if one use of Helm works on a machine; `missing`: for what reason not, `remedy`: one line."""

    purpose: Purpose
    command: Name
    ready: bool
    missing: Text | None = None
    remedy: Text | None = None


class ProfileState(Frozen):
    """The newest profile of this machine, and how old it is; `stale`: why it no longer describes the machine."""

    path: Annotated[str, Field(max_length=4096)]
    age_days: float
    stale: Text | None = None


class DoctorReport(Report):
    """A machine as it was found, with what works there. `kernels`: instruction sets of Helm's own kernels, that in use
    first; `assumed`: what planning for `this` takes for granted without a profile; `repaired`: what `--fix` did."""

    schema_id: Literal["helm.doctor/1"] = version("helm.doctor/1")
    machine: DetectedMachine
    kernels: Annotated[tuple[Name, ...], Field(max_length=32)]
    profile: ProfileState | None
    assumed: Annotated[tuple[Text, ...], Field(max_length=64)]
    disks: Annotated[tuple[DetectedDisk, ...], Field(max_length=64)]
    models: Annotated[tuple[LocalModel, ...], Field(max_length=10_000)]
    engines: Annotated[tuple[DetectedTool, ...], Field(max_length=64)]
    packages: Annotated[tuple[DetectedTool, ...], Field(max_length=64)]
    problems: Annotated[tuple[DetectedProblem, ...], Field(max_length=64)]
    needs: Annotated[tuple[PurposeNeed, ...], Field(max_length=16)]
    repaired: Annotated[tuple[Text, ...], Field(max_length=16)] = ()
