"""Every command in little memory: it ends well (0), or with one line of error because something does not fit (3) or
memory is refused (6). It is never killed.

Limits are those of a control group of the test's own, where it may make one, and of the address space, which any
process may limit."""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from benchmarks.virtual_engine import VirtualEngine
from control_groups import limited_group
from http_service import background
from plans import GIB, make_hardware, make_plan
from two_cpus import TWO_CPUS

from helmsman.cli import sim
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.hwdb.load_model import load_model
from helmsman.schemas.plan import Plan
from helmsman.schemas.trace import Trace, read_trace, write_trace
from helmsman.schemas.workload import Workload

pytestmark = TWO_CPUS

LIMITS = (GIB // 2, GIB, 2 * GIB, 4 * GIB)
MODEL = load_model("Qwen3-0.6B")
SHALLOW = MODEL.with_layers(2)
"""374 MB of weights, which half a GiB has room for; all of the model takes 1.2 GB."""


class Ended(NamedTuple):
    code: int
    errors: str


class Places(NamedTuple):
    """`checkpoint` and `shallow` are folders; plans of them: on the CPU, with caches of 1 GiB, divided in two, of the
    whole model; `trace` is of the divided one; a record of a machine."""

    folder: Path
    shallow: Path
    plan: Path
    cached: Path
    divided: Path
    trace: Path
    machine: Path


def helm(name: str, *arguments: object) -> list[str]:
    """The command line of a command."""
    module = f"from helmsman.cli.{name.replace('-', '_')} import main; raise SystemExit(main())"
    return [sys.executable, "-c", module, *map(str, arguments)]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    folder = tmp_path_factory.mktemp("limits")
    machine = make_hardware(ram=64 * GIB, vram=16 * GIB)

    def written(name: str, plan: Plan) -> Path:
        (folder / name).write_text(plan.to_json())
        return folder / name

    work = Workload(prompt_tokens=8, output_tokens=4, context=64)
    large = work.model_copy(update={"batch": 64, "context": 2048})
    of = partial(make_plan, SHALLOW, weights="bf16", kv="bf16", hardware=machine)
    plan, cached, divided = of(workload=work), of(workload=large), of(2, workload=work)
    found = Places(
        folder,
        folder / "shallow",
        written("plan.json", plan),
        written("cached.json", cached),
        written("divided.json", divided),
        folder / "simulated.parquet",
        folder / "machine.json",
    )
    found.machine.write_text(machine.to_json())
    write_checkpoint(SHALLOW, found.shallow)
    assert sim.main([str(found.divided), "-q", "--trace", str(found.trace)]) == 0
    measured = as_measured(read_trace(found.trace))
    with found.trace.open("wb") as stream:
        write_trace(measured, stream)
    return found


def as_measured(trace: Trace) -> Trace:
    """What a run that is as fast as simulated would have been."""
    spans = [replace(span, source="measured") for span in trace.spans]
    return Trace(trace.info.model_copy(update={"source": "measured"}), spans)


@pytest.fixture(scope="module")
def whole(places: Places) -> tuple[Path, Path, Path]:
    """Plans of all blocks, on the CPU and divided, and their checkpoint."""
    work = Workload(prompt_tokens=8, output_tokens=4, context=64)
    hardware = make_hardware(ram=64 * GIB, vram=16 * GIB)
    of = partial(make_plan, MODEL, weights="bf16", kv="bf16", hardware=hardware, workload=work)
    plan, divided, checkpoint = places.folder / "whole.json", places.folder / "half.json", places.folder / "whole"
    plan.write_text(of().to_json())
    divided.write_text(of(14).to_json())
    write_checkpoint(MODEL, checkpoint)
    return plan, divided, checkpoint


Limited = Callable[[list[str]], list[str]]
"""A command line that a limit holds for."""


def entering(group: Path) -> Limited:
    return lambda argv: ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group), *argv]


def unlimited(argv: list[str]) -> list[str]:
    return argv


def ended(places: Places, argv: list[str], space: int | None = None) -> Ended:
    """What became of a process; `space`: bytes of address space that it may have."""
    done = subprocess.run(argv, capture_output=True, text=True, preexec_fn=_within(space), env=_environment(places))
    return Ended(done.returncode, done.stderr)


def _within(space: int | None) -> Callable[[], None] | None:
    return None if space is None else partial(resource.setrlimit, resource.RLIMIT_AS, (space, space))


def _environment(places: Places) -> dict[str, str]:
    return {**os.environ, "XDG_CACHE_HOME": str(places.folder / "profiles")}


def check(found: Ended, *codes: int) -> None:
    """One of those codes, and no more than a line of error."""
    assert found.code in (codes or (0, 3, 6)), found
    lines = [line for line in found.errors.splitlines() if "warning: " not in line]
    assert len(lines) == (found.code != 0), found
    assert all(": error: " in line for line in lines), found


