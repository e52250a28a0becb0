"""The processes and the bar of commands that ask many questions at once."""

import argparse
import os
from typing import TYPE_CHECKING

from helmsman.cli.progress import bars
from helmsman.schemas.errors import UsageError

if TYPE_CHECKING:
    from helmsman.studies.answering.run import Told
    from helmsman.studies.answering.shards import Engine


def local_engine(jobs: int | None) -> "Engine":
    """Return what answers in so many processes, by default one for each CPU. Raises UsageError for fewer than one."""
    from helmsman.studies.answering.local import LocalEngine

    count = jobs if jobs is not None else _processors()
    if count < 1:
        raise UsageError("must be at least 1", field="--jobs", value=count)
    return LocalEngine(count)


def _processors() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def question_bar(args: argparse.Namespace) -> "Told":
    """Return a bar of the questions that have answers, on a terminal, with the time that is left."""
    hidden = True if args.quiet or args.json else None
    bar = bars()(total=0, unit="question", delay=1.0, disable=hidden, leave=False)

    def told(done: int, total: int) -> None:
        if total != bar.total:
            bar.reset(total)
            bar.initial = done
        bar.n = done
        bar.refresh()
        if done == total:
            bar.clear()

    return told
