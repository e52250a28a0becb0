"""Park & Egger's evaluation on its own machine, planned and simulated.

    python -m benchmarks.park_egger --figure 14 --figure 18 --json found.json --plot pictures

Figures 13 to 20, `limits` (largest batches), `sensitivity` (bandwidth of the link), and two that are executed on this
machine: `table2` (what preparing costs) and `numerics` (f16 against bf16 weights). All of them take some minutes. The
paper's numbers stand beside ours, with signed errors; `--facts` replaces those that are built in."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.machine import print_machine
from benchmarks.park_egger.plots import draw
from benchmarks.park_egger.studies import STUDIES
from benchmarks.park_egger.study import Study, document, published, text
from helmsman.analysis.plots.picture import image
from helmsman.schemas.errors import HelmError


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", action="append", choices=STUDIES, help="may be given again; default: all")
    parser.add_argument("--facts", type=Path, metavar="FILE", help="published numbers (JSON) to compare with")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write rows and comparisons")
    parser.add_argument("--plot", type=Path, metavar="DIR", help="draw every figure that has a picture (PNG)")
    args = parser.parse_args(argv)
    print_machine()
    try:
        return _execute(args)
    except HelmError as error:
        print(f"park_egger: {error}", file=sys.stderr)
        return error.exit_code


def _execute(args: argparse.Namespace) -> int:
    facts = published(args.facts)
    done = []
    for name in args.figure or STUDIES:
        study = STUDIES[name]()
        done.append(study)
        print(text(study, facts), flush=True)
        if args.plot:
            _draw(args.plot, study)
    if args.json:
        args.json.write_text(document(done, facts))
    return 0


def _draw(folder: Path, study: Study) -> None:
    for name, figure in draw(study):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"park_egger_{name}.png").write_bytes(image(figure, "png"))


if __name__ == "__main__":
    raise SystemExit(main())
