"""`helm-profile`: what does this machine do?"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from helmsman.cli.app import run_command
from helmsman.cli.output import show, write_out, write_text
from helmsman.cli.parser import Parser, command_parser
from helmsman.cli.profile_table import add_table_arguments

if TYPE_CHECKING:
    from helmsman.executor.profile.question import LayerQuestion
    from helmsman.executor.profile.settings import Loopback
    from helmsman.schemas.hardware import Hardware


def build_parser() -> Parser:
    """Return the arguments of helm-profile."""
    parser = command_parser(
        "helm-profile",
        "Measure this machine with the executor's own kernels; --hw this uses the record.",
        "helm-profile --loopback cores=1,vram=512MiB,link=2GB/s,latency=20us",
    )
    parser.add_argument(
        "--loopback",
        metavar="SETTINGS",
        help="also set up and measure a loopback accelerator: one or more of cores=N,vram=SIZE,link=RATE,latency=TIME"
        " (defaults: cores=1,vram=512MiB,link=2GB/s,latency=20us)",
    )
    add_table_arguments(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_command(build_parser(), execute, argv)


def execute(args: argparse.Namespace) -> int:
    """Profile, print, keep the record where `--hw this` finds it.

    A minute of measuring is not lost to a place that cannot be written: all are tried before it begins."""
    from datetime import UTC, datetime

    from helmsman.cli.profile_table import question
    from helmsman.executor.profile.settings import Loopback

    layer_question = question(args)
    loopback = None if args.loopback is None else Loopback.parse(args.loopback)
    now = datetime.now(UTC)
    kept = _kept(f"profile-{now:%Y%m%dT%H%M%S%f}.json")
    if layer_question is not None:
        return _execute_table(args, layer_question, loopback or Loopback(), f"{now:%Y-%m-%d}", kept)
    from helmsman.executor.profile.report import summary

    folders = _folders(args.storage) or [kept.parent]
    hardware = _measure(loopback, f"{now:%Y-%m-%d}", args.quiet, folders)
    _keep(args, hardware, kept, summary(hardware))
    return 0


def _execute_table(
    args: argparse.Namespace, layer_question: "LayerQuestion", loopback: "Loopback", date: str, kept: Path
) -> int:
    """A table of the newest record, measured unless it or an older record has it; with a record of its own where there
    is none."""
    from helmsman.cli.isa import select_from_environment
    from helmsman.cli.profile_table import known_elsewhere, measured, newest
    from helmsman.executor.profile.report import summary, table_summary
    from helmsman.executor.profile.table import check_room
    from helmsman.executor.profile.table_place import TablePlace
    from helmsman.executor.system.machine import Machine

    select_from_environment()
    machine, told = Machine.this(), []
    check_room(machine, layer_question)
    record = None if args.loopback is not None else newest()
    if record is None:
        record = _measure(loopback, date, args.quiet, args.storage or [kept.parent])
        told.append(summary(record))
    table_place = TablePlace.of(record, machine)
    known = table_place.known(layer_question)
    if known is not None and not args.again:
        told += [
            table_summary(table_place.hardware, known, layer_question.model.name),
            "measured before; --again measures it again",
        ]
        write_out(args, table_place.hardware.to_json())
        show(args, table_place.hardware.to_json(), lambda: "\n".join(told))
        return 0
    elsewhere = None if args.again else known_elsewhere(table_place, layer_question)
    hardware = elsewhere or measured(table_place, layer_question, date, args.quiet)
    told.append(table_summary(hardware, hardware.tables[0], layer_question.model.name))
    if elsewhere is not None:
        told.append("measured before, with another profile of this machine; --again measures it again")
    _keep(args, hardware, kept, "\n".join(told))
    return 0


def _keep(args: argparse.Namespace, hardware: "Hardware", kept: Path, told: str) -> None:
    """Write the record where it was asked for and where `--hw this` finds it, as the newest, and print."""
    from helmsman.hwdb.load_hardware import newest_ns

    document = hardware.to_json()
    write_out(args, document)
    before = newest_ns(kept.parent)
    write_text(kept, document + "\n")
    if kept.stat().st_mtime_ns <= before:  # the clock was set back since
        os.utime(kept, ns=(before + 1, before + 1))
    show(args, document, lambda: f"{told}\nkept as {kept}; use it with --hw this")


def _folders(given: Sequence[Path] | None) -> list[Path]:
    """Return the folders whose disks are to be read. Raises UsageError for what is no folder."""
    from helmsman.executor.profile.layer_storage import check_storage
    from helmsman.executor.profile.random_reads import FILE_BYTES

    for folder in given or ():
        check_storage(folder, FILE_BYTES)
    return list(given or ())


def _kept(name: str) -> Path:
    """Where the record will be kept; its folder is there afterwards and can be written."""
    from helmsman.cli.places import check_place, make_folder
    from helmsman.profiles_folder import profiles_folder

    remedy = "set XDG_CACHE_HOME to a folder that can be written"
    directory = profiles_folder()
    make_folder(directory, remedy)
    check_place(directory / name, remedy)
    return directory / name


def _measure(loopback: "Loopback | None", date: str, quiet: bool, folders: Sequence[Path]) -> "Hardware":
    from helmsman.cli.isa import select_from_environment
    from helmsman.cli.progress import progress
    from helmsman.executor.profile.run import profile, steps
    from helmsman.executor.system.machine import Machine

    select_from_environment()
    with progress(steps(loopback, len(folders)), quiet) as tell:
        return profile(Machine.this(), loopback, date, tell, folders=folders)
