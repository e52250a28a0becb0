"""`helm-make-checkpoint`: random weights of any model, as a Hugging Face directory or a GGUF file; no hub is needed."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from helmsman.cli.app import run_command
from helmsman.cli.output import encodable, say
from helmsman.cli.parser import PLACE, Parser, command_parser
from helmsman.cli.progress import bars
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import FILE_FORMATS, FORMATS, FileFormat, format_named
from helmsman.schemas.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from helmsman.executor.checkpoint.write import WrittenCheckpoint
    from helmsman.schemas.model import Model

MOSTLY: dict[FileFormat, FileFormat] = {"q4_k_m": "q4_k"}
"""The format of most matrices where files mix formats."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_command(_parser(), _execute, argv)


def _parser() -> Parser:
    parser = command_parser(
        "helm-make-checkpoint",
        "Write a random-weight checkpoint: config.json, safetensors and a byte-level tokenizer, or all of it in one "
        "GGUF file. Weights depend on the seed only; attention is peaked and a wrong model shows.",
        "helm-make-checkpoint --model Qwen3-0.6B --seed 1 -o checkpoints/qwen3-0.6b",
        out=PLACE,
    )
    parser.add_argument("--model", required=True, help="catalogue name, directory, config.json or plan")
    parser.add_argument("--seed", type=int, default=0, help="selects the weights (default 0)")
    parser.add_argument(
        "--format",
        type=format_named,
        choices=FILE_FORMATS,
        help="of the weights (default: the model's own); q4_k_m mixes, mxfp4 is of experts",
    )
    parser.add_argument("--gguf", action="store_true", help="write one GGUF file; quantised formats need it")
    parser.add_argument("--shard-size", default="2GB", metavar="SIZE", help="largest file (default 2GB)")
    parser.add_argument("--layers", type=int, metavar="N", help="only the first N blocks: a shallower model")
    return parser


def _execute(args: argparse.Namespace) -> int:
    from helmsman.hwdb.load_model import load_model

    if not 0 <= args.seed < 2**64:
        raise UsageError("out of range", field="--seed", value=args.seed, remedy="use 0 to 2^64 - 1")
    model = _shallower(load_model(args.model), args.layers)
    fmt = args.format or model.native_format
    with _progress(args, model, fmt) as progress:
        written = (_write_gguf if args.gguf else _write_directory)(args, model, fmt, progress)
    if args.json:
        from helmsman.schemas.made_checkpoint import MadeCheckpoint

        made = MadeCheckpoint(
            model=model.name,
            directory=encodable(str(args.out)),
            seed=args.seed,
            format=fmt,
            parameters=written.parameters,
            weight_bytes=written.weight_bytes,
            files=tuple(map(encodable, written.files)),
        )
        say(made.to_json())
    elif not args.quiet:
        size = format_bytes(written.weight_bytes)
        say(f"{args.out}: {model.name}, {model.layers} layers, {size} of {fmt} weights, seed {args.seed}")
    return 0


def _write_directory(
    args: argparse.Namespace, model: "Model", fmt: FileFormat, progress: Callable[[int], None]
) -> "WrittenCheckpoint":
    from helmsman.executor.checkpoint.write import write_checkpoint

    plain = next((plain_format for plain_format in FORMATS if plain_format == fmt), None)
    if plain is None:
        raise UsageError("only GGUF files hold this format", field="--format", value=fmt, remedy="add --gguf")
    shard_size = parse_bytes(args.shard_size, "--shard-size")
    if shard_size < 1:
        raise UsageError("out of range", field="--shard-size", value=args.shard_size, remedy="use 2GB, say")
    return write_checkpoint(model, args.out, args.seed, plain, shard_size, progress)


def _write_gguf(
    args: argparse.Namespace, model: "Model", fmt: FileFormat, progress: Callable[[int], None]
) -> "WrittenCheckpoint":
    from helmsman.executor.checkpoint.gguf_write import write_gguf
    from helmsman.hwdb.gguf_paths import SUFFIX

    if args.out.suffix != SUFFIX:
        raise UsageError(f"a file name that ends with {SUFFIX} is expected", field="--out", value=str(args.out))
    return write_gguf(model, args.out, args.seed, fmt, progress)


def _shallower(model: "Model", layers: int | None) -> "Model":
    """Return the model of the first `layers` blocks, without a draft head whose kind of block is not among them. Raises
    UsageError for more than there are, and for none that attends, which files could not say."""
    if layers is None:
        return model
    attending = [layer for layer, block in enumerate(model.blocks) if block.attention is not None]
    least = attending[0] + 1 if attending else 1
    if not least <= layers <= model.layers:
        why = f"{model.name} has {model.layers}" + (f", the first that attends is number {least}" if least > 1 else "")
        remedy = f"use {least} to {model.layers}"
        raise UsageError(why, field="--layers", value=layers, remedy=remedy)
    cut = model.with_layers(layers)
    kept = tuple(head for head in cut.drafts if head.block.letter in cut.pattern)
    return cut.model_copy(update={"drafts": kept})


@contextmanager
def _progress(args: argparse.Namespace, model: "Model", fmt: FileFormat) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, only on a terminal."""
    from helmsman.hwdb.gguf_types import BLOCK_TYPES
    from helmsman.lowering.tensors import parameters

    total = next(block_type for block_type in BLOCK_TYPES.values() if block_type.name == MOSTLY.get(fmt, fmt)).size(
        parameters(model)
    )
    hidden = args.quiet or not sys.stderr.isatty()
    with bars()(total=total, unit="B", unit_scale=True, disable=hidden, file=sys.stderr) as bar:
        yield lambda size: bar.update(size) and None
