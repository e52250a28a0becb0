"""`--batch max`: the largest batch that fits by the memory model (E-GUPTA-05)."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from helmsman.schemas.errors import InfeasibleError, UsageError

if TYPE_CHECKING:
    from helmsman.schemas.workload import Workload

MAX = "max"
LIMIT = 1 << 16
"""Sequences of a batch that are asked about: more than any memory of the catalogue has room for at a useful length."""

AnswerT = TypeVar("AnswerT")


def batch_size(text: str) -> int | str:
    """What --batch names: a number, or `max`. Raises UsageError."""
    if text == MAX:
        return MAX
    try:
        return int(text)
    except ValueError:
        remedy = f"write a number of sequences, or {MAX}"
        raise UsageError("not a number", field="--batch", value=text, remedy=remedy) from None


def check_alone(args: argparse.Namespace) -> None:
    """Raise UsageError for options that are about one batch, together with `--batch max`."""
    if args.batch == MAX and (args.strategy == "all" or args.pareto):
        remedy = "write N, or add --pareto N for larger batches as well"
        raise UsageError("every strategy has a largest batch of its own", field="--batch", value=MAX, remedy=remedy)
    for name in ("max_context", "table", "write_table"):
        if args.batch == MAX and getattr(args, name):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{flag} is of one batch", field="--batch", value=MAX, remedy=f"write N, or leave {flag} out"
            )


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
