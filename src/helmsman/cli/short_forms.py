"""`helm-plan` for what to run and what to buy: the best format (`--format best`), other machines (`--compare-hw`) and
single upgrades (`--upgrade`) of one question, answered as studies are."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from helmsman.cli.formats import BEST
from helmsman.cli.output import emit, say
from helmsman.cli.parser import Parser
from helmsman.cli.questions import local_engine, question_bar
from helmsman.cli.strategies import ALL, with_flags
from helmsman.planner.registry import method, strategy_of
from helmsman.schemas.errors import InfeasibleError, TargetMissedError, UsageError
from helmsman.studies.fitting.purposes import PURPOSES, purpose_named

if TYPE_CHECKING:
    from helmsman.schemas.fit_report import FitReport, FitRow
    from helmsman.schemas.hardware import Hardware
    from helmsman.schemas.plan_question import Value

_FOR = "--for"


def add_short_form_arguments(parser: Parser, purpose: str | None = None) -> None:
    """--for, --floor, --compare-hw, --upgrade and prices; `purpose`: the one whose lengths are defaults."""
    group = parser.add_argument_group("what to run, what to buy")
    purposes = "what for: prompt and output tokens, batch and --floor (default: the options' own, and chat's --floor)"
    group.add_argument(_FOR, dest="purpose", choices=tuple(PURPOSES), help=purposes)
    floor = ", ".join(f"{of.floor:g} for {name}" for name, of in PURPOSES.items())
    least = f"tokens/s that --format best is to reach (default: {floor})"
    group.add_argument("--floor", type=float, metavar="RATE", help=least)
    machines = "ask other machines too, by their names or records, with commas between"
    group.add_argument("--compare-hw", metavar="NAME,..", help=machines)
    upgrade = "ask the machine with each single upgrade too: EDIT as of helm-whatif --change, by default all that apply"
    group.add_argument("--upgrade", action="append", nargs="?", const="", metavar="EDIT", help=upgrade)
    prices = "of a machine or an upgrade (repeatable)"
    group.add_argument("--price", action="append", default=[], metavar="NAME=P", help=prices)
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="processes for many questions (default: one for each CPU)"
    )
    if purpose is not None:
        of = purpose_named(purpose)
        parser.set_defaults(prompt_tokens=of.prompt_tokens, output_tokens=of.output_tokens, batch=of.batch)


def purpose_in(arguments: list[str]) -> str | None:
    """Return the purpose that a command line names, whose lengths become defaults; None for none, or one that there is
    not."""
    following = zip(arguments, [*arguments[1:], ""], strict=False)
    named = [after if word == _FOR else word.partition("=")[2] for word, after in following if _is_for(word)]
    return named[-1] if named and named[-1] in PURPOSES else None


def _is_for(word: str) -> bool:
    return word == _FOR or word.startswith(f"{_FOR}=")


def asks_for_studies(args: argparse.Namespace) -> bool:
    """Return whether other machines or upgrades are asked about."""
    return args.compare_hw is not None or args.upgrade is not None


def check_short_forms(args: argparse.Namespace) -> None:
    """Raise UsageError for options that do not go with questions about formats, machines and upgrades."""
    flags = {"--format best": args.format == BEST, "--compare-hw": args.compare_hw, "--upgrade": args.upgrade}
    flag = next((flag for flag, given in flags.items() if given), None)
    if flag is None:
        for name, value in (("--floor", args.floor), ("--price", args.price)):
            if value not in (None, []):
                remedy = "add --format best" if name == "--floor" else "add --compare-hw or --upgrade"
                raise UsageError("of no use here", field=name, value=value, remedy=remedy)
        return
    others = {
        "--strategy all": args.strategy == ALL, "--pareto": args.pareto is not None, "--draft": args.draft is not None,
        "--max-context": args.max_context, "--routing": args.routing is not None, "--batches": args.batches != 1,
        "--prefix-tokens": args.prefix_tokens, "--batch": isinstance(args.batch, str),
        "--from": args.settings is not None,
    }  # fmt: skip
    other = next((name for name, given in others.items() if given), None)
    if other is None and flag != "--format best":
        other = "--plot" if args.plot else "--emit" if args.emit else None
    if other is not None:
        raise UsageError(f"does not go with {flag}", field=other, remedy="leave one of them out")


def best_format(args: argparse.Namespace, hardware: "Hardware") -> "FitReport":
    """Return the table of a model's formats on a machine, with the best of them. Raises UsageError."""
    from helmsman.studies.fitting.fit import FitLengths, FitQuestion, fitted

    question = FitQuestion(
        hardware,
        (args.model,),
        purpose_named(args.purpose or "chat"),
        args.floor,
        (FitLengths(args.prompt_tokens, args.output_tokens, args.context),),
        kv_format=args.kv_format,
        strategy=strategy_of(args.engine, args.strategy),
        options=dict(_options(args)),
        objective=args.objective,
        batch=args.batch,
        whole=True,
        engine=args.engine,
    )
    return fitted(question, local_engine(args.jobs), question_bar(args))


