"""How tokens are chosen, as arguments of commands that make some."""

import argparse
from typing import TYPE_CHECKING

from helmsman.cli.parser import Parser
from helmsman.schemas.errors import UsageError

if TYPE_CHECKING:
    from helmsman.executor.text.sampling import Sampling


def add_sampling_arguments(parser: Parser) -> None:
    """--temperature and what cuts the distribution, --seed, --stop."""
    group = parser.add_argument_group("sampling")
    group.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0 (default): the likeliest token")
    group.add_argument("--top-k", type=int, default=0, metavar="N", help="draw from the N likeliest (default 0: all)")
    share = "draw from the fewest tokens that make P of the probability (default 1)"
    group.add_argument("--top-p", type=float, default=1.0, metavar="P", help=share)
    least = "draw from tokens of at least P times the likeliest one's probability (default 0)"
    group.add_argument("--min-p", type=float, default=0.0, metavar="P", help=least)
    penalty = "divide the logits of tokens seen before by F (default 1)"
    group.add_argument("--repetition-penalty", type=float, default=1.0, metavar="F", help=penalty)
    group.add_argument("--seed", type=int, default=0, metavar="N", help="of what is drawn (default 0)")
    group.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end before TEXT; may be repeated")


def sampling_of(args: argparse.Namespace) -> "Sampling":
    """Return the sampling that the arguments ask for. Raises UsageError for what makes no sense."""
    from helmsman.executor.text.sampling import Sampling

    if not 0 <= args.seed < 2**64:
        raise UsageError("out of range", field="--seed", value=args.seed, remedy="use 0 to 2^64 - 1")
    if "" in args.stop:
        raise UsageError("an empty text is everywhere", field="--stop", remedy="give a text")
    return Sampling(args.temperature, args.top_k, args.top_p, args.min_p, args.repetition_penalty)
