"""`helm-doctor`: what this machine is, what works on it, and what is missing for the rest."""

import argparse
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, get_args

from helmsman.cli.app import run_command
from helmsman.cli.output import emit
from helmsman.cli.parser import Parser, command_parser
from helmsman.schemas.errors import HardwareUnavailableError

if TYPE_CHECKING:
    from helmsman.schemas.detected import DetectedGpu, DetectedLink, DetectedMachine
    from helmsman.schemas.doctor_report import DoctorReport

_ABOVE = "see the problem above"
_MOST = 4
"""Entries of a list that are printed, so that all fits on a screen."""
_INDENT, _WIDTH = 12, 100
"""Columns before what a line says, and of what is printed."""
_NAMES = 22
"""Columns of the names of commands."""


def build_parser() -> Parser:
    """Return the arguments of helm-doctor."""
    from helmsman.schemas.doctor_report import Purpose

    parser = command_parser(
        "helm-doctor",
        "Say what this machine is, what of Helm works on it, and what is missing for the rest.",
        "helm-doctor --for run",
    )
    purposes = get_args(Purpose)
    parser.add_argument(
        "--for",
        dest="purposes",
        action="append",
        choices=purposes,
        metavar="WHAT",
        help=f"end with code 6 unless this works: {', '.join(purposes)} (default plan; may be repeated)",
    )
    parser.add_argument("--fix", action="store_true", help="make folders that are missing; nothing else is changed")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_command(build_parser(), execute, argv)


def execute(args: argparse.Namespace) -> int:
    """Print the report, and end with code 6 where something does not work that has to."""
    from helmsman.library import diagnose

    report = diagnose(args.fix)
    emit(args, report.to_json(), lambda: "\n".join(lines(report)))
    for need in report.needs:
        if need.purpose in (args.purposes or ("plan",)) and not need.ready:
            error = HardwareUnavailableError(f"{need.command} cannot work here: {need.missing}", remedy=need.remedy)
            raise error.after_report()
    return 0


def lines(report: "DoctorReport") -> Iterator[str]:
    """Yield the report in fewer than 40 lines of a hundred columns."""
    for name, text in _facts(report):
        yield from _lines(name, text)
    yield ""
    told = {f"{problem.what}: {problem.problem}" for problem in report.problems[:_MOST]}
    for need in report.needs:
        reason = f"does not work: {_ABOVE}" if need.missing in told else f"{need.missing}; {need.remedy}"
        yield from _lines(need.command, "works" if need.ready else reason, _NAMES)


def _facts(report: "DoctorReport") -> Iterator[tuple[str, str]]:
    from helmsman.schemas.units import format_bytes

    yield "processor", _processor(report)
    yield "memory", _memory(report.machine)
    if report.machine.quota is not None:
        yield "limit", f"{report.machine.quota:.3g} processors' time, by the control group"
    for gpu in report.machine.gpus[:_MOST]:
        yield "GPU", _gpu(gpu)
    if not report.machine.gpus:
        yield "GPU", "none"
    disks = [
        f"{disk.name} {format_bytes(disk.capacity)}" + (f" ({format_bytes(disk.free)} free)" if disk.free else "")
        for disk in report.disks
    ]
    yield "disks", _listed(disks)
    yield "profile", _profile(report)
    models = [f"{model.name} ({format_bytes(model.bytes)}, {model.store})" for model in report.models]
    yield "models", _listed(models) + ("" if models else "; helm-make-checkpoint makes one, engines download them")
    yield "engines", _listed([engine.name for engine in report.engines])
    yield "packages", _listed([f"{package.name} {package.version}" for package in report.packages], 8)
    for line in report.assumed[:_MOST] if report.profile is None else ():
        yield "assumed", line
    for problem in report.problems[:_MOST]:
        yield "problem", f"{problem.what}: {problem.problem}; {problem.remedy}"
    for line in report.repaired:
        yield "fixed", line


def _processor(report: "DoctorReport") -> str:
    processor, kernels = report.machine.processor, report.kernels
    sockets = f" in {processor.sockets} sockets" if processor.sockets > 1 else ""
    virtual = ", virtual" if processor.virtual else ""
    isa = f"{kernels[0]} kernels" if kernels else "no kernels"
    return f"{processor.name}: {processor.cores} cores{sockets}, {processor.threads} threads{virtual}; {isa}"


def _memory(machine: "DetectedMachine") -> str:
    from helmsman.schemas.units import format_bytes

    memory, modules = machine.memory, machine.memory.modules
    limit = f" of {format_bytes(memory.total)}, by the {memory.limited}" if memory.limited else ""
    kind = f"{modules.kind}, {modules.channels} channels" if modules else "modules not readable"
    return f"{format_bytes(memory.allowed)}{limit}; {format_bytes(memory.free)} free; {kind}"


def _gpu(gpu: "DetectedGpu") -> str:
    from helmsman.schemas.units import format_bytes

    size = "" if gpu.capacity is None else f", {format_bytes(gpu.capacity)}"
    free = "" if gpu.free is None else f" ({format_bytes(gpu.free)} free)"
    link = "" if gpu.link is None else f", {_link(gpu.link)}"
    known = " or ".join(gpu.devices) or "not in the catalogue"
    return f"{gpu.name}{size}{free}{link}; {known}"


def _link(link: "DetectedLink") -> str:
    """Return what a link does under load; where nobody tried, what it can do, and does while idle."""
    if link.loaded is not None:
        more = f", of {link.generation} that both ends can do" if link.loaded < link.generation else ""
        return f"PCIe {link.loaded} x{link.lanes} under load{more}"
    idle = f" (now {link.now})" if link.now is not None and link.now < link.generation else ""
    return f"PCIe {link.generation} x{link.lanes}{idle}"


def _profile(report: "DoctorReport") -> str:
    profile = report.profile
    if profile is None:
        return "none; helm-profile measures this machine in a minute or two, until then parts are assumed"
    stale = f"; {profile.stale}: run helm-profile again" if profile.stale else ""
    return f"{profile.age_days:.1f} days old, {profile.path}{stale}"


def _listed(names: Sequence[str], most: int = _MOST) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) + rest) or "none"


def _lines(name: str, text: str, indent: int = _INDENT) -> list[str]:
    """Return a line that begins with a name, or several where it is long."""
    wide = " " * indent
    return wrap(text, _WIDTH, initial_indent=f"{name:<{indent}}", subsequent_indent=wide, break_on_hyphens=False)