def serve(places: Places, argv: list[str], space: int | None = None) -> Ended:
    """Ask a server for one answer, once it is there, and tell it to end."""
    ready = places.folder / "ready.json"
    ready.unlink(missing_ok=True)
    asked = [*argv, "-q", "--port", "0", "-o", str(ready)]
    errors, until = places.folder / "errors.txt", time.monotonic() + 300.0  # only a server that hangs takes so long
    with (
        errors.open("w") as stream,
        subprocess.Popen(asked, stderr=stream, preexec_fn=_within(space), env=_environment(places)) as process,
    ):
        while process.poll() is None and not ready.exists():
            if time.monotonic() > until:
                process.kill()
            time.sleep(0.02)
        if process.poll() is None:
            body = json.dumps({"prompt": "abc", "max_tokens": 4}).encode()
            url = json.loads(ready.read_text())["url"] + "/v1/completions"
            request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=120) as answer:
                assert answer.status == 200
            process.send_signal(signal.SIGTERM)
    return Ended(process.returncode, errors.read_text())


def outcome(places: Places, command: str, limited: Limited, space: int | None = None) -> Ended:
    """A command by its name, in its limits, on what matters of it."""
    run = partial(ended, places, space=space)
    at = "--checkpoint", places.shallow
    large = "--model", "Llama-3.1-70B", "--hw", "rtx4090-7950x", "--format", "q4_k", "-q"
    new = Path(tempfile.mkdtemp(dir=places.folder)) / "new"
    if command == "serve":
        return serve(places, limited(helm("serve", places.plan, *at, "--sequences", 4)), space)
    if command == "bench-serve":
        with background(VirtualEngine()) as url:
            few = "synthetic:n=8,input=16,output=8,rate=50"
            return run(limited(helm("bench-serve", "--url", url, "--requests", few, "-q", "-o", new)))
    lines = {
        "plan": ("plan", *large, "--strategy", "layer-split"),
        "plan best": ("plan", *large),
        "sim": ("sim", places.plan, "-q"),
        "sim serving": ("sim", places.plan, "--requests", "synthetic:n=2000,input=64,output=32,rate=2", "-q"),
        "run": ("run", places.plan, *at, "--text", "abcdefgh", "-q"),
        "run cached": ("run", places.cached, *at, *("--text", "abcdefgh") * 64, "-q"),
        "run traced": ("run", places.divided, *at, "--text", "abcdefgh", "-q", "--trace", new),
        "bench": ("bench", places.plan, *at, "-p", 8, "-n", 2, "-r", 1, "-q"),
        "check": ("check", places.divided, "--measured", places.trace, "--tolerance", 10, "-q"),
        "profile": ("profile", "-q"),
        "profile table": ("profile", "--model", MODEL.name, "-q"),
        "make-checkpoint": ("make-checkpoint", "--model", MODEL.name, "--layers", 1, "-q", "-o", new),
    }
    name, *arguments = lines[command]
    return run(limited(helm(str(name), *arguments)))


FITS = {
    "plan": 0,
    "plan best": 0,
    "sim": 0,
    "sim serving": 0,
    "run": GIB // 2,
    "bench": GIB // 2,
    "check": 0,
    "bench-serve": 0,
    "make-checkpoint": 0,
    "run cached": 4 * GIB,
    "run traced": 2 * GIB,
    "serve": 2 * GIB,
    "profile": 2 * GIB,
    "profile table": 4 * GIB,
}
"""From which limit on a command must end well."""
OFTEN = [(GIB // 2, "run")]
CELLS = [
    pytest.param(limit, command, marks=() if (limit, command) in OFTEN else pytest.mark.nightly)
    for command in FITS
    for limit in LIMITS
]


@pytest.mark.parametrize(("limit", "command"), CELLS)
def test_in_a_control_group(places: Places, limit: int, command: str) -> None:
    with limited_group(limit) as group:
        found = outcome(places, command, entering(group))
    check(found, *((0,) if limit >= FITS[command] else ()))


SPACE_OFTEN = [(GIB // 2, "make-checkpoint"), (GIB // 2, "run cached")]


@pytest.mark.parametrize(
    ("limit", "command"),
    [
        pytest.param(limit, command, marks=() if (limit, command) in SPACE_OFTEN else pytest.mark.nightly)
        for command in FITS
        for limit in LIMITS
    ],
)
def test_in_an_address_space(places: Places, limit: int, command: str) -> None:
    check(outcome(places, command, unlimited, limit))


@pytest.mark.nightly
@pytest.mark.parametrize("limit", [GIB // 2, GIB, *range(9 * GIB // 8, 3 * GIB // 2, GIB // 16), 2 * GIB])
def test_weights_about_as_large_as_the_limit(places: Places, whole: tuple[Path, Path, Path], limit: int) -> None:
    """1.19 GB on one device or on two, which share what there is."""
    *plans, checkpoint = whole
    for plan in plans:
        argv = helm("run", plan, "--checkpoint", checkpoint, "--text", "abcdefgh", "-q")
        with limited_group(limit) as group:
            check(ended(places, entering(group)(argv)), *((0,) if limit == 2 * GIB else ()))
