"""Fits constants of llama.cpp to others' measurements, and says how well they predict what was left out:
`python -m benchmarks.engine_rows FOLDER [--write hwdb/engines/llama.cpp.json]`."""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from benchmarks.engine_rows.answered import answered_lines, experts_of
from benchmarks.engine_rows.copies import copy_rate
from benchmarks.engine_rows.offload import alone_questions, host_questions
from benchmarks.engine_rows.open_form import as_open_row, partial_rows
from benchmarks.engine_rows.other_engines import other_lines
from benchmarks.engine_rows.report import of_hosts, report
from benchmarks.engine_rows.rows import EngineRow, read_tables
from benchmarks.engine_rows.sweeps import sweep_lines
from benchmarks.engine_rows.table import host_part, table_of, written
from benchmarks.engine_rows.terms import Question, decode_question, prompt_question
from benchmarks.strangers.answers import planned
from benchmarks.strangers.rows import read_rows
from helmsman.hwdb.engine_constants import engine_table

LLAMA = "llama.cpp"


def main(argv: Sequence[str] | None = None) -> int:
    """Fit, print what is left out, write the table."""
    parser = argparse.ArgumentParser(prog="engine_rows", description=__doc__)
    parser.add_argument("folder", type=Path, help="of the tables of rows")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the constants fitted to all rows")
    parser.add_argument("--sweeps", action="store_true", help="print what is chosen of -ngl and -ncmoe sweeps, alone")
    one = "print how well rows of another engine predict each other, alone"
    parser.add_argument("--engine", choices=(LLAMA, *_ENGINES), default=LLAMA, help=one)
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the page of the documentation")
    args = parser.parse_args(argv)
    if args.sweeps:
        print("\n".join(sweep_lines(args.folder)))
        return 0
    rows = [row for row in read_tables(args.folder) if whole(row)]
    decode = [q for q in map(decode_question, rows) if q is not None]
    prompts = [q for q in map(prompt_question, rows) if q is not None]
    if args.engine != LLAMA:
        for phase, questions in zip(("steps", "prompts"), _hosts(args.folder, args.engine), strict=True):
            print(of_hosts(phase, questions))
        return 0
    if args.write:
        _write(args.write, args.folder, decode, prompts, len(rows))
        return 0
    steps, host_prompts = _hosts(args.folder)
    experts = experts_of(args.folder)
    others = list(other_lines(experts)) if experts else []
    shares = list(answered_lines(args.folder, experts))
    hosts = {"steps": steps, "prompts": host_prompts}
    text = report(rows, decode, prompts, hosts, list(sweep_lines(args.folder)), others, shares)
    print(text)
    if args.page:
        args.page.write_text(text, encoding="utf-8")
    return 0


def _write(path: Path, folder: Path, decode: Sequence[Question], prompts: Sequence[Question], count: int) -> None:
    """Write the constants: of accelerators first, which those of processors beside them are predicted with."""
    about = {
        "kind": "fitted",
        "where": f"fitted: {count} community llama.cpp results on one GPU (single_device_open.csv, 2023-2026; "
        "GPU-Benchmarks-on-LLM-Inference@aa72e0e, llama.cpp discussions 4167, 10879, 15013, 15021)",
        "tool": "benchmarks.engine_rows",
    }
    table = table_of(decode, prompts, about)
    before = json.loads(path.read_bytes()) if path.exists() else {"backends": {}, "nodes": {}}
    of_hosts = {name: node for name, node in before["nodes"].items() if name.partition("/")[0] == "cpu"}
    factors = {name: value for name, value in before["backends"].items() if name == "cpu"}
    beside = folder / "moe_open.csv"
    copies = copy_rate(read_rows(beside), "llama.cpp") if beside.exists() else None
    table |= {"copies": copies} if copies else {}
    table |= {"latent": before["latent"]} if "latent" in before else {}
    _save(path, table, factors, of_hosts)
    steps, host_prompts = _hosts(folder)
    if steps:
        factors["cpu"], of_hosts, latent = host_part(steps, host_prompts)
        _save(path, table | latent, factors, of_hosts)


def _save(path: Path, table: Mapping[str, Any], factors: Mapping[str, Any], nodes: Mapping[str, Any]) -> None:
    whole = {**table, "backends": {**table["backends"], **factors}, "nodes": {**nodes, **table["nodes"]}}
    path.write_text(written(whole), encoding="utf-8")
    engine_table.cache_clear()
    planned.cache_clear()


def _hosts(folder: Path, engine: str = LLAMA) -> tuple[list[Question], list[Question]]:
    """Return the questions about processors, beside accelerators and of llama.cpp alone."""
    rows = read_tables(folder)
    beside = read_rows(folder / "moe_open.csv") if (folder / "moe_open.csv").exists() else ()
    if engine == LLAMA:
        more = host_questions([*beside, *partial_rows(rows)], "llama.cpp")
        steps, prompts = alone_questions(rows)
        return [*more[0], *steps], [*more[1], *prompts]
    own = [as_open_row(row) for row in rows if row.gpus == 1 and not row.caution]
    return host_questions([*beside, *own], _ENGINES[engine], engine)


_ENGINES = {"ktransformers": r"^KT-Kernel|^KTransformers"}
"""Engines beside llama.cpp that rows of processors are about, and what these call them."""


def whole(row: EngineRow) -> bool:
    """Whether a row is of llama.cpp with everything on one GPU, and nothing speaks against it."""
    return row.split == "full_gpu" and "llama.cpp" in row.engine and not row.caution


if __name__ == "__main__":
    sys.exit(main())
