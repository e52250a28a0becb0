"""`helm-serve`: a plan behind OpenAI's HTTP interface, on this machine."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from helmsman.cli.access_arguments import access_of, add_access_arguments, encryption_of
from helmsman.cli.app import run_command
from helmsman.cli.extras import check_installed
from helmsman.cli.local_names import checkpoint_argument
from helmsman.cli.output import emit
from helmsman.cli.parser import Parser, command_parser
from helmsman.cli.serving_arguments import add_limit_arguments, check_limit_arguments
from helmsman.schemas.errors import UsageError
from helmsman.schemas.units import parse_bytes, parse_seconds

if TYPE_CHECKING:
    from helmsman.schemas.plan import Plan
    from helmsman.service.inference.generation import EngineCapacity, Generator
    from helmsman.service.inference.jobs import ServedModel
    from helmsman.service.inference.service import Options

_NEEDED = ("aiohttp", "prometheus_client", "jinja2")


def build_parser() -> Parser:
    """Return the arguments of helm-serve."""
    parser = command_parser(
        "helm-serve",
        "Serve a plan on this machine: OpenAI's completions and chat, /health, /metrics. Ctrl-C lets requests finish.",
        "helm-serve plan.json --checkpoint qwen3-0.6b --policy neo --port 8000",
    )
    add = parser.add_argument
    add("plan", type=Path, metavar="PLAN", help="a Plan, as helm-plan --json writes it")
    add(
        "--checkpoint",
        type=checkpoint_argument,
        required=True,
        metavar="PLACE",
        help="Hugging Face directory, or GGUF file",
    )
    add("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1: this machine only)")
    add("--port", type=_port, default=8000, help="0: any that is free (default 8000)")
    add("--name", metavar="NAME", help="what the model is called (default: as in the plan)")
    add("--policy", default="gpu-only", metavar="NAME", help="who decides what each pass does (default gpu-only)")
    add("--policy-option", action="append", default=[], metavar="KEY=VALUE", help="an option of the policy")
    caches = parser.add_argument_group("passes and caches")
    add_limit_arguments(caches)
    alike = "prompts that begin alike share what is computed, in blocks of 16 tokens (default)"
    caches.add_argument("--prefix-cache", action=argparse.BooleanOptionalAction, default=True, help=alike)
    parser.set_defaults(replicas=None, router=None, tensor_parallel=None, pipeline_parallel=None)
    parser.set_defaults(
        mispredict=[], ahead=False
    )  # what helm-sim may vary: here passes are decided one after the other
    add_access_arguments(parser)
    limits = parser.add_argument_group("limits")
    add = limits.add_argument
    queue = "requests that may wait beside those that run; others are told to come again (default 256)"
    add("--queue", type=_count, default=256, metavar="N", help=queue)
    promised = "tokens promised to requests at most, in multiples of what the caches hold (default 8)"
    add("--promise", type=float, default=8.0, metavar="X", help=promised)
    add("--max-body", type=_size, default=2**20, metavar="SIZE", help="of a request (default 1MiB)")
    stall = "for how long a reader may take nothing of what waits for it (default 30s)"
    add("--stall", type=_seconds, default=30.0, metavar="TIME", help=stall)
    add(
        "--grace", type=_seconds, default=30.0, metavar="TIME", help="for requests that run when it stops (default 30s)"
    )
    return parser


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) < 2**16):
        raise UsageError("not a port", value=text, remedy="use 0 to 65535")
    return int(text)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) <= 10**9):
        raise UsageError("not a whole number", value=text)
    return int(text)


def _size(text: str) -> int:
    size = parse_bytes(text, "--max-body")
    if not 1024 <= size <= 2**30:
        raise UsageError("out of range", value=text, remedy="use 1KiB to 1GiB")
    return size


def _seconds(text: str) -> float:
    seconds = parse_seconds(text, "")
    if not 0.0 <= seconds <= 86400.0:
        raise UsageError("out of range", value=text, remedy="use 0s to 86400s")
    return seconds


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_command(build_parser(), execute, argv)


def execute(args: argparse.Namespace) -> int:
    """Listen, load, serve until SIGINT or SIGTERM.

    The port is taken before the checkpoint is read, so that an occupied one is said at once."""
    import asyncio

    check_installed("serving", _NEEDED, "serve")
    from helmsman.cli.open_files import allow_connections
    from helmsman.cli.serving_setup import setting_of
    from helmsman.service.http.listening import listen
    from helmsman.service.inference.open_generator import open_generator
    from helmsman.service.inference.server import serve

    _check(args)
    access, tls = access_of(args), encryption_of(args)
    plan = _accepted(args)
    allow_connections()
    with listen(args.host, args.port) as listener:
        served = _served(args, plan)
        generator = open_generator(plan, args.checkpoint, setting_of(args), prefix_cache=args.prefix_cache)
        try:
            options = replace(_options(args, generator.capacity), access=access)

            def say(url: str) -> None:
                _say(args, url, served, generator)

            asyncio.run(serve(listener, generator, served, options, say, tls))
        finally:
            generator.close()
            if served.template is not None:
                served.template.close()
    return 0


def _check(args: argparse.Namespace) -> None:
    if "," in args.policy:
        raise UsageError("one policy at a time", field="--policy", value=args.policy)
    check_limit_arguments(args)
    if not 1.0 <= args.promise <= 1e6:
        raise UsageError("must be between 1 and 1000000", field="--promise", value=args.promise)
    if args.name is not None and not (args.name.isprintable() and 0 < len(args.name) <= 200):
        raise UsageError("not a name", field="--name", value=args.name, remedy="use up to 200 printable characters")


def _accepted(args: argparse.Namespace) -> "Plan":
    """Return the plan, after everything that can be refused before a checkpoint is read."""
    from helmsman.cli.documents import plan_of
    from helmsman.cli.isa import select_from_environment
    from helmsman.executor.passes.model_check import check_native
    from helmsman.executor.passes.plan_check import check_executed

    select_from_environment()
    plan = plan_of(args)
    check_native(plan.model)
    check_executed(plan)
    return plan


def _served(args: argparse.Namespace, plan: "Plan") -> "ServedModel":
    """Return the model as requests see it. Raises BadInputError for a checkpoint that cannot be read."""
    from helmsman.executor.text.chat_template import open_template
    from helmsman.executor.text.template_process import Renderer
    from helmsman.executor.text.tokenizer import open_text
    from helmsman.hwdb.load_model import load_model
    from helmsman.schemas.read import digest
    from helmsman.service.inference.jobs import ServedModel

    eos = {*plan.model.eos, *load_model(str(args.checkpoint)).eos}
    text = open_text(args.checkpoint, plan.model.vocab)
    template = None if text is None else Renderer(open_template(args.checkpoint))
    about = {"policy": args.policy, "plan_sha256": digest(plan)}
    return ServedModel(args.name or plan.model.name, plan.model.vocab, eos, text, template, about)


def _options(args: argparse.Namespace, capacity: "EngineCapacity") -> "Options":
    from helmsman.service.http.bodies import BodyLimits
    from helmsman.service.inference.admission import Bounds
    from helmsman.service.inference.service import Options

    bounds = Bounds(capacity.sequences + args.queue, int(args.promise * capacity.kv_tokens))
    bodies = BodyLimits(body=args.max_body, together=max(2**26, 2 * args.max_body))
    return Options(bounds, bodies, stall_s=args.stall, grace_s=args.grace)


def _say(args: argparse.Namespace, url: str, served: "ServedModel", generator: "Generator") -> None:
    """Say that the server is ready, where, and for how much."""
    from helmsman.schemas.server_ready import ServerReady

    most = generator.capacity
    ready = ServerReady(
        url=url, model=served.name, policy=args.policy, sequences=most.sequences, kv_tokens=dict(most.homes)
    )
    caches = " and ".join(f"{tokens} tokens ({home})" for home, tokens in most.homes.items())
    text = f"{served.name} under {args.policy} at {url}, caches of {caches} (Ctrl-C stops)"
    emit(args, ready.to_json(), lambda: text)
