"""What --batch and --batches may say; `--batch max`: the largest batch that fits by the memory model (E-GUPTA-05)."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from helmsman.schemas.errors import InfeasibleError, UsageError

if TYPE_CHECKING:
    from helmsman.schemas.workload import Workload

MAX, BEST = "max", "best"
LIMIT = 1 << 16
"""Sequences of a batch that are asked about: more than any memory of the catalogue has room for at a useful length."""

AnswerT = TypeVar("AnswerT")


def batch_size(text: str) -> int | str:
    """What --batch names: a number, `max` or `best`. Raises UsageError."""
    return text if text in (MAX, BEST) else _number("--batch", text, f"{MAX} or {BEST}")


def batch_count(text: str) -> int | str:
    """What --batches names: a number or `best`. Raises UsageError."""
    return text if text == BEST else _number("--batches", text, BEST)


def _number(flag: str, text: str, words: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError("not a number", field=flag, value=text, remedy=f"write a number, or {words}") from None


def check_alone(args: argparse.Namespace) -> None:
    """Raise UsageError for options that are about one batch, where it is chosen, and for a choice without a measure."""
    for field, word in (("--batch", args.batch), ("--batches", args.batches)):
        if word in (MAX, BEST):
            _check_choice(args, field, word)


def _check_choice(args: argparse.Namespace, field: str, word: str) -> None:
    if args.strategy == "all" or args.pareto is not None:
        remedy = "write N, or add --pareto N for larger batches as well"
        message = "every strategy has one of its own" if args.strategy == "all" else "--pareto draws several"
        raise UsageError(message, field=field, value=word, remedy=remedy)
    for name in ("max_context", "table", "write_table", *(("block",) if word == BEST else ())):
        if getattr(args, name):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} is of one batch", field=field, value=word, remedy=f"write N, or leave {flag} out")
    if word == BEST and args.objective != "throughput":
        remedy = "add --objective throughput"
        raise UsageError(f"more sequences never gain {args.objective}", field=field, value=word, remedy=remedy)
    if word == BEST and args.risk != "median":
        remedy = f"leave it out, or write N instead of {field} {word}"
        raise UsageError("batches are compared by medians", field="--risk", value=args.risk, remedy=remedy)
    if word == BEST and args.batch == MAX:
        remedy = f"use --batch {BEST}, or write a number of batches"
        raise UsageError("fewer batches have room for more sequences", field=field, value=word, remedy=remedy)


def largest(workload: "Workload", decide: "Callable[[Workload], AnswerT]") -> AnswerT:
    """What `decide` answers for the largest batch that fits.

    Begins with what a refusal of far too many says, where it says it. Raises InfeasibleError, as for a batch of one,
    when not even that fits."""
    from helmsman.planner.strategies.streaming.largest import doubling

    found: dict[int, AnswerT] = {}
    said: list[int] = []

    def fits(batch: int) -> bool:
        try:
            found[batch] = decide(workload.model_copy(update={"batch": batch}))
        except InfeasibleError as error:
            said.append(error.largest_batch or 0)
        return batch in found

    if fits(LIMIT):
        return found[LIMIT]
    most = doubling(LIMIT - 1, fits, known=said[0])
    return found[most] if most in found else decide(workload.model_copy(update={"batch": max(most, 1)}))
