"""Rows of a table of others' measurements: one machine, one placement, the speeds of prompts and of decode steps."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

COLUMNS = (
    "source", "model", "quant", "gpu", "cpu", "ram_type", "ram_bw_gbs", "engine", "settings", "context",
    "prompt_tokens", "gen_tokens", "prefill_tps", "decode_tps", "note", "vram_gb",
)  # fmt: skip
"""The columns that a table needs."""


Lack = Literal["model", "engine", "mode", "statement"]
"""model, engine: nothing here is called so; mode: what the engine was made to do has no plan here, such as several
accelerators that divide layers of a kind, or does not fit by what is predicted; statement: the source does not say the
machine, the format or the placement."""


class UnansweredError(Exception):
    """Raised with the reason why a row is not answered, and what is lacking."""

    def __init__(self, reason: str, lack: Lack = "statement") -> None:
        super().__init__(reason)
        self.lack = lack


@dataclass(frozen=True, slots=True)
class OpenRow:
    """A row, as its source has it; `number`: its place in the table, from 1 on."""

    number: int
    source: str
    model: str
    quant: str
    gpu: str
    cpu: str
    ram_type: str
    ram_bw_gbs: str
    engine: str
    settings: str
    context: str
    prompt_tokens: str
    gen_tokens: str
    prefill_tps: str
    decode_tps: str
    note: str
    vram_gb: str

    def count(self, column: str) -> int | None:
        """Return the whole number in a column; None where there is none."""
        text = str(getattr(self, column)).replace(",", "")
        return int(text) if text.isdecimal() else None

    def speed(self, column: str) -> float | None:
        """Return tokens/s in a column; None where there are none."""
        try:
            return float(getattr(self, column))
        except ValueError:
            return None


def read_rows(path: Path) -> tuple[OpenRow, ...]:
    """Return the rows of a table. Raises UnansweredError for one that lacks a column."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        missing = set(COLUMNS) - set(reader.fieldnames or ())
        if missing:
            raise UnansweredError(f"{path} has no column {sorted(missing)[0]}")
        rows = list[OpenRow]()
        for number, line in enumerate(reader, 1):
            row = OpenRow(number, **{column: (line[column] or "").strip() for column in COLUMNS})
            rows.append(replace(row, settings=_completed(row, rows)))
        return tuple(rows)


def _completed(row: OpenRow, before: Sequence[OpenRow]) -> str:
    """Return settings that say what those of the source's last other row are beside their own."""
    if not row.settings.startswith("as above; "):
        return row.settings
    own = row.settings.removeprefix("as above; ")
    above = next((r.settings for r in reversed(before) if r.source == row.source and own not in r.settings), "")
    return f"{above.partition(';')[0]}; {own}"
