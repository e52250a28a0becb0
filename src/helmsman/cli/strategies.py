"""The arguments that choose a strategy and its options, and the request they make."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import Field
from typing import TYPE_CHECKING, Any

from helmsman.cli.batches import chosen
from helmsman.cli.formats import add_format_arguments
from helmsman.cli.parser import Parser
from helmsman.planner.options import Option, options_of
from helmsman.planner.registry import ENGINES, FORMER, OWN, RECOMMENDED, Method, known, method, strategy_of
from helmsman.schemas.errors import UsageError
from helmsman.schemas.objective import DEFAULT_OBJECTIVE, OBJECTIVES

if TYPE_CHECKING:
    from helmsman.planner.request import PlanRequest
    from helmsman.schemas.hardware import Hardware
    from helmsman.schemas.model import Model
    from helmsman.schemas.workload import Workload

ALL = "all"
"""The value of --strategy for every method in one table."""


class _Names:
    """The names that --strategy takes: Helm's own methods, and those of other packages, which are looked for only where
    a name is none of Helm's."""

    def __iter__(self) -> Iterator[str]:
        return iter((RECOMMENDED, *OWN, ALL))

    def __contains__(self, name: object) -> bool:
        return name in tuple(self) or (isinstance(name, str) and known(name))


def strategy_named(arguments: Sequence[str]) -> str | None:
    """Return the strategy that a command line names, last: its options are the ones that the command has. None where a
    completion script is asked for, which is of all."""
    if any(word.startswith("--completion") for word in arguments):
        return None
    named, engine = _last(arguments, "--strategy"), _last(arguments, "--engine")
    if named in (None, RECOMMENDED) and engine in ENGINES:
        return ENGINES[engine]
    return named if named is not None and named in _Names() else RECOMMENDED


def _last(arguments: Sequence[str], flag: str) -> str | None:
    """Return the value that a command line gives a flag, last; None where it gives none."""
    following = zip(arguments, [*arguments[1:], ""], strict=False)
    values = [
        after if word == flag else word.removeprefix(f"{flag}=")
        for word, after in following
        if word == flag or word.startswith(f"{flag}=")
    ]
    return values[-1] if values else None


def engine_named(text: str) -> str:
    """Return the name of an engine whose speed is predicted. Raises UsageError for another, with what is known of
    it."""
    strategy_of(text, RECOMMENDED)
    return text


def add_engine_argument(group: "argparse._ActionsContainer") -> None:
    """--engine: whose speed is predicted."""
    what = f"whose speed is predicted, and whose placements are planned: {', '.join(ENGINES)} (default: ours)"
    group.add_argument("--engine", type=engine_named, metavar="NAME", help=what)


def add_strategy_arguments(parser: Parser, strategy: str | None) -> None:
    """--strategy, what all strategies share, and what `strategy` adds; None: what any of them adds."""
    group = parser.add_argument_group("strategy")
    which = (
        f"{RECOMMENDED}: the simplest of the plans of optimal, layer-split, llama-cpp and vllm that cannot be told "
        "apart from the fastest; a method by itself; or all in one table (default: best)"
    )
    group.add_argument("--strategy", choices=_Names(), default=RECOMMENDED, metavar="NAME", help=which)
    what = (
        "what is best: seconds of the whole request, of a decode step (latency), of the prompt (ttft), or output "
        "tokens/s of the whole workload (default: request)"
    )
    group.add_argument("--objective", choices=OBJECTIVES, default=DEFAULT_OBJECTIVE, help=what)
    add_format_arguments(group, native=True)
    methods = (RECOMMENDED, *OWN) if strategy in (None, ALL) else (strategy,)
    if strategy is None or strategy == ALL:
        own = parser.add_argument_group("options of every strategy")
    else:
        own = parser.add_argument_group(f"options of {strategy}", method(strategy).summary)
    added = set[str]()
    for option, about in (pair for name in methods if name is not None for pair in with_flags(method(name))):
        if option.name not in added:
            added.add(option.name)
            _add(own, option, about)
    parser.foreign = lambda flag: _foreign(flag, strategy or RECOMMENDED)


def with_flags(of: Method[Any]) -> "Iterator[tuple[Field[Any], Option]]":
    """Yield the options of a strategy that commands have flags for."""
    return ((option, known) for option, known in options_of(of.options) if known.offered and known.flag)


def _add(group: "argparse._ArgumentGroup", option: "Field[Any]", known: Option) -> None:
    flag = flag_of(option.name)
    if isinstance(option.default, bool):
        group.add_argument(flag, action="store_true", help=known.help)
        return
    choices = {"choices": known.choices} if known.choices else {"metavar": known.metavar}
    group.add_argument(flag, default=option.default, type=known.parse, help=known.help, **choices)


def flag_of(name: str) -> str:
    """Return the flag of an option."""
    return f"--{name.replace('_', '-')}"


def _foreign(flag: str, strategy: str) -> UsageError | None:
    """Return the error for a flag of another strategy, which is not ignored; None for one that no strategy has."""
    options = (option.name for name in (RECOMMENDED, *OWN) for option, _ in with_flags(method(name)))
    if flag not in map(flag_of, options):
        return None
    return UsageError(
        f"does not go with --strategy {strategy}", field=flag, remedy="leave it out, or use another strategy"
    )


def request_of(
    args: argparse.Namespace,
    model: "Model",
    hardware: "Hardware",
    workload: "Workload",
) -> "PlanRequest[Any]":
    """Return the request that the arguments make; what several strategies are asked comes beside it (`comparison`)."""
    from helmsman.planner.file_formats import formats_for
    from helmsman.planner.machine import is_own, without_loopback
    from helmsman.planner.request import PlanRequest

    engine = getattr(args, "engine", None)
    strategy = strategy_of(engine, args.strategy)
    weights, formats = formats_for(args.format, args.model, model, hardware, engine, strategy)
    name = RECOMMENDED if strategy == ALL else FORMER.get(strategy, strategy)
    of = method(name)
    return PlanRequest(
        model,
        hardware if is_own(engine) else without_loopback(hardware),
        workload,
        name,
        of.options(**{option.name: getattr(args, option.name) for option, _ in with_flags(of)}),
        objective=args.objective,
        weights=weights,
        kv=args.kv_format,
        formats=formats,
        batch=chosen(args.batch),
        batches="best" if chosen(getattr(args, "batches", 1)) else None,
    )
