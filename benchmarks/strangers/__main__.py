"""Answers a table of others' measurements of models with experts: `python -m benchmarks.strangers moe_open.csv`.

Prints every row with Helm's speeds and errors, or the reason why it is not answered; errors by phase; and pairs of
placements of which Helm names the faster one. A pair whose runs overlap is listed as noise and not counted."""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.strangers.answers import RowAnswer, answer
from benchmarks.strangers.pairs import pairs_of
from benchmarks.strangers.rows import read_rows


def main(argv: Sequence[str] | None = None) -> int:
    """Answer every row, and print what is known then."""
    parser = argparse.ArgumentParser(prog="strangers", description=__doc__)
    parser.add_argument("table", type=Path, help="rows of others' measurements, as CSV")
    args = parser.parse_args(argv)
    answers = []
    for row in read_rows(args.table):
        answers.append(answer(row))
        print(_line(answers[-1]), flush=True)
    _summarise(answers)
    return 0


def _line(given: RowAnswer) -> str:
    row = given.row
    name = f"{row.number:3} {row.model[:24]:24} {row.gpu[:20]:20} {row.settings[:40]:40}"
    if given.reason:
        return f"{name} not answered: {given.reason}"
    errors = dict(given.errors())
    said = (
        f"{phase} {row.speed(f'{phase}_tps'):g} said {getattr(given, phase):.3g} ({errors[phase]:+.0%})"
        for phase in errors
    )
    return f"{name} {'; '.join(said) or 'no speed is stated'}"


def _summarise(answers: Sequence[RowAnswer]) -> None:
    reasons = Counter(given.reason for given in answers if given.reason)
    print(f"\n{len(answers) - reasons.total()} of {len(answers)} rows are answered; the others by reason:")
    for reason, count in reasons.most_common():
        print(f"  {count:3}  {reason}")
    for phase in ("decode", "prefill"):
        errors = sorted(abs(dict(given.errors())[phase]) for given in answers if phase in dict(given.errors()))
        if errors:
            print(f"{phase}: {len(errors)} speeds, |error| median {median(errors):.0%}, worst {errors[-1]:.0%}")
    pairs = list(pairs_of(answers))
    print("\nwhich of two placements is faster:")
    for pair in pairs:
        print(f"  {pair}")
    for phase in ("decode", "prefill"):
        right = [pair.right for pair in pairs if pair.phase == phase and pair.apart]
        if right:
            print(f"{phase}: {sum(right)} of {len(right)} pairs right ({sum(right) / len(right):.0%})")


if __name__ == "__main__":
    sys.exit(main())
