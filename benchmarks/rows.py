"""Rows of results: shown as they come, kept as JSON."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def show(rows: "Iterable[DataclassInstance]", file: Path | None) -> None:
    """Print every row when it is known; write all of them to `file`, if there is one."""
    shown = []
    for row in rows:
        print(row, flush=True)
        shown.append(row)
    if file is not None:
        file.write_text(json.dumps([asdict(row) for row in shown], indent=1) + "\n")
