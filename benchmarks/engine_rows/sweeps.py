"""Sweeps of `-ngl` and of `--n-cpu-moe` in the rows: whether the value that is chosen by prediction is as fast as the
best that somebody measured.

A value is chosen on the row's machine among all that fit, by the predicted decode step; where a source names no
processor, a usual one stands for it. What it reaches is the speed of the nearest measured value that keeps no more on
the GPU. Machines whose GPU is not named cannot be asked: their sweeps show the shape alone."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.engine_rows.models import format_named, model_named
from benchmarks.engine_rows.rows import EngineRow, read_tables
from benchmarks.strangers.machines import machine_of
from benchmarks.strangers.models import format_of, model_of
from benchmarks.strangers.rows import OpenRow, UnansweredError, read_rows
from helmsman.hwdb.compose import GIB, compose
from helmsman.lowering.tensors import parameters
from helmsman.planner.decide import decide
from helmsman.planner.read_request import request_from
from helmsman.schemas.errors import HelmError, InfeasibleError
from helmsman.schemas.formats import StoredFormat, size_of
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model

_USUAL = "AMD Ryzen 9 7950X"
_RAM = 512 * GIB
_LEAST = 2
"""Measured values of a sweep, at least."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep: `knob`: the option that differs, with the decode speeds that were measured at its values; `model` on
    `machine` in `fmt`, None where one of these is not known, and why (`reason`)."""

    name: str
    knob: str
    measured: Mapping[int, float]
    model: Model | None
    machine: Hardware | None
    fmt: StoredFormat | None
    context: int = 640
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """The value that was chosen, the measured one that stands for it, and the part of the best speed that it reaches;
    None where nothing was chosen, with why in the sweep."""

    sweep: Sweep
    chosen: int | None = None
    nearest: int | None = None
    reached: float | None = None


def sweeps(folder: Path) -> Iterator[Sweep]:
    """Yield the sweeps of all tables of a folder."""
    yield from _of_rows(read_tables(folder))
    if (folder / "moe_open.csv").exists():
        yield from _of_experts(read_rows(folder / "moe_open.csv"))


def outcome(sweep: Sweep) -> SweepOutcome:
    """Return what is chosen for a sweep, and what that reaches."""
    if sweep.model is None or sweep.machine is None or sweep.fmt is None:
        return SweepOutcome(sweep)
    try:
        chosen = _chosen(sweep, sweep.model, sweep.machine, sweep.fmt)
    except HelmError as error:
        return SweepOutcome(replace(sweep, reason=str(error).splitlines()[0]))
    if chosen is None:
        return SweepOutcome(replace(sweep, reason="nothing fits"))
    less = (v for v in sweep.measured if (v <= chosen if sweep.knob == "ngl" else v >= chosen))
    nearest = min(less, key=lambda v: abs(v - chosen), default=min(sweep.measured, key=lambda v: abs(v - chosen)))
    return SweepOutcome(sweep, chosen, nearest, sweep.measured[nearest] / max(sweep.measured.values()))


def _chosen(sweep: Sweep, model: Model, machine: Hardware, fmt: StoredFormat) -> int | None:
    """Return the value with the shortest predicted step of those that fit."""
    layers = model.layers + (sweep.knob == "ngl")
    seconds: dict[int, float] = {}
    for value in range(layers + 1):
        options = {"ngl": value} if sweep.knob == "ngl" else {"ngl": model.layers + 1, "n_cpu_moe": value}
        question = {"model": model, "hardware": machine, "format": "q4_0", "engine": "llama.cpp", "options": options,
                 "prompt_tokens": max(1, sweep.context - 128), "output_tokens": 128}  # fmt: skip
        try:
            made = decide(replace(request_from(question), weights=fmt))
        except InfeasibleError:
            continue
        seconds[value] = made.plan.predicted.decode.seconds.mid
    return min(seconds, key=lambda value: seconds[value], default=None)


def _of_rows(rows: Sequence[EngineRow]) -> Iterator[Sweep]:
    """Yield the sweeps of rows of one source, machine, model and format, several GPUs left out."""
    groups: dict[tuple[str, ...], list[EngineRow]] = {}
    for row in rows:
        if "llama.cpp" in row.engine and row.decode and row.gpus == 1 and "uvm" not in row.split:
            groups.setdefault((row.source, row.gpu, row.model, row.quant, row.engine), []).append(row)
    for (source, gpu, model, quant, _), members in groups.items():
        for knob in ("ngl", "n_cpu_moe"):
            measured = {v: row.decode for row in members if (v := _value(row, knob)) is not None and row.decode}
            if len(measured) >= _LEAST:
                known, machine, reason = model_named(model), None, ""
                most = 10**3 if known is None else known.layers + (knob == "ngl")
                measured = {min(value, most): speed for value, speed in measured.items()}
                try:
                    machine = compose(_gpu(gpu), _USUAL, _RAM, None)
                except HelmError as error:
                    reason = f"{gpu}: {error.message}"
                yield Sweep(f"{gpu}, {model} {quant} ({cited(source)})", knob, measured, known, machine,
                            format_named(quant), reason=reason)  # fmt: skip


def cited(source: str) -> str:
    """Return a source as a page cites it: whole, its address or its file on GitHub as a link; numbers of files in an
    index that nobody else has left out."""
    text = re.sub(r"github file-index id \d+", "a file on GitHub", source).replace("|", "\\|")
    file = re.fullmatch(r"github:([^/:]+/[^/:]+):([^@]+)@(\w+)", text)
    if file:
        return f"[{file[1]}](https://github.com/{file[1]}/blob/{file[3]}/{file[2]})"
    return re.sub(r"https?://(?:www\.)?([^\s)]*[^\s).,])", r"[\1](\g<0>)", text)


def _value(row: EngineRow, knob: str) -> int | None:
    """Return the value of a knob in a row; None where the row is about another one."""
    if knob == "n_cpu_moe":
        return row.cpu_experts if row.split != "vram_overflow_to_shared" else None
    if row.cpu_experts is not None or row.split.startswith("moe"):
        return None
    return 999 if row.ngl == "all" else int(row.ngl) if row.ngl.isdecimal() else None


def _gpu(text: str) -> str:
    """Return a GPU's name without what tables say beside."""
    return re.sub(r"^NVIDIA (?:GeForce )?|^AMD Radeon |\d+GB$| Mobile", "", text).strip()


