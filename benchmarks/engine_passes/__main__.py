"""Fits constants of vLLM's kernels to profiles of operators, and says how well passes are predicted that were left out:
`python -m benchmarks.engine_passes FOLDER [--write hwdb/engines/vllm.json]`."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from benchmarks.engine_passes.fit import PassFit
from benchmarks.engine_passes.profiles import read_profiles
from benchmarks.engine_passes.questions import measured_passes
from benchmarks.engine_passes.report import report
from benchmarks.engine_passes.table import table_of, written


def main(argv: Sequence[str] | None = None) -> int:
    """Fit, print what is left out, write the table."""
    parser = argparse.ArgumentParser(prog="engine_passes", description=__doc__)
    parser.add_argument("folder", type=Path, help="of the profiles")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the constants fitted to all passes")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the page of the documentation")
    args = parser.parse_args(argv)
    rows = [row for profile in read_profiles(args.folder) for row in measured_passes(profile)]
    fit = PassFit(rows)
    text = report(rows, fit)
    print(text)
    if args.page:
        args.page.write_text(text, encoding="utf-8")
    if args.write:
        args.write.write_text(written(table_of(rows, fit)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
