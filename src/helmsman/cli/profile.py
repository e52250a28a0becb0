"""`helm-profile`: what does this machine do?"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from helmsman.cli.app import Parser, command_parser, run_command, show, write_out, write_text

if TYPE_CHECKING:
    from helmsman.executor.profile.settings import Loopback
    from helmsman.schemas.hardware import Hardware

DISTURBED = 0.08
"""Share of the CPU time taken by others beyond which figures mean little (rule 2 of measuring)."""


def build_parser() -> Parser:
    """The arguments of helm-profile."""
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
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_command(build_parser(), execute, argv)


def execute(args: argparse.Namespace) -> int:
    """Profile, print, keep the record where `--hw this` finds it.

    A minute of measuring is not lost to a place that cannot be written: all are tried before it begins."""
    from datetime import UTC, datetime

    from helmsman.cli.places import check_place
    from helmsman.executor.profile.settings import Loopback

    loopback = None if args.loopback is None else Loopback.parse(args.loopback)
    now = datetime.now(UTC)
    kept = _kept(f"profile-{now:%Y%m%dT%H%M%S%f}.json")
    check_place(args.out)
    hardware = _measure(loopback, f"{now:%Y-%m-%d}", args.quiet)
    document = hardware.to_json()
    write_out(args, document)
    write_text(kept, document + "\n")
    show(args, document, lambda: f"{_summary(hardware)}\nkept as {kept}; use it with --hw this")
    return 0


def _kept(name: str) -> Path:
    """Where the record will be kept; its folder is there afterwards and can be written."""
    from helmsman.cli.machine import cache_directory
    from helmsman.cli.places import check_place, make_folder

    remedy = "set XDG_CACHE_HOME to a folder that can be written"
    directory = cache_directory()
    make_folder(directory, remedy)
    check_place(directory / name, remedy)
    return directory / name


def _measure(loopback: "Loopback | None", date: str, quiet: bool) -> "Hardware":
    import sys

    from tqdm import tqdm

    from helmsman.cli.isa import select_from_environment
    from helmsman.executor.machine import Machine
    from helmsman.executor.profile.run import profile, steps

    select_from_environment()
    hidden = quiet or not sys.stderr.isatty()
    with tqdm(total=steps(loopback), disable=hidden, leave=False, bar_format="{l_bar}{bar}| {desc}") as bar:

        def tell(what: str) -> None:
            bar.set_description_str(what)
            bar.update()

        return profile(Machine.this(), loopback, date, tell)


def _summary(hardware: "Hardware") -> str:
    from helmsman.executor.profile.readings import OTHERS
    from helmsman.schemas.units import format_bytes, format_rate, format_seconds

    lines = [f"{hardware.host.cpu if hardware.host else hardware.name}"]
    for device in hardware.devices:
        peak = max(compute.flops.value for compute in device.compute)
        lines.append(
            f"  {device.name:<9} {device.cores} cores, reads {format_rate(device.read.value)} "
            f"[{format_rate(device.read.p10)} .. {format_rate(device.read.p90)}], {peak / 1e9:.0f} GFLOP/s"
        )
    lines += [f"  {m.name:<9} {format_bytes(m.available)} of {format_bytes(m.capacity)}" for m in hardware.memories]
    lines += [
        f"  {link.name:<9} {format_rate(link.bandwidth.value)}, {format_seconds(link.latency.value)}"
        for link in hardware.links
    ]
    lines += [
        f"  disturbed: other processes took {reading.figure.value:.0%} of the CPU time; measure again"
        for reading in hardware.readings
        if reading.what == OTHERS and reading.figure.value > DISTURBED
    ]
    return "\n".join(lines)
