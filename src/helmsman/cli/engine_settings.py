"""`--emit` and `--from`: plans as settings of other engines, and settings that people have, predicted."""

import argparse
import sys
from collections.abc import Iterator
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from helmsman.cli.output import emit
from helmsman.cli.parser import Parser
from helmsman.schemas.engine_names import ENGINES
from helmsman.schemas.errors import UsageError

if TYPE_CHECKING:
    from helmsman.planner.decision import Decision
    from helmsman.planner.request import PlanRequest
    from helmsman.schemas.comparison import Planned
    from helmsman.schemas.engine_settings import EngineSettings, SettingsReading

_FROM_STANDARD_INPUT = "-"
_MOST = 2**20
"""Characters of standard input that are read."""
_INDENT, _WIDTH = 13, 100
"""Columns before what a line says, and of what is printed."""


def add_settings_arguments(parser: Parser) -> None:
    """--emit and --from."""
    group = parser.add_argument_group("other engines")
    what = "print an engine's command or file for the plan; keep it with > FILE (-o: a JSON document)"
    group.add_argument("--emit", choices=ENGINES, metavar="ENGINE", help=what)
    given = "predict settings that you have: a command, a file, the address of a llama-server, or - (standard input)"
    group.add_argument("--from", dest="settings", metavar="FILE|COMMAND|URL", help=given)


def check_settings(args: argparse.Namespace, compares: bool) -> None:
    """Raise UsageError for either beside what has no single plan, and for both."""
    for flag, given in (("--emit", args.emit), ("--from", args.settings)):
        if given is None:
            continue
        if args.emit and args.settings:
            raise UsageError("does not go with --from", field="--emit", remedy="run the command once for each")
        if compares or args.max_context:
            raise UsageError(
                "is of one plan", field=flag, remedy="name one strategy, without --pareto or --max-context"
            )
        if args.plot or getattr(args, "explain", False):
            raise UsageError("prints settings alone", field=flag, remedy="leave --plot and --explain out")


def show_emitted(args: argparse.Namespace, decision: "Decision", request: "PlanRequest[Any]") -> None:
    """Print a plan's settings, and on standard error what they cannot say and what that costs."""
    from helmsman.analysis.ask_settings import settings_of

    content = settings_of(decision.plan, args.emit, request)
    if not args.quiet:
        for line in settings_lines(content):
            print(f"helm-plan: {args.in_flags(line)}", file=sys.stderr)
    emit(args, content.to_json(), lambda: content.text.rstrip("\n"))


def settings_lines(content: "EngineSettings") -> Iterator[str]:
    """Yield lines about what is lost."""
    for difference in content.differences:
        yield f"warning: {content.engine} cannot say: {difference.what}; instead {difference.instead}"
    if content.unpriced is not None:
        yield f"warning: these settings are not predicted: {content.unpriced}"
    elif content.nearest is not None and content.nearest.label != content.plan.label:
        cost = content.nearest.speed.request.mid / content.plan.speed.request.mid - 1
        yield f"note: predicted with these settings: {_rate(content.nearest)}"
        yield f"note: predicted for the plan: {_rate(content.plan)}; {_cost(cost)}"


def _cost(cost: float) -> str:
    if abs(cost) < 0.005:
        return "nothing is lost"
    return f"the settings take {abs(cost):.0%} {'more' if cost > 0 else 'less'} for the request".replace("%", " %")


def given_settings(args: argparse.Namespace) -> str:
    """Return the text of the settings that --from names. Raises what `settings_text` raises."""
    from helmsman.planner.settings.registry import settings_in
    from helmsman.settings_text import settings_text

    if args.settings == _FROM_STANDARD_INPUT:
        return settings_in(sys.stdin.read(_MOST))
    return settings_text(args.settings)


def show_reading(args: argparse.Namespace, text: str, request: "PlanRequest[Any]", stated: str | None) -> None:
    """Print the prediction for the settings in `text` beside Helm's plan; `stated`: the format of weights that the
    request has from them."""
    from helmsman.analysis.ask_settings import reading_of

    reading = reading_of(text, request, stated)
    emit(args, reading.to_json(), lambda: args.in_flags(_table(reading)))


def _table(reading: "SettingsReading") -> str:
    mine, best = _mid(reading.yours), _mid(reading.best)
    lines = [f"yours: {mine}, Helm's: {best} tokens/s, because {reading.because}", ""]
    rows = [
        ("yours", f"{_rate(reading.yours)}: {reading.yours.label}"),
        ("Helm's", f"{_rate(reading.best)}: {_short(reading)}"),
        ("read", ", ".join(reading.placed) or "nothing that decides where anything is"),
        *(("assumed", text) for text in reading.assumed),
        ("not priced", ", ".join(reading.unpriced)),
        ("no effect", ", ".join(reading.idle)),
        ("engine", f"{reading.engine} {reading.version}"),
    ]
    lines += [f"{name:<{_INDENT}}{text}" for name, text in rows if text]
    return "\n".join("\n".join(_wrapped(line)) for line in lines)


def _wrapped(line: str) -> list[str]:
    return wrap(line, _WIDTH, subsequent_indent=" " * _INDENT, break_long_words=False, break_on_hyphens=False) or [""]


def _short(reading: "SettingsReading") -> str:
    label = reading.best.label
    return label if "[" not in label else reading.best_strategy


def _mid(planned: "Planned") -> str:
    from helmsman.schemas.units import format_number

    return format_number(planned.speed.decode_rate.mid, 3)


def _rate(planned: "Planned") -> str:
    from helmsman.schemas.units import format_number, format_seconds

    rate = planned.speed.decode_rate
    span = f"{format_number(rate.low, 3)} .. {format_number(rate.high, 3)}"
    return f"{format_number(rate.mid, 3)} tokens/s [{span}], first token {format_seconds(planned.speed.ttft.mid)}"