def chosen_row(args: argparse.Namespace, report: "FitReport") -> "FitRow":
    """Return the row of the best format. Raises InfeasibleError and TargetMissedError, after the table, where none fits
    or is fast enough."""
    from helmsman.studies.fitting.words import formats_text

    row = report.rows[report.best[0]]
    if row.meets_floor:
        return row
    if args.json:
        say(report.to_json())
    elif not args.quiet:
        say(formats_text(report))
    if row.decode_rate is None:
        error = InfeasibleError(f"no format of {row.model} fits {report.machine}", remedy=row.missing)
        raise error.after_report()
    problem = f"no format of {row.model} makes {report.floor:g} tokens/s on {report.machine}"
    remedy = f"{row.format} makes {row.decode_rate:.3g}: use a lower --floor, a smaller model, or see --upgrade"
    raise TargetMissedError(problem, field="--floor", remedy=remedy).after_report()


def show_study(args: argparse.Namespace, hardware: "Hardware | None", fmt: str | None) -> None:
    """Ask the question of other machines or with upgrades; print and write the report. Raises UsageError."""
    from helmsman.studies.report.text import text
    from helmsman.studies.short_forms import ShortForm, buy_first, short_report

    given = dict(_options(args))
    options = {strategy_of(args.engine, args.strategy): given} if given else {}
    content = {
        "name": args.model, "models": [args.model], "strategies": [args.strategy], "options": options,
        "engines": [] if args.engine is None else [args.engine],
        "formats": [] if fmt is None else [fmt], "kv_formats": [args.kv_format], "objectives": [args.objective],
        "prompt_tokens": [args.prompt_tokens], "output_tokens": [args.output_tokens], "batches": [args.batch],
        "contexts": [] if args.context is None else [args.context],
    }  # fmt: skip
    names = [name.strip() for name in (args.compare_hw or "").split(",") if name.strip()]
    offered = args.upgrade is not None and not any(args.upgrade)
    changes = None if offered else [edit for edit in args.upgrade or [] if edit]
    form = ShortForm(content, hardware, names, changes, dict(map(_priced, args.price)))
    report = short_report(form, local_engine(args.jobs), question_bar(args))
    emit(args, report.to_json(), lambda: f"{text(report)}\n\n{buy_first(report)}")


def _options(args: argparse.Namespace) -> "Iterator[tuple[str, Value]]":
    """Yield the options of the strategy that plans, but its defaults, as a study has them. Raises UsageError for one
    that it cannot have."""
    for option, _ in with_flags(method(strategy_of(args.engine, args.strategy))):
        value = getattr(args, option.name)
        if value == option.default:
            continue
        if isinstance(value, Path):
            value = str(value)
        if not isinstance(value, str | bool | int | float):
            flag = f"--{option.name.replace('_', '-')}"
            raise UsageError("does not go with several questions", field=flag, remedy="leave it out")
        yield option.name, value


def _priced(entry: str) -> tuple[str, float]:
    name, _, number = entry.rpartition("=")
    try:
        return name, float(number)
    except ValueError:
        remedy = "write --price 'NAME=NUMBER'"
        raise UsageError("not a name and a number", field="--price", value=entry, remedy=remedy) from None


def with_format(args: argparse.Namespace, fmt: str) -> argparse.Namespace:
    """Return the arguments with another --format."""
    return argparse.Namespace(**{**vars(args), "format": fmt})
