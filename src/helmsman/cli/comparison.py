"""`--strategy all` and `--pareto`: what several strategies would do with one question, and with larger batches."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from helmsman.cli.app import Parser, emit, say
from helmsman.cli.asked import ALL, Asked, defaults
from helmsman.cli.progress import progress
from helmsman.schemas.errors import InfeasibleError, UsageError

if TYPE_CHECKING:
    from helmsman.analysis.comparison import Answer
    from helmsman.analysis.front import Found
    from helmsman.scheduler.iteration import Phase
    from helmsman.schemas.comparison import Comparison, Limit, Point
    from helmsman.schemas.hardware import Hardware
    from helmsman.schemas.model import Model
    from helmsman.schemas.objective import Objective
    from helmsman.schemas.workload import Workload

Done = TypeVar("Done")

SHARED = ("compress", "home", "percent", "kv_rule", "same_software")
"""Options of several strategies that go with all of them: those that do not have one do without."""

_ONE_BATCH = ("block", "table", "write_table", "explain")
"""Options that are about one batch, or choose it."""
MOST_SEQUENCES = 2**16


def add_comparison_arguments(parser: Parser) -> None:
    """--pareto."""
    text = "plans for --batch sequences, twice as many and so on, N at most or as many as fit: latency against tokens/s"
    parser.add_argument("--pareto", type=int, nargs="?", const=MOST_SEQUENCES, metavar="N", help=text)


def compares(args: argparse.Namespace) -> bool:
    """Whether several plans are asked for."""
    return args.strategy == ALL or args.pareto is not None


def compare(
    args: argparse.Namespace, model: "Model", hardware: "Hardware", workload: "Workload"
) -> "tuple[Comparison, Mapping[str, float]]":
    """The comparison, and seconds that each strategy took. Raises UsageError for options that are not for this."""
    from helmsman.analysis.comparison import misused, ranked
    from helmsman.schemas.comparison import Comparison
    from helmsman.schemas.read import digest

    _check(args)
    asked, took = Asked(args, model, hardware, workload), dict[str, float]()
    answers = _answers(asked, took)
    _refuse(args, answers, misused(answers, asked.given))
    objective: Objective = args.objective
    found = Comparison(
        model=model.name,
        model_sha256=digest(model),
        hardware=hardware.name,
        hardware_sha256=digest(hardware),
        workload=workload,
        weights=args.format,
        kv=args.kv_format,
        objective=objective,
        options=asked.given,
        same_software=args.strategy == ALL or args.same_software,
        rows=ranked(answers, objective, _limits(args)),
        points=_points(asked, answers, took) if args.pareto is not None else (),
    )
    return found, took


def show_comparison(args: argparse.Namespace, found: "Comparison", took: Mapping[str, float], drawn: str) -> None:
    """Print and write it. Raises InfeasibleError, after the table, when nothing fits, or keeps the limits."""
    from helmsman.analysis.comparison import nearest
    from helmsman.analysis.comparison_table import table

    kept = any(row.planned and not row.misses for row in found.rows)
    cost = "\n\nseconds      " + ", ".join(f"{name} {each:.2f}" for name, each in took.items()) if args.verbose else ""
    if kept:
        emit(args, found.to_json(), lambda: table(found) + cost + drawn)
        return
    if not (args.json or args.quiet):
        say(table(found) + cost)
    if any(row.planned for row in found.rows):
        remedy = next((row.remedy for row in found.rows if row.strategy == "optimal" and row.remedy), None)
        text = f"no strategy's plan keeps {found.options['slo']}"
        raise InfeasibleError(text, field="--slo", remedy=remedy or "allow more time")
    least = nearest(found.rows)
    remedy = f"{least.strategy}: {least.remedy}" if least else "use another machine or another --strategy"
    lacks = least.lacks if least else None
    raise InfeasibleError(f"no strategy fits {found.model} on {found.hardware}", remedy=remedy, lacks=lacks)


def _limits(args: argparse.Namespace) -> "dict[Limit, float]":
    """Of --slo, by what is limited."""
    from helmsman.cli.optimum import limits_of

    names: dict[Phase, Limit] = {"prefill": "ttft", "decode": "tpot"}
    return {names[phase]: seconds for phase, seconds in limits_of(args.slo).items()}


def _check(args: argparse.Namespace) -> None:
    """Refuse options that single strategies have, and what is no number of sequences."""
    if args.pareto is not None and not args.batch <= args.pareto <= MOST_SEQUENCES:
        remedy = f"use --batch ({args.batch}) or more, at most {MOST_SEQUENCES}"
        raise UsageError("not a number of sequences", field="--pareto", value=args.pareto, remedy=remedy)
    allowed = (*SHARED, "slo") if args.strategy == ALL else tuple(name for name in defaults() if name not in _ONE_BATCH)
    for name, default in defaults().items():
        if name not in allowed and getattr(args, name) != default:
            flag, remedy = f"--{name.replace('_', '-')}", "leave it out, or ask one strategy without --pareto"
            raise UsageError("does not go with several plans", field=flag, remedy=remedy)


def _refuse(args: argparse.Namespace, answers: "list[Answer]", wrong: UsageError | None) -> None:
    """Raise what a single strategy says, or all that have an option say against it."""
    alone = answers[0].given if args.strategy != ALL else wrong
    if isinstance(alone, Exception):
        raise alone


def _answers(asked: Asked, took: dict[str, float]) -> "list[Answer]":
    from helmsman.analysis.comparison import answer

    return _each(
        asked, asked.strategies, took, lambda name: answer(name, lambda: asked.decision(name), asked.ignored(name))
    )


def _points(asked: Asked, answers: "list[Answer]", took: dict[str, float]) -> "tuple[Point, ...]":
    """Larger batches of the strategies that have a plan, asked for the shortest request: that is what is drawn."""
    from helmsman.analysis.front import batches, points
    from helmsman.schemas.plan import Plan

    first, most, limits = asked.args.batch, asked.args.pareto, _limits(asked.args)
    plans = {each.strategy: each.given for each in answers if isinstance(each.given, Plan)}
    whole, same = asked.for_requests(), asked.args.objective in ("request", "throughput")

    def larger(name: str) -> "list[Found]":
        return list(
            batches(
                name,
                lambda batch: plans[name] if same and batch == first else whole.decision(name, batch).plan,
                first,
                most,
            )
        )

    return points(chain.from_iterable(_each(asked, tuple(plans), took, larger)), limits)


def _each(asked: Asked, names: Sequence[str], took: dict[str, float], work: Callable[[str], Done]) -> list[Done]:
    """What `work` makes of each name; adds the seconds that it took."""
    done = []
    with progress(len(names), asked.args.quiet or asked.args.json) as tell:
        for name in names:
            tell(name)
            began = perf_counter()
            done.append(work(name))
            took[name] = took.get(name, 0.0) + perf_counter() - began
    return done
