"""`helm-run`: execute a plan on this machine, stream its tokens, and measure it, or talk with the model."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from helmsman.cli.app import run_command
from helmsman.cli.depth import check_depth
from helmsman.cli.engine_arguments import OURS, add_engine_arguments
from helmsman.cli.local_names import checkpoint_argument
from helmsman.cli.output import emit, say
from helmsman.cli.parser import Parser, command_parser
from helmsman.cli.progress import bars
from helmsman.cli.sampling import add_sampling_arguments, sampling_of
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.write import whole_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from helmsman.executor.engine import Engine
    from helmsman.executor.measuring.measure import Measured, Request
    from helmsman.executor.system.machine import Machine
    from helmsman.executor.text.tokenizer import Text
    from helmsman.schemas.plan import Plan


def build_parser() -> Parser:
    """Return the arguments of helm-run."""
    parser = command_parser(
        "helm-run",
        "Run a plan for real on this machine and print tokens, TTFT, TPOT and tokens/s.",
        'helm-run plan.json --checkpoint qwen3-0.6b --text "Call me Ishmael." --trace run.parquet',
    )
    parser.add_argument("plan", type=Path, metavar="PLAN", help="a Plan, as helm-plan --json writes it")
    parser.add_argument(
        "--checkpoint",
        type=checkpoint_argument,
        required=True,
        metavar="PLACE",
        help="Hugging Face directory, or GGUF file",
    )
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--text", action="append", help="a prompt; once per sequence of the plan's batch")
    prompt.add_argument("--tokens", type=Path, metavar="FILE", help="token ids: JSON list, list of lists, or integers")
    prompt.add_argument("--chat", action="store_true", help="talk: a line is a message, until the end of the input")
    parser.add_argument("--system", metavar="TEXT", help="with --chat: what the assistant is told first")
    parser.add_argument("--output-tokens", type=_count, metavar="N", help="tokens to make (default: the plan's)")
    parser.add_argument("--runs", type=_count, default=1, metavar="N", help="measured runs (default 1)")
    depth = "as if N tokens were cached before the prompt, their keys and values noise: to measure at a depth"
    parser.add_argument("--depth", type=_whole, default=0, metavar="N", help=depth)
    parser.add_argument("--ignore-eos", action="store_true", help="go on after an end-of-sequence token")
    parser.add_argument(
        "--storage",
        type=Path,
        metavar="DIR",
        action="append",
        help="a folder for weights that the plan keeps on storage; one for all, or one for each device in its order",
    )
    parser.add_argument(
        "--backend",
        choices=("native", "torch"),
        default="native",
        help="what computes: kernels, or the graphs of the checkpoint's own module, for layer splits (default native)",
    )
    caches = "contiguous: allocated in full (default); growing: allocated anew and copied every 256 tokens, an ablation"
    parser.add_argument("--kv-cache", choices=("contiguous", "growing"), default="contiguous", help=caches)
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write the measured Trace (Parquet)")
    routing = "write which experts every token chose, layer by layer, in the last run (Parquet)"
    parser.add_argument("--routing-trace", type=Path, metavar="FILE", help=routing)
    drafts = (
        "tokens that the model's draft head (MTP) proposes a step, which change no token made (default: the plan's)"
    )
    parser.add_argument("--draft-tokens", type=_whole, metavar="K", help=drafts)
    add_sampling_arguments(parser)
    add_engine_arguments(parser)
    parser.set_defaults(in_flags=parser.in_flags)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_command(build_parser(), execute, argv)


def execute(args: argparse.Namespace) -> int:
    """Load, run, write, print."""
    from helmsman.executor.ask_run import execute as execute_request
    from helmsman.executor.system.machine import Machine

    if args.engine != OURS:
        from helmsman.cli.run_engine import execute_engine

        return execute_engine(args)
    plan = _accepted(args)
    check_depth(args, plan)
    text, warnings = text_of(args, plan)
    if args.chat:
        return _chat(args, plan, text, Machine.this())
    request = _request(args, plan, text)
    machine = Machine.this()
    streamed = streams(args, plan, text)
    with _loaded(args, plan, machine, request.tokens.shape[1]) as engine:
        warn_run((*warnings, *engine.warnings))
        printer = Printer(text if streamed else None, args.stop)
        probed = args.trace is not None
        measured = execute_request(engine, request, args.runs, machine, printer.on_token, probed=probed)
        printer.finish()
        _write_routing(args, engine)
    _write(args, plan, measured, text, streamed)
    return 0


def _chat(args: argparse.Namespace, plan: "Plan", text: "Text | None", machine: "Machine") -> int:
    """Hold a conversation, for which a plan whose caches move must have room for the whole prompt of every turn."""
    from helmsman.cli.chat import check_chat, converse, speaking, template_of
    from helmsman.executor.chat import Chat
    from helmsman.executor.passes.phase_pass import passes_of, rewinds

    check_chat(args, plan)
    how = speaking(args, plan)
    work = plan.workload
    longest = work.prompt_tokens if rewinds(passes_of(plan)) else work.context
    with template_of(args, text) as template, _loaded(args, plan, machine, longest) as engine:
        warn_run(engine.warnings)
        assert text is not None, "a template without a tokenizer was refused"
        converse(args, Chat(engine, text, template, how, args.system))
    return 0


def _accepted(args: argparse.Namespace) -> "Plan":
    """Return the plan, after everything that can be refused before a checkpoint is read."""
    from helmsman.cli.documents import plan_of
    from helmsman.cli.isa import select_from_environment
    from helmsman.executor.passes.plan_check import check_executed

    select_from_environment()
    plan = plan_of(args)
    check_executed(plan)
    _check_checkpoint(args.checkpoint)
    if args.routing_trace is not None and (args.chat or args.backend != "native"):
        remedy = "leave --chat and --backend torch out"
        raise UsageError("native runs of one request record it", field="--routing-trace", remedy=remedy)
    if _drafts(args, plan):
        _check_drafts(args, plan)
    if args.system is not None and not args.chat:
        raise UsageError("only a conversation has it", field="--system", remedy="add --chat, or put it into --text")
    return plan


def _drafts(args: argparse.Namespace, plan: "Plan") -> int:
    """Return the drafts of a step: as asked for, or those of a plan whose drafter is the model's own head, where such a
    run can draft."""
    if args.draft_tokens is not None or plan.drafting is None or plan.drafting.model is not None:
        return args.draft_tokens or 0
    drafts_nothing = args.chat or args.backend != "native" or args.depth or args.routing_trace is not None
    return 0 if drafts_nothing or args.kv_cache == "growing" or not sampling_of(args).native else plan.drafting.tokens


def _check_drafts(args: argparse.Namespace, plan: "Plan") -> None:
    """Refuse before anything is loaded what drafts nothing. Raises UsageError, BadInputError."""
    from helmsman.executor.passes.draft_check import check_drafts
    from helmsman.executor.passes.phase_pass import passes_of

    if args.chat or args.backend != "native" or args.depth:
        remedy = "leave --chat, --backend torch and --depth out"
        raise UsageError("native runs of one request draft tokens", field="--draft-tokens", remedy=remedy)
    if not sampling_of(args).native:
        message, remedy = "drafts are verified by the likeliest tokens", "leave --temperature and penalties out"
        raise UsageError(message, field="--draft-tokens", remedy=remedy)
    check_drafts(plan, passes_of(plan), _drafts(args, plan))


def text_of(args: argparse.Namespace, plan: "Plan") -> "tuple[Text | None, tuple[str, ...]]":
    """Return the checkpoint's tokenizer. Token ids need none, so one that cannot be used is a warning, once the rest
    loads."""
    from helmsman.executor.text.tokenizer import open_text

    tokenizer, warnings = None, tuple[str, ...]()
    try:
        tokenizer = open_text(args.checkpoint, plan.model.vocab)
    except BadInputError as error:
        if args.tokens is None:
            raise
        warnings = (str(error),)
    if tokenizer is None and args.stop:
        raise UsageError("there is no tokenizer to find texts with", field="--stop", remedy="leave it out")
    return tokenizer, warnings


def _request(args: argparse.Namespace, plan: "Plan", text: "Text | None") -> "Request":
    from helmsman.executor.measuring.measure import Request
    from helmsman.executor.text.prompt import as_batch, check_tokens

    tokens = as_batch(sequences(args, text), plan, str(args.tokens) if args.tokens else None)
    output = args.output_tokens or plan.workload.output_tokens
    sampling = sampling_of(args)
    request = Request(tokens, output, args.ignore_eos, sampling, args.seed, text, tuple(args.stop), args.depth)
    check_tokens(tokens, plan, request.output_tokens, args.depth)
    return request


def _loaded(args: argparse.Namespace, plan: "Plan", machine: "Machine", prompt_tokens: int) -> "Engine":
    with _load_progress(args, plan) as on_bytes:
        return _loader(args.backend)(
            plan,
            args.checkpoint,
            machine,
            prompt_tokens=prompt_tokens,
            storage=args.storage or (),
            on_bytes=on_bytes,
            growing=args.kv_cache == "growing",
            **({"record_routing": True} if args.routing_trace is not None else {}),
            **({"draft_tokens": drafts} if (drafts := _drafts(args, plan)) else {}),
        )


def _loader(backend: str) -> "Callable[..., Engine]":
    """Return the function that makes an engine of a plan and a checkpoint."""
    if backend == "torch":
        from helmsman.executor.graph import check_installed

        check_installed()
        from helmsman.executor.graph.loading import load_graphs

        return load_graphs
    from helmsman.executor.engine import Engine

    return Engine.load


def _write_routing(args: argparse.Namespace, engine: "Engine") -> None:
    """The choices of the last run's tokens."""
    from helmsman.schemas.routing_trace import write_routing_trace

    if args.routing_trace is not None:
        assert engine.routing is not None, "recorded where it is to be written"
        with whole_file(args.routing_trace) as stream:
            write_routing_trace(engine.routing.trace(), stream)


