"""The arguments that name a machine, and the machine they name."""

import argparse
import sys
from typing import TYPE_CHECKING

from helmsman.cli.parser import Parser
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import PRECISIONS

if TYPE_CHECKING:
    from helmsman.schemas.hardware import Hardware


def add_machine_arguments(parser: Parser) -> None:
    """Add --hw, or --gpu --cpu --ram --memory --link --peer; and the overrides. The arguments then have `in_flags`,
    which turns words of the library into the command's."""
    parser.set_defaults(in_flags=parser.in_flags)
    group = parser.add_argument_group("machine")
    group.add_argument("--hw", metavar="NAME|FILE|this", help="a known machine, a record, or this one")
    gpu = "compose a machine: its GPU, or '2x NAME'; one in the CPU's chip is used where it is named"
    group.add_argument("--gpu", metavar="NAME", help=gpu)
    cpu = "compose a machine: its CPU, or '2x NAME'; a chip with a GPU and no slots (Apple's) is named by either"
    group.add_argument("--cpu", metavar="NAME", help=cpu)
    group.add_argument("--ram", metavar="SIZE", help="compose a machine: RAM as sold, 64GB")
    memory = (
        "compose a machine: its memory and filled channels, e.g. '2x DDR5-6000' (default: the CPU's, a wide interval)"
    )
    group.add_argument("--memory", metavar="KIND", help=memory)
    group.add_argument("--link", metavar="NAME", help="compose a machine: each GPU's link, e.g. pcie4x16")
    peer = (
        "compose a machine: between every two GPUs, a direction, e.g. 56GB/s (default: NVLink or Infinity Fabric of "
        "SXM and OAM cards, of others through host memory)"
    )
    group.add_argument("--peer", metavar="RATE", help=peer)
    group.add_argument("--vram-avail", metavar="SIZE", help="memory of each GPU to use, e.g. 7GiB")
    group.add_argument("--ram-avail", metavar="SIZE", help="host memory a plan may use")
    precise = "precision of activations where CPUs multiply many tokens (default auto: docs/precision.md)"
    group.add_argument("--activations", choices=("auto", *PRECISIONS), default="auto", help=precise)


def machine(args: argparse.Namespace) -> "Hardware":
    """Return the machine that the arguments name, overrides applied."""
    from helmsman.hwdb.compose import override
    from helmsman.planner.cost.rounding import with_rounding
    from helmsman.schemas.units import parse_bytes

    vram = None if args.vram_avail is None else parse_bytes(args.vram_avail, "--vram-avail")
    ram = None if args.ram_avail is None else parse_bytes(args.ram_avail, "--ram-avail")
    return with_rounding(override(_named_or_composed(args), vram, ram), args.activations)


def warn_of_disturbed(args: argparse.Namespace, hardware: "Hardware") -> None:
    """A line on stderr where figures of the record were disturbed, unless told to be quiet."""
    from helmsman.analysis.disturbance import disturbed_record

    warn(args, disturbed_record(hardware))


def warn(args: argparse.Namespace, said: str | None) -> None:
    """A warning on stderr, if there is one, unless told to be quiet."""
    if said is not None and not args.quiet:
        print(f"warning: {said}", file=sys.stderr)


def _named_or_composed(args: argparse.Namespace) -> "Hardware":
    from helmsman.hwdb.compose import assumed_parts, compose
    from helmsman.hwdb.load_hardware import THIS, load_hardware
    from helmsman.schemas.units import parse_capacity, parse_rate
    from helmsman.this_machine import this_machine

    parts = [name for name in ("gpu", "cpu", "ram", "memory", "link", "peer") if getattr(args, name) is not None]
    if args.hw is not None and parts:
        raise UsageError(f"--hw and --{parts[0]} exclude each other", remedy="name a machine or compose one")
    if args.hw is not None:
        if args.hw == THIS:
            return this_machine(tell=lambda said: warn(args, said))
        return load_hardware(args.hw, None)
    if args.ram is None:
        if parts:
            raise UsageError("the machine's RAM is not stated", field="--ram", remedy="add --ram SIZE, such as 64GB")
        raise UsageError("no machine is named", remedy="give --hw NAME, or --cpu NAME --ram SIZE [--gpu NAME]")
    ram = parse_capacity(args.ram, "--ram")
    peer = None if args.peer is None else parse_rate(args.peer, "--peer")
    hardware = compose(args.gpu, args.cpu, ram, args.link, peer, args.memory)
    for line in assumed_parts(hardware):
        warn(args, args.in_flags(f"assumed: {line}"))
    return hardware
