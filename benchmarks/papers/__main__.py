"""Figures of NEO, APEX, HELM, Park & Egger and Gupta & Dwarkadas, drawn again from one set of hardware records.

    python -m benchmarks.papers --list
    python -m benchmarks.papers neo-9 apex-7 --out pictures --traces traces

Nothing is fitted to a figure. Each becomes NAME.csv (what is drawn), NAME-published.csv (printed numbers beside ours)
and a picture; --traces is a folder with the public traces that the papers replayed."""

import argparse
import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.papers.catalogue import figures
from benchmarks.papers.figure import Figure, Result, Row, Traces
from benchmarks.park_egger.study import lines
from helmsman.analysis.plots.picture import image
from helmsman.cli.app import run_command
from helmsman.cli.output import say, write_bytes, write_text
from helmsman.cli.parser import Parser
from helmsman.schemas.errors import UsageError, unwritable


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = Parser("papers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", nargs="*", metavar="FIGURE", help="as --list names them; a paper means all of its")
    parser.add_argument("--out", type=Path, default=Path("papers"), metavar="DIR", help="where files go")
    parser.add_argument("--traces", type=Path, metavar="DIR", help="files of requests; default: made up lengths")
    parser.add_argument("--list", action="store_true", help="say which figures there are")
    return run_command(parser, _execute, argv)


def _execute(args: argparse.Namespace) -> int:
    known = figures()
    if args.list:
        say("\n".join(lines([_entry(each) for each in known.values()])))
        return 0
    asked = [each for name in args.figure for each in named(name, known)]
    if not asked:
        raise UsageError("no figure is named", field="FIGURE", remedy="name one, or say --list")
    for each in asked:
        _redraw(each, Traces(args.traces), args.out)
    return 0


def named(name: str, known: Mapping[str, Figure]) -> list[Figure]:
    """The figure called `name`, or all of the paper called so. Raises UsageError."""
    found = [each for each in known.values() if each.name == name or each.name.startswith(f"{name}-")]
    if not found:
        remedy = f"choose one of {', '.join(known)}"
        raise UsageError("there is no such figure", field="FIGURE", value=name, remedy=remedy)
    return found


def _entry(figure: Figure) -> Row:
    return {"figure": figure.name, "shows": figure.title, "traces": ", ".join(figure.traces) or "-"}


def _redraw(figure: Figure, traces: Traces, folder: Path) -> None:
    """Make a figure, write its files, and print what was published beside ours."""
    made = figure.make(traces)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(error, str(folder)) from None
    write_text(folder / f"{figure.name}.csv", table(made.rows))
    if made.compared:
        write_text(folder / f"{figure.name}-published.csv", table(made.compared))
    for name, picture in made.pictures:
        write_bytes(folder / f"{name}.png", image(picture, "png"))
    say(_told(figure, made))


def _told(figure: Figure, made: Result) -> str:
    notes = [f"- {note}" for note in made.notes]
    return "\n".join([f"== {figure.name}: {figure.title}", *lines([_shown(row) for row in made.compared]), *notes, ""])


def _shown(row: Row) -> Row:
    """One column for errors: relative ones in per cent, differences of percentages in points."""
    error, points = row["error"], row.get("points")
    text = f"{error:+.1%}" if isinstance(error, float) else f"{points:+.1f} pp" if isinstance(points, float) else "-"
    return {name: value for name, value in row.items() if name != "points"} | {"error": text}


def table(rows: Sequence[Row]) -> str:
    """Rows with the same keys as CSV; nothing where a value is missing."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


if __name__ == "__main__":
    raise SystemExit(main())