def _write(args: argparse.Namespace, plan: "Plan", measured: "Measured", text: "Text | None", streamed: bool) -> None:
    """The trace and the report, to files and to people."""
    from helmsman.executor.measuring.measure import trace
    from helmsman.executor.measuring.report import document, lines
    from helmsman.schemas.trace import write_trace

    if args.trace is not None:
        measurement = trace(plan, measured)
        with whole_file(args.trace) as stream:
            write_trace(measurement, stream)
    report = document(measured, text, args.stop)
    told = lines(report, streamed) + ([f"trace     {args.trace}"] if args.trace else [])
    emit(args, report.to_json(), lambda: "\n".join(told))


def sequences(args: argparse.Namespace, text: "Text | None") -> Sequence[Sequence[int]]:
    """Return the token ids of every prompt. Raises BadInputError for a text without a tokenizer."""
    from helmsman.executor.text.prompt import read_tokens

    if args.tokens is not None:
        return read_tokens(args.tokens)
    if text is None:
        raise BadInputError(
            "there is no tokenizer",
            file=str(args.checkpoint / "tokenizer.json"),
            remedy="give token ids with --tokens",
        )
    return [text.encode(prompt) for prompt in args.text]


def warn_run(warnings: Sequence[str]) -> None:
    """Print warnings on standard error."""
    for warning in warnings:
        print(f"helm-run: warning: {warning}", file=sys.stderr)


