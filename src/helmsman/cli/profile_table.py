"""`helm-profile --model`: the operation table of a model's layer on this machine, in the newest record."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from helmsman.cli.parser import Parser
from helmsman.schemas.errors import HardwareUnavailableError, UsageError
from helmsman.schemas.formats import FORMATS, STORED_FORMATS, format_named

if TYPE_CHECKING:
    from helmsman.executor.profile.question import LayerQuestion
    from helmsman.executor.profile.table_place import TablePlace
    from helmsman.schemas.hardware import Hardware

LARGEST = 10**6
_DEFAULTS = {"batch": 1, "context": None, "format": "f16", "kv_format": "f16", "storage": None, "again": False}
"""The defaults of a question beside the model."""


def add_table_arguments(parser: Parser) -> None:
    """--model and what goes with it."""
    group = parser.add_argument_group("operation table: what every operation of a decoder layer takes here")
    group.add_argument(
        "--model", metavar="NAME|DIR|FILE", help="measure a layer of it, into the newest profile, unless one has it"
    )
    group.add_argument("--batch", type=int, default=1, metavar="N", help="sequences that advance together")
    group.add_argument("--context", type=int, metavar="N", help="tokens in the cache of each (default: 192)")
    group.add_argument(
        "--format", type=format_named, choices=STORED_FORMATS, default="f16", help="how weights are stored"
    )
    group.add_argument("--kv-format", type=format_named, choices=FORMATS, default="f16", help="how KV is stored")
    group.add_argument(
        "--storage", metavar="DIR", action="append", type=Path,
        help="a folder that weights may come from, whose disk is read at random places; once each (default without"
        " --model: that of the records)",
    )  # fmt: skip
    group.add_argument("--again", action="store_true", help="measure also what has been measured")


def question(args: argparse.Namespace) -> "LayerQuestion | None":
    """Return the question that the arguments ask, None without --model. Raises UsageError, and what a bad model
    raises."""
    if args.model is None:
        given = [name for name, default in _DEFAULTS.items() if name != "storage" and getattr(args, name) != default]
        if given:
            remedy = "name a model with --model, or leave it out"
            raise UsageError("is about the layer of a model", field=f"--{given[0].replace('_', '-')}", remedy=remedy)
        return None
    from helmsman.executor.profile.question import CONTEXT, LayerQuestion
    from helmsman.hwdb.load_model import check_context, load_model
    from helmsman.planner.checks.format_check import check_blocks

    model = load_model(args.model)
    context = min(CONTEXT, model.max_context) if args.context is None else args.context
    for name, value, most in (("--batch", args.batch, LARGEST), ("--context", context, 10**9)):
        if not 1 <= value <= most:
            raise UsageError(f"must be between 1 and {most}", field=name, value=value)
    check_context(model, context)
    check_blocks(model, args.format, args.kv_format)
    return LayerQuestion(model, args.batch, context, args.format, args.kv_format, tuple(args.storage or ()))


def known_elsewhere(table_place: "TablePlace", layer_question: "LayerQuestion") -> "Hardware | None":
    """Return the record with the table of the newest other record that has it, None when there is none (PARK-49)."""
    from helmsman.executor.profile.table_adoption import adopted
    from helmsman.hwdb.load_hardware import profiles
    from helmsman.profiles_folder import profiles_folder

    with_it = (adopted(table_place, other, layer_question) for other in profiles(profiles_folder()))
    return next((hardware for hardware in with_it if hardware is not None), None)


def newest() -> "Hardware | None":
    """Return the newest record of this machine, if there is one."""
    from helmsman.hwdb.load_hardware import THIS, load_hardware
    from helmsman.profiles_folder import profiles_folder

    try:
        return load_hardware(THIS, profiles_folder())
    except HardwareUnavailableError:
        return None


def measured(table_place: "TablePlace", layer_question: "LayerQuestion", date: str, quiet: bool) -> "Hardware":
    """Return the record with the table that was asked for."""
    from helmsman.cli.progress import progress
    from helmsman.executor.measuring.host_facts import host_facts
    from helmsman.executor.profile.run import TOOL
    from helmsman.executor.profile.table import STEPS, measure_table
    from helmsman.executor.profile.table_record import extended
    from helmsman.schemas.figures import Source

    with progress(STEPS, quiet) as tell:
        samples = measure_table(table_place, layer_question, tell)
    return extended(
        table_place, samples, Source(kind="measured", where=host_facts(table_place.machine).cpu, date=date, tool=TOOL)
    )
