"""Every number of the five papers beside what the product computes of it.

    python -m benchmarks.papers.facts --facts facts.json -o docs/facts.md
    python -m benchmarks.papers.facts --facts facts.json --paper HELM --json now.json --against before.json

About three minutes on one core, HELM alone a second. With --against, exit code 4 where a fact that was within its
tolerance no longer is."""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.papers.facts import of_gupta, of_helm, of_park, of_serving
from benchmarks.papers.facts.answer import Answer, Value
from benchmarks.papers.facts.page import PAPERS, Fact, Row, page, rows, unexplained
from helmsman.cli.app import run_command
from helmsman.cli.output import say, write_text
from helmsman.cli.parser import Parser
from helmsman.schemas.errors import BadInputError

_ANSWERS: Mapping[str, Callable[[], Mapping[str, Answer]]] = {
    "HELM": of_helm.answers,
    "PARK": of_park.answers,
    "GUPTA": of_gupta.answers,
    "APEX": of_serving.answers,
}
_WITH = {"NEO": "APEX"}
"""NEO's answers come with APEX's."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = Parser("facts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--facts", type=Path, required=True, metavar="FILE", help="the papers' numbers (JSON)")
    parser.add_argument("--paper", action="append", choices=PAPERS, help="may be given again; default: all")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="where the page goes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="ids, values and verdicts")
    parser.add_argument("--against", type=Path, metavar="FILE", help="what an earlier run wrote with --json")
    return run_command(parser, _execute, argv)


def _execute(args: argparse.Namespace) -> int:
    asked = tuple(args.paper or PAPERS)
    facts = [fact for fact in read_facts(args.facts) if fact.paper in asked]
    answers: dict[str, Answer] = {}
    for paper in dict.fromkeys(_WITH.get(name, name) for name in asked):
        answers |= _ANSWERS[paper]()
    found = list(rows(facts, answers))
    for name in unexplained(facts, answers):
        say(f"neither computed nor explained: {name}")
    if args.out:
        write_text(args.out, page(facts, answers))
    if args.json:
        write_text(args.json, json.dumps({row.fact.name: _recorded(row) for row in found}, indent=1) + "\n")
    lost = _lost(args.against, found) if args.against else []
    for row in lost:
        say(f"no longer within: {row.fact.name} {row.fact.what}: {row.fact.value}, ours {row.answer.ours}")
    say(f"{sum(row.holds for row in found)} of {len(found)} facts are within their tolerance")
    return 4 if lost else 0


def _recorded(row: Row) -> dict[str, Value | bool]:
    error = row.answer.error(row.fact.value)
    return {"published": row.fact.value, "ours": row.answer.ours, "error": error, "within": row.holds}


def _lost(path: Path, found: Sequence[Row]) -> list[Row]:
    """The facts that were within their tolerance in an earlier run."""
    before = json.loads(path.read_bytes())
    return [row for row in found if not row.holds and before.get(row.fact.name, {}).get("within", False)]


def read_facts(path: Path) -> list[Fact]:
    """The facts of a file, a list's members apart. Raises BadInputError."""
    try:
        return [fact for each in json.loads(path.read_bytes()) for fact in _members(each)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        remedy = "give a list of objects with id, doc, where, quantity, conditions, value, unit and role"
        raise BadInputError(f"not a file of facts: {error}", file=str(path), remedy=remedy) from None


def _members(given: Mapping[str, Any]) -> Iterator[Fact]:
    value, name = given["value"], given["id"]
    if isinstance(value, list):
        members = [(f"{name}.{place}", each) for place, each in enumerate(value)]
    elif isinstance(value, dict):
        members = [(f"{name}.{key}", each) for key, each in value.items()]
    else:
        members = [(name, value)]
    told = ", ".join(f"{key} {each}" for key, each in given["conditions"].items())
    what = f"{given['quantity']} ({told})" if told else str(given["quantity"])
    for member, each in members:
        yield Fact(member, given["doc"], given["where"], what, _value(each), given["unit"], given["role"])


def _value(given: object) -> Value:
    """A number as a float; of `4x60` the number after x."""
    if isinstance(given, (int, float)):
        return float(given)
    text = str(given).strip()
    tail = text.rpartition("x")[2]
    return float(tail) if "x" in text and tail.isdigit() else text


if __name__ == "__main__":
    raise SystemExit(main())
