"""`helm-whatif`: which machine, format or upgrade? Many questions at once, answered, kept and summed up."""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helmsman.cli.app import run_command
from helmsman.cli.output import emit, write_text
from helmsman.cli.parser import Parser, command_parser
from helmsman.cli.questions import local_engine, question_bar
from helmsman.schemas.errors import UsageError, unwritable

if TYPE_CHECKING:
    from helmsman.schemas.study import Study
    from helmsman.schemas.study_report import StudyReport
    from helmsman.studies.answering.shards import Engine

_MOST_UNCONFIRMED = 2000
"""The number of questions from which on a study is confirmed."""


def build_parser() -> Parser:
    """Return the arguments of helm-whatif."""
    from helmsman.studies.questions.flags import FLAGS

    parser = command_parser(
        "helm-whatif",
        "Ask many models, machines and settings at once: what fits, how fast, for how many users, at which cost.",
        "helm-whatif --model Qwen3-8B --hw rtx4060-laptop --hw rtx3060-5600x --strategy layer-split",
    )
    parser.add_argument(
        "study", nargs="?", type=Path, metavar="STUDY", help="a study (YAML or JSON); flags override it"
    )
    group = parser.add_argument_group("study (an option that is repeated is a list)")
    for flag in FLAGS:
        action = "append" if flag.repeated else "store"
        group.add_argument(flag.name, action=action, metavar=flag.shown, dest=flag.dest, help=flag.about)
    parser.add_argument("--rows", type=Path, metavar="FILE", help="write all rows (Parquet)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report as one page of HTML")
    parser.add_argument("--pictures", type=Path, metavar="DIR", help="write the pictures of the report (SVG) to DIR")
    store = "keep answers in DIR, and ask no question twice (default: beside STUDY, with the ending .answers)"
    parser.add_argument("--store", type=Path, metavar="DIR", help=store)
    parser.add_argument("--jobs", type=int, metavar="N", help="processes that answer (default: one for each CPU)")
    who = "who answers: processes of this machine, or a Ray cluster (default: local)"
    parser.add_argument("--workers", choices=("local", "ray"), default="local", help=who)
    parser.add_argument("--yes", action="store_true", help=f"ask more than {_MOST_UNCONFIRMED} questions unconfirmed")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_command(build_parser(), execute, argv)


def execute(args: argparse.Namespace) -> int:
    """Read, count, answer, print, write."""
    from helmsman.schemas.study_table import write_rows
    from helmsman.schemas.write import whole_file
    from helmsman.studies.answering.run import counted
    from helmsman.studies.answering.store import Store
    from helmsman.studies.ask import report_of, varied_questions
    from helmsman.studies.report.text import text

    study = _study(args)
    if args.pictures is not None:
        _make_folder(args.pictures)
    engine = _engine(args)
    folder = args.store or (None if args.study is None else args.study.with_suffix(".answers"))
    store = None if folder is None else Store(folder)
    with _named_in_file(args):
        grid = counted(study)
        _confirm(args, len(grid), varied_questions(study, grid))
        report = report_of(study, grid, engine, store, question_bar(args))
    if args.rows is not None:
        with whole_file(args.rows) as stream:
            write_rows(report.rows, stream)
    if args.html is not None:
        from helmsman.studies.report.page import page

        write_text(args.html, page(report))
    if args.pictures is not None:
        _write_pictures(args.pictures, report)
    emit(args, report.to_json(), lambda: build_parser().in_flags(text(report)))
    return 0


def _make_folder(folder: Path) -> None:
    """Make a folder where there is none. Raises UsageError for one that cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(error, str(folder)) from None


def _write_pictures(folder: Path, report: "StudyReport") -> None:
    """Write a report's pictures. Raises UsageError for a folder that cannot be written."""
    from helmsman.schemas.write import whole_file
    from helmsman.studies.report.page import picture_files

    for name, picture in picture_files(report):
        with whole_file(folder / name) as stream:
            stream.write(picture)


def _study(args: argparse.Namespace) -> "Study":
    """Return the study of the file, with what flags say instead. Raises UsageError for neither."""
    from helmsman.studies.questions.flags import FLAGS, overridden
    from helmsman.studies.questions.read_study import content_of, study_of

    given = {flag.dest: getattr(args, flag.dest) for flag in FLAGS if getattr(args, flag.dest) is not None}
    if args.study is None and not given:
        raise UsageError("no study", field="STUDY", remedy="name a file, or give --model and --hw")
    content = overridden({} if args.study is None else content_of(args.study), given)
    if args.study is None:
        _check_complete(content)
    return study_of(content, "study" if args.study is None else str(args.study))


def _check_complete(content: Mapping[str, Any]) -> None:
    """Raise UsageError for the flags that a study without a file lacks."""
    for field, remedy in (("models", "name a model"), ("machines", "name a machine, or `this`")):
        if field not in content:
            raise UsageError("required", field=field, remedy=remedy)
    if "serving" in content and "requests" not in content["serving"]:
        remedy = "say what is served, as synthetic:n=400,input=500,output=150"
        raise UsageError("required", field="serving.requests", remedy=remedy)


@contextmanager
def _named_in_file(args: argparse.Namespace) -> Iterator[None]:
    """Name the study's file in errors about a field that it says, and not a flag."""
    try:
        yield
    except UsageError as error:
        field = (error.field or "").replace(".", "_")
        if args.study is not None and field in vars(args) and getattr(args, field) is None:
            error.at(str(args.study))
        raise


def _engine(args: argparse.Namespace) -> "Engine":
    local = local_engine(args.jobs)
    if args.workers == "ray":
        from helmsman.studies.answering.on_ray import RayEngine

        return RayEngine()
    return local


def _confirm(args: argparse.Namespace, count: int, again: int) -> None:
    """Ask whether `count` questions are meant, and up to `again` more about what is uncertain. Raises UsageError where
    nobody answers, or says no."""
    if count + again <= _MOST_UNCONFIRMED or args.yes:
        return
    if sys.stdin.isatty() and sys.stderr.isatty():
        more = f", and up to {again} about what is uncertain" if again else ""
        print(f"{count} questions{more}; go on? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return
    raise UsageError("many questions", field="points", value=count + again, remedy="add --yes, or shorten the lists")
