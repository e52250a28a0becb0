"""`helm-bench --engine`: engines side by side on one model file, in llama-bench's columns."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from helmsman.cli.bench_arguments import add_test_arguments
from helmsman.cli.local_names import checkpoint_argument
from helmsman.cli.output import emit, say, write_out
from helmsman.cli.parser import Parser, command_parser
from helmsman.cli.progress import progress
from helmsman.schemas.errors import UsageError


def engines_parser() -> Parser:
    """Return the arguments of helm-bench with --engine."""
    parser = command_parser(
        "helm-bench",
        "Measure prompt processing (pp) and token generation (tg) of a GGUF file in several engines, in fresh "
        "processes that take turns, beside what Helm had predicted of each.",
        "helm-bench qwen3-0.6b.gguf --engine helm,llama.cpp -p 128 -n 64 -r 3",
    )
    parser.add_argument("model", type=checkpoint_argument, metavar="FILE", help="a GGUF file")
    engines = "engines between commas: helm, llama.cpp, openvino-genai"
    parser.add_argument("--engine", type=_names, required=True, metavar="A,B", help=engines)
    python = (
        "an interpreter that has the engines' packages, or one engine's as llama.cpp=PYTHON; may be given several "
        "times (default: this one, else a program of the engine on the path)"
    )
    parser.add_argument("--engine-python", action="append", default=[], metavar="PYTHON", help=python)
    hardware = "the machine that plans and predictions are for: a known one, a record, or this one (default: this)"
    parser.add_argument("--hw", metavar="NAME|FILE|this", help=hardware)
    parser.add_argument("--csv", action="store_true", help="print CSV under llama-bench's names of fields")
    add_test_arguments(parser)
    parser.set_defaults(run=execute_engines)
    return parser


def execute_engines(args: argparse.Namespace) -> int:
    """Measure and print."""
    from helmsman.engines.bench_text import bench_csv, bench_markdown
    from helmsman.engines.side_by_side import compare_engines
    from helmsman.executor.measuring.bench import tests_of
    from helmsman.library import load_hardware

    if args.csv and args.json:
        raise UsageError("either JSON or CSV is printed", field="--csv", remedy="leave one out")
    tests = tests_of(args.n_prompt, args.n_gen, args.n_depth)
    pythons = _interpreters(args.engine_python, args.engine)
    hardware = None if args.hw is None else load_hardware(args.hw)
    with progress(len(args.engine) * args.repetitions, args.quiet or args.json) as tell:
        bench = compare_engines(
            args.model,
            tests,
            args.engine,
            repetitions=args.repetitions,
            pythons=pythons,
            hardware=hardware,
            tell=tell,
        )
    if args.csv:
        write_out(args, bench.to_json())
        say(bench_csv(bench))
        return 0
    emit(args, bench.to_json(), lambda: bench_markdown(bench))
    return 0


def _names(text: str) -> tuple[str, ...]:
    names = tuple(word.strip() for word in text.split(","))
    if not all(names):
        raise UsageError("an engine has no name", value=text, remedy="write helm,llama.cpp")
    return names


def _interpreters(given: Sequence[str], engines: Sequence[str]) -> Mapping[str, Path]:
    """Return the interpreters by engine; one without a name is of all that are not named."""
    result = dict[str, Path]()
    for text in given:
        name, equals, path = text.partition("=")
        if equals and name in engines:
            result[name] = Path(path)
        else:
            result = {**dict.fromkeys(engines, Path(text)), **result}
    return result
