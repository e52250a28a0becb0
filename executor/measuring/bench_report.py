"""The report of `helm-bench`, as a document and as llama-bench's table."""

from collections.abc import Iterable, Sequence

from helmsman import __version__
from helmsman.executor.engine import Engine
from helmsman.executor.measuring.bench import Test, weight_bytes
from helmsman.hwdb.machine_line import MachineFacts
from helmsman.lowering.tensors import parameters
from helmsman.schemas.bench import Bench, BenchTest
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest

_GIB = 2**30


def table(bench: Bench) -> str:
    """llama-bench's columns in Markdown."""
    head = ("model", "size", "params", "backend", "threads", "test", "t/s")
    return markdown_table(head, [_row(bench, test) for test in bench.results], ("model", "backend"))


def markdown_table(head: Sequence[str], cells: Sequence[Sequence[str]], to_the_left: Sequence[str]) -> str:
    """Return a table as llama-bench writes it; columns named `to_the_left` begin there, all others end at the right."""
    rows = [head, *cells]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    left = [name in to_the_left for name in head]
    lines = [" | ".join(_cell(*cell) for cell in zip(row, widths, left, strict=True)) for row in rows]
    rule = " | ".join(
        "-" * width if is_left else "-" * (width - 1) + ":" for width, is_left in zip(widths, left, strict=True)
    )
    return "\n".join(f"| {line} |" for line in (lines[0], rule, *lines[1:]))


def _cell(text: str, width: int, left: bool) -> str:
    return text.ljust(width) if left else text.rjust(width)


def _row(bench: Bench, test: BenchTest) -> tuple[str, ...]:
    name = Test(test.n_prompt, test.n_gen, test.n_depth).name
    size, params = size_text(bench.model_size), parameter_count(bench.model_n_params)
    speed = f"{test.avg_ts:.2f} ± {test.stddev_ts:.2f}"
    return bench.model_type, size, params, bench.backends, str(bench.n_threads), name, speed


def size_text(size: int) -> str:
    """Return bytes of weights as llama-bench writes them."""
    return f"{size / _GIB:.2f} GiB"


def parameter_count(count: int) -> str:
    """Return a number of parameters as llama-bench writes it."""
    return f"{count / 1e9:.2f} B" if count >= 1e9 else f"{count / 1e6:.2f} M"


def model_type(plan: Plan) -> str:
    """Return a plan's model with the formats of its weights."""
    return f"{plan.model.name} {'+'.join(dict.fromkeys(rule.format for rule in plan.residence))}"[:200]


def backends_of(plan: Plan, names: Iterable[str] | None = None) -> str:
    """Return the kinds of a plan's devices of these names, by default of those that compute."""
    used = {rule.device for rule in plan.compute} if names is None else set(names)
    return "+".join(dict.fromkeys(device.kind for device in plan.hardware.devices if device.name in used))


def bench_document(engine: Engine, checkpoint: str, facts: MachineFacts, results: tuple[BenchTest, ...]) -> Bench:
    """The document of what was measured of the engine's plan with a checkpoint, on the machine of these facts."""
    plan, devices = engine.plan, engine.devices.by_name
    caches = dict.fromkeys(rule.format for rule in plan.kv)
    return Bench(
        version=__version__,
        cpu_info=facts.cpu,
        machine=str(facts)[:200],
        model_filename=checkpoint[-200:],
        model_type=model_type(plan),
        model_size=weight_bytes(plan),
        model_n_params=parameters(plan.model),
        backends=backends_of(plan, devices),
        n_threads=max(1, len({cpu for device in devices.values() for cpu in device.cpus})),
        n_batch=plan.workload.batch * plan.workload.batches,
        type_k="+".join(caches),
        type_v="+".join(caches),
        label=plan.label[:200],
        plan_sha256=digest(plan),
        results=results,
    )
