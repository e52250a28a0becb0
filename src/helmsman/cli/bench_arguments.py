"""The tests of helm-bench: prompts, decode steps and depths, as llama-bench takes them."""

from helmsman.cli.parser import Parser
from helmsman.schemas.errors import UsageError

MOST = 2**20
"""Tokens of a test at most."""


def add_test_arguments(parser: Parser) -> None:
    """-p, -n, -d and -r."""
    group = parser.add_argument_group("tests")
    group.add_argument("-p", "--n-prompt", type=counts, default=(512,), metavar="N,..", help="prompts (default 512)")
    group.add_argument("-n", "--n-gen", type=counts, default=(128,), metavar="N,..", help="decode steps (default 128)")
    group.add_argument("-d", "--n-depth", type=counts, default=(0,), metavar="N,..", help="cached before (default 0)")
    group.add_argument("-r", "--repetitions", type=int, default=5, metavar="N", help="of every test (default 5)")


def counts(text: str) -> tuple[int, ...]:
    """Whole numbers between commas. Raises UsageError."""
    result = tuple(int(word) if word.isdigit() else -1 for word in text.split(","))
    if not all(0 <= value <= MOST for value in result):
        raise UsageError(f"whole numbers up to {MOST} between commas are expected", value=text)
    return result
