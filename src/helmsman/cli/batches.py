"""The values of --batch and --batches."""

import argparse
from typing import TYPE_CHECKING

from helmsman.schemas.errors import UsageError

if TYPE_CHECKING:
    from helmsman.planner.request import BatchChoice

MAX = "max"
BEST = "best"


def batch_size(text: str) -> int | str:
    """Return the batch that --batch names: a number, `max` or `best`. Raises UsageError."""
    return text if text in (MAX, BEST) else _number("--batch", text, f"{MAX} or {BEST}")


def batch_count(text: str) -> int | str:
    """Return the number that --batches names: a number or `best`. Raises UsageError."""
    return text if text == BEST else _number("--batches", text, BEST)


def chosen(value: int | str) -> "BatchChoice | None":
    """How a number is to be chosen; None where it is given."""
    return "max" if value == MAX else "best" if value == BEST else None


def _number(flag: str, text: str, words: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError("not a number", field=flag, value=text, remedy=f"write a number, or {words}") from None


def check_alone(args: argparse.Namespace) -> None:
    """Raise UsageError for a batch that is chosen, where several plans are asked for or the longest context."""
    for field, word in (("--batch", args.batch), ("--batches", args.batches)):
        if chosen(word) is None:
            continue
        if args.strategy == "all" or args.pareto is not None:
            remedy = "write N, or add --pareto N for larger batches as well"
            message = "every strategy has one of its own" if args.strategy == "all" else "--pareto draws several"
            raise UsageError(message, field=field, value=word, remedy=remedy)
        if args.max_context:
            remedy = "write N, or leave --max-context out"
            raise UsageError("--max-context is of one batch", field=field, value=word, remedy=remedy)
