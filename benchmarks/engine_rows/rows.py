"""Rows of others' measurements of engines on one device, or with part of a model on the processor."""

import csv
import re
from dataclasses import dataclass
from pathlib import Path

ERAS = ("2023", "2024", "2025")
"""Builds by year; the last is 2025 and later."""


@dataclass(frozen=True, slots=True)
class EngineRow:
    """A row as its table has it, with the era of the build and the backend where the source tells them."""

    number: int
    source: str
    gpu: str
    gpus: int
    cpu: str
    ram: str
    model: str
    quant: str
    weights_gib: float | None
    engine: str
    split: str
    placement: str
    ngl: str
    cpu_experts: int | None
    threads: int | None
    prompt_threads: int | None
    prompt: int | None
    output: int | None
    depth: int
    prefill: float | None
    decode: float | None
    note: str
    caution: str
    metric: str
    era: str
    backend: str

    @property
    def flash(self) -> bool:
        """Whether attention was a kernel of its own (flash attention), as far as the source says."""
        return bool(re.match(r"FA\b", self.note)) or "-fa" in self.engine


def read_tables(folder: Path) -> tuple[EngineRow, ...]:
    """Return the rows of the tables of `folder`, each once."""
    eras = {line["id"]: line for line in _lines(folder / "build_era_open.csv")}
    known = dict[int, EngineRow]()
    for name in ("single_device_open.csv", "partial_offload_open.csv"):
        for line in _lines(folder / name):
            row = _row(line, eras.get(line["id"], {}))
            known.setdefault(row.number, row)
    return tuple(known[number] for number in sorted(known))


def table_numbers(path: Path) -> tuple[int, ...]:
    """Return the numbers of the rows that a table names, in its order."""
    return tuple(int(line["id"]) for line in _lines(path))


def _lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return [{key: value or "" for key, value in line.items()} for line in csv.DictReader(file)]


def _row(line: dict[str, str], era: dict[str, str]) -> EngineRow:
    return EngineRow(
        number=int(line["id"]),
        source=line["source"],
        gpu=line["gpu"],
        gpus=int(line["n_gpu"] or 0),
        cpu=line["cpu"],
        ram=line["ram"],
        model=line["model"],
        quant=line["quant"],
        weights_gib=_number(line["weights_gib"]),
        engine=line["engine"],
        split=line["split_kind"],
        placement=line["split_note"],
        ngl=line["ngl"],
        cpu_experts=_whole(line["n_cpu_moe"]),
        threads=_threads(line["threads"], "tg"),
        prompt_threads=_threads(line["threads"], "pp"),
        prompt=_whole(line["prompt_tokens"]),
        output=_whole(line["gen_tokens"]),
        depth=_whole(line["depth_ctx"]) or 0,
        prefill=_number(line["pp_tok_s"]),
        decode=_number(line["tg_tok_s"]),
        note=line["note"],
        caution=line["caution"],
        metric=line["metric"],
        era=era.get("build_era", "")[:4] or "2025",
        backend=era.get("backend", "").lower(),
    )


def _threads(text: str, phase: str) -> int | None:
    """Return the threads of a phase (pp, tg), of text such as `20` or `pp 8 / tg 4`."""
    own = re.search(rf"{phase} (\d+)", text)
    return int(own[1]) if own else _whole(text)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _whole(text: str) -> int | None:
    number = _number(text)
    return None if number is None else round(number)
