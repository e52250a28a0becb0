"""Fits constants of llama.cpp to others' measurements, and says how well they predict what was left out:
`python -m benchmarks.engine_rows FOLDER [--write hwdb/engines/llama.cpp.json]`."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from benchmarks.engine_rows.offload import alone_questions, host_questions
from benchmarks.engine_rows.report import report
from benchmarks.engine_rows.rows import EngineRow, read_tables
from benchmarks.engine_rows.table import host_part, table_of, written
from benchmarks.engine_rows.terms import Question, decode_question, prompt_question


def main(argv: Sequence[str] | None = None) -> int:
    """Fit, print what is left out, write the table."""
    parser = argparse.ArgumentParser(prog="engine_rows", description=__doc__)
    parser.add_argument("folder", type=Path, help="of the tables of rows")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the constants fitted to all rows")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the page of the documentation")
    args = parser.parse_args(argv)
    rows = [row for row in read_tables(args.folder) if whole(row)]
    decode = [q for q in map(decode_question, rows) if q is not None]
    prompts = [q for q in map(prompt_question, rows) if q is not None]
    steps, host_prompts = _hosts(args.folder)
    if args.write:
        about = {
            "kind": "fitted",
            "where": f"fitted: {len(rows)} community llama.cpp results on one GPU (single_device_open.csv, 2023-2026; "
            "GPU-Benchmarks-on-LLM-Inference@aa72e0e, llama.cpp discussions 4167, 10879, 15013, 15021)",
            "tool": "benchmarks.engine_rows",
        }
        table = table_of(decode, prompts, about)
        if steps:
            table["backends"]["cpu"], of_hosts = host_part(steps, host_prompts)
            table["nodes"] = {**of_hosts, **table["nodes"]}
        args.write.write_text(written(table), encoding="utf-8")
        return 0
    text = report(rows, decode, prompts, {"steps": steps, "prompts": host_prompts})
    print(text)
    if args.page:
        args.page.write_text(text, encoding="utf-8")
    return 0


def _hosts(folder: Path) -> tuple[list[Question], list[Question]]:
    """Return the questions about processors, alone and beside accelerators."""
    steps, prompts = alone_questions(read_tables(folder))
    beside = folder / "moe_open.csv"
    more = host_questions(beside) if beside.exists() else ([], [])
    return [*more[0], *steps], [*more[1], *prompts]


def whole(row: EngineRow) -> bool:
    """Whether a row is of llama.cpp with everything on one GPU, and nothing speaks against it."""
    return row.split == "full_gpu" and "llama.cpp" in row.engine and not row.caution


if __name__ == "__main__":
    sys.exit(main())
