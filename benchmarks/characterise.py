"""Fig 3 of Park & Egger: FLOPs of a decode step and KV bytes, across models, batches and lengths.

python -m benchmarks.characterise [--models NAME,..] [--csv FILE] [--plot FILE.svg]"""

import argparse
import csv
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.character_plot import draw_characters
from benchmarks.characters import Character, characterise
from helmsman.analysis.plots.picture import image, image_format
from helmsman.hwdb.load_model import load_model

MODELS = "opt-30b,Meta-Llama-3-8B,CodeLlama-34b-hf,Qwen3-8B,Qwen3-32B,opt-6.7b"


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=MODELS, metavar="NAME,..")
    parser.add_argument("--csv", type=Path, metavar="FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg|png")
    args = parser.parse_args(argv)
    found = list(characterise([load_model(name) for name in args.models.split(",")]))
    for one in found:
        print(_line(one))
    if args.csv:
        _write(args.csv, found)
    if args.plot:
        kind = image_format(args.plot, "--plot")
        args.plot.write_bytes(image(draw_characters(found), kind))
    return 0


def _line(one: Character) -> str:
    size = f"{one.flops / 1e9:9.1f} GFLOP  KV {one.kv_bytes / 1e9:7.2f} GB  {one.reads:6.2f} FLOP/byte"
    return f"{one.model:20s} {one.batch:4d} x ({one.prompt} + {one.output})  {size}"


def _write(path: Path, found: Sequence[Character]) -> None:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(asdict(found[0])))
        writer.writeheader()
        writer.writerows(asdict(one) for one in found)


if __name__ == "__main__":
    raise SystemExit(main())