def streams(args: argparse.Namespace, plan: "Plan", text: "Text | None") -> bool:
    """One sequence is printed as it grows; the sequences of a batch would interleave."""
    return text is not None and plan.workload.batch == 1 and not (args.json or args.quiet)


class Printer:
    """Prints the one sequence of a run as it grows; nothing without a tokenizer."""

    def __init__(self, text: "Text | None", stops: Sequence[str]) -> None:
        from helmsman.executor.text.stopping import StoppedStream

        self._stream = None if text is None else StoppedStream(text, stops)

    def on_token(self, chosen: "NDArray[np.int32]") -> None:
        """Print what a pass has chosen."""
        self.on_id(int(chosen[0]))

    def on_id(self, token: int) -> None:
        """Print a token."""
        if self._stream is not None:
            say(self._stream.push(token), end="")

    def finish(self) -> None:
        """Print what was held back as the beginning of a stop."""
        if self._stream is not None:
            say(self._stream.rest(), end="")


@contextmanager
def _load_progress(args: argparse.Namespace, plan: "Plan") -> Iterator[Callable[[int], None]]:
    """A progress bar over the bytes of the checkpoint, on a terminal only."""
    hidden = args.quiet or args.json or not sys.stderr.isatty()
    with bars()(desc=f"load {plan.model.name}", unit="B", unit_scale=True, disable=hidden) as progress:
        yield lambda size: progress.update(size) and None


def _check_checkpoint(path: Path) -> None:
    from helmsman.hwdb.gguf_paths import is_gguf

    try:
        there = path.is_dir() or (is_gguf(path) and path.exists())
    except OSError:  # a name that no file system takes
        there = False
    if not there:
        message = "neither a directory nor a GGUF file"
        raise BadInputError(message, file=str(path), remedy="name a checkpoint's directory or file")


def _whole(text: str) -> int:
    return 0 if text == "0" else _count(text)


def _count(text: str) -> int:
    value = int(text) if text.isdigit() else 0
    if not 1 <= value <= 10**9:
        raise UsageError("a number from 1 to 10^9 is expected", value=text)
    return value
