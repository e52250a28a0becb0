"""`helm-fit`: which models can this machine run, in which format, how fast?"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from helmsman.cli.app import run_command
from helmsman.cli.machine import add_machine_arguments, machine, warn_of_disturbed
from helmsman.cli.output import emit
from helmsman.cli.parser import Parser, command_parser
from helmsman.cli.questions import local_engine, question_bar
from helmsman.cli.strategies import add_engine_argument
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.formats import KV_FORMATS, format_named
from helmsman.studies.fitting.purposes import PURPOSES


def build_parser() -> Parser:
    """Return the arguments of helm-fit."""
    parser = command_parser(
        "helm-fit",
        "Say which models a machine can run, in which format, how fast, and with which settings.",
        "helm-fit --hw rtx4060-laptop --models Qwen3-4B,Qwen3-8B,gpt-oss-20b",
    )
    add_machine_arguments(parser)
    group = parser.add_argument_group("models")
    models = "names, checkpoints or GGUF files, with commas between (default: all of the catalogue)"
    group.add_argument("--models", type=_names, metavar="NAME,..", help=models)
    add_purpose_arguments(group)
    contexts = "tokens of prompt and output together, with commas between (default: those of --for)"
    group.add_argument("--contexts", type=_counts, default=(), metavar="N,..", help=contexts)
    formats = "of weights, with commas between, each in a row of its own (default: the best of those worth a try)"
    group.add_argument("--formats", type=_formats, default=(), metavar="NAME,..", help=formats)
    kept = "how KV is stored (default f16)"
    group.add_argument("--kv-format", type=format_named, choices=KV_FORMATS, default="f16", help=kept)
    add_engine_argument(group)
    how = "how to plan (default: the engine's, else llama-cpp, with experts where its --fit puts them)"
    group.add_argument("--strategy", metavar="NAME", help=how)
    option = "of the strategy, as 'build_era=2025' (repeatable)"
    group.add_argument("--option", action="append", default=[], metavar="NAME=V", help=option)
    group.add_argument("--all", action="store_true", help="ask and show every format of every model")
    rows = "write all rows: CSV where FILE ends so, else Parquet"
    parser.add_argument("--rows", type=Path, metavar="FILE", help=rows)
    parser.add_argument("--jobs", type=int, metavar="N", help="processes that answer (default: one for each CPU)")
    return parser


def add_purpose_arguments(group: "argparse._ActionsContainer") -> None:
    """--for and --floor."""
    purposes = "what for: lengths, sequences together and the least speed (default: chat)"
    group.add_argument("--for", dest="purpose", choices=tuple(PURPOSES), default="chat", help=purposes)
    usual = ", ".join(f"{purpose.floor:g} for {name}" for name, purpose in PURPOSES.items())
    least = f"least speed in tokens/s (default: {usual})"
    group.add_argument("--floor", type=float, metavar="RATE", help=least)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_command(build_parser(), execute, argv)


def execute(args: argparse.Namespace) -> int:
    """Ask, print, write. Raises InfeasibleError, after the table, where nothing fits."""
    from helmsman.hwdb.load_model import catalogue_names
    from helmsman.schemas.fit_table import write_fit_rows
    from helmsman.schemas.write import whole_file
    from helmsman.studies.fitting.fit import FitQuestion, fitted, lengths_at, options_of, planning_strategy
    from helmsman.studies.fitting.purposes import purpose_named
    from helmsman.studies.fitting.words import fit_text

    hardware = machine(args)
    warn_of_disturbed(args, hardware)
    purpose = purpose_named(args.purpose)
    strategy = planning_strategy(args.engine, args.strategy)
    question = FitQuestion(
        hardware,
        args.models or tuple(catalogue_names()),
        purpose,
        args.floor,
        lengths_at(args.contexts, purpose),
        args.formats,
        args.kv_format,
        strategy,
        options_of(strategy, dict(map(_option, args.option))),
        whole=args.all or bool(args.formats),
        engine=args.engine,
    )
    report = fitted(question, local_engine(args.jobs), question_bar(args))
    if args.rows is not None:
        with whole_file(args.rows) as stream:
            write_fit_rows(report.rows, stream, args.rows.suffix)
    emit(args, report.to_json(), lambda: fit_text(report, args.all or bool(args.formats)))
    if not any(row.status == "fits" for row in report.rows):
        least = report.rows[report.best[0]]
        raise InfeasibleError(f"nothing fits; nearest is {least.model} in {least.format}", remedy=least.missing)
    return 0


def _option(text: str) -> tuple[str, Any]:
    from helmsman.studies.questions.flags import option_value

    name, _, value = text.partition("=")
    if not name or not value:
        raise UsageError("not an option with a value", field="--option", value=text, remedy="write NAME=VALUE")
    return name, option_value(value)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UsageError("no name", value=text, remedy="write names with commas between")
    return names


def _formats(text: str) -> tuple[str, ...]:
    from helmsman.schemas.formats import WEIGHTS_FORMATS
    from helmsman.schemas.near_names import did_you_mean

    names = tuple(format_named(name) for name in _names(text))
    known = (*WEIGHTS_FORMATS, "native")
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise UsageError("no such format", value=unknown, remedy=did_you_mean(unknown, known))
    return names


def _counts(text: str) -> tuple[int, ...]:
    names = _names(text)
    wrong = next((name for name in names if not name.isdecimal() or not 0 < int(name) < 10**9), None)
    if wrong is not None:
        raise UsageError("not a number of tokens", value=wrong, remedy="write for example 4096,32768")
    return tuple(map(int, names))
