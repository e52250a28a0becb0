"""GateCase: what the regression gate measures again and again: a plan, a machine's record, and how it is measured."""

from typing import Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import Count, Document, FilePath, Frozen, Index, Name, Positive, Words, version

MOST_PROCESSES = 1000
"""The number of processes that measure one case at most."""

Processes = Annotated[int, Field(ge=1, le=MOST_PROCESSES)]


class TraceMeasure(Frozen):
    """Measured before: `file`, a Trace that `helm-run --trace` wrote."""

    by: Literal["trace"]
    file: FilePath


class CommandMeasure(Frozen):
    """Measured by a command, a process for each run. `{python}`, `{plan}` and `{case}` in `argv` stand for the
    interpreter, the plan's file and the case's folder.

    It prints one number of seconds, an object of numbers such as `{"step": 0.021}`, or what `helm-run --json` prints.
    `limit_s`: seconds that a run may take."""

    by: Literal["command"]
    argv: Annotated[tuple[Words, ...], Field(min_length=1, max_length=1000)]
    limit_s: Positive = 600.0


class RunMeasure(Frozen):
    """Measured by `helm-run` on this machine, a process for each run, in which the plan runs `repeats` times after a
    warm-up; of these the median counts. `prompt`: token ids, continued cyclically to the plan's prompt."""

    by: Literal["run"]
    checkpoint: FilePath
    prompt: Annotated[tuple[Index, ...], Field(min_length=1, max_length=100_000)] = (7, 3, 11)
    repeats: Annotated[Count, Field(ge=2, le=1000)] = 3
    limit_s: Positive = 600.0


class ServeMeasure(Frozen):
    """Measured by `helm-serve` on this machine, a new server for each run, and `helm-bench-serve`, which sends
    `requests`: a file, or `synthetic:n=20,input=64,output=16,rate=2`."""

    by: Literal["serve"]
    checkpoint: FilePath
    requests: Words
    policy: Name = "gpu-only"
    limit_s: Positive = 600.0


class EngineMeasure(Frozen):
    """Measured by `helm-run --engine` on this machine: an engine that people have carries out the plan, started anew
    `repeats` times for each run; of these the median counts.

    `checkpoint`: a file that the engine reads; `python`: an interpreter that has the engine's package, from the case's
    folder, by default that of Helm, else a program of the engine on the path; `prompt`: token ids, continued cyclically
    to the plan's prompt."""

    by: Literal["engine"]
    engine: Literal["llama.cpp"] = "llama.cpp"
    checkpoint: FilePath
    python: FilePath | None = None
    prompt: Annotated[tuple[Index, ...], Field(min_length=1, max_length=100_000)] = (7, 3, 11)
    repeats: Annotated[Count, Field(le=1000)] = 1
    limit_s: Positive = 600.0


Measure = Annotated[
    TraceMeasure | CommandMeasure | RunMeasure | ServeMeasure | EngineMeasure, Field(discriminator="by")
]


class GateCase(Document):
    """One case of a suite, `case.json` in a folder of its own; files are named from there.

    `hardware`: a record that prices the plan instead of its own; `figures`: the figures that are judged, by default
    `step` and `request` of runs, engines and traces, `tpot` and `e2e` of servers, and all that a command prints;
    `runs`: the processes that measure each side."""

    schema_id: Literal["helm.gate-case/1"] = version("helm.gate-case/1")
    about: Words | None = None
    plan: FilePath
    hardware: FilePath | None = None
    measure: Measure
    figures: Annotated[tuple[Name, ...], Field(max_length=20)] = ()
    runs: Processes = 15