def _of_experts(rows: Sequence[OpenRow]) -> Iterator[Sweep]:
    """Yield the sweeps of experts: rows of one source, machine and file that differ in `--n-cpu-moe` alone."""
    groups: dict[tuple[str, ...], list[tuple[int, OpenRow]]] = {}
    for row in rows:
        stated = re.search(r"n-?cpu-?moe (\d+)|-ncmoe (\d+)|(-cmoe|--cpu-moe)", row.settings)
        if stated and row.speed("decode_tps") and row.engine.startswith("llama.cpp") and "mmap)" not in row.settings:
            value = int(stated[1] or stated[2] or 10**3)
            groups.setdefault((row.source, row.model, row.quant, row.gpu, row.cpu, row.context), []).append(
                (value, row)
            )
    for (source, model, quant, gpu, *_), members in groups.items():
        measured = {value: speed for value, row in members if (speed := row.speed("decode_tps"))}
        if len(measured) >= _LEAST:
            yield _experts(f"{gpu}, {model} {quant} ({cited(source)})", measured, members[0][1])


def _experts(name: str, measured: Mapping[int, float], row: OpenRow) -> Sweep:
    try:
        model = model_of(row)
        fmt = format_of(row, model)
        machine = machine_of(row, size_of(parameters(model), fmt) + 64 * GIB)
    except UnansweredError as reason:
        return Sweep(name, "n_cpu_moe", measured, None, None, None, reason=str(reason))
    capped = {min(value, model.layers): speed for value, speed in measured.items()}
    return Sweep(name, "n_cpu_moe", capped, model, machine, fmt, (row.count("context") or 512) + 128)


def sweep_lines(folder: Path) -> Iterator[str]:
    """Yield a table of all sweeps."""
    yield "| sweep | values | chosen | nearest measured | of the best |"
    yield "|---|---|---|---|---|"
    for one in map(outcome, sweeps(folder)):
        values = ", ".join(f"{value}: {speed:g}" for value, speed in sorted(one.sweep.measured.items()))
        said = one.sweep.reason or "the model is not known"
        told = f"{one.chosen} | {one.nearest} | {one.reached:.0%}" if one.reached is not None else f"- | - | {said}"
        yield f"| {one.sweep.name} | `{one.sweep.knob}` {values} | {told} |"
