"""Engines side by side on one model file: llama-bench's tests in fresh processes that take turns, beside what Helm had
predicted."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median, stdev
from tempfile import TemporaryDirectory

from helmsman import __version__
from helmsman.analysis.ask_settings import settings_of
from helmsman.engines.ask_run import check_gguf
from helmsman.engines.llama_command import LlamaCommand
from helmsman.engines.predicted_tests import predicted_rate
from helmsman.engines.programs import DRIVEN, find_program
from helmsman.engines.sides import EngineSide, HelmSide, PackageSide, llama_side
from helmsman.executor.measuring.bench import Test, weight_bytes
from helmsman.executor.measuring.bench_report import backends_of, model_type
from helmsman.executor.measuring.host_facts import facts_here
from helmsman.executor.system.interference import cpu_times, others_share
from helmsman.executor.system.machine import Machine
from helmsman.gate.interleaving import alternating
from helmsman.lowering.tensors import parameters
from helmsman.planner.decide import decide
from helmsman.planner.machine import without_loopback
from helmsman.planner.read_request import request_from
from helmsman.planner.settings.plan_places import PlanPlaces
from helmsman.schemas.engine_bench import BenchedEngine, EngineBench, EngineTest
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import Plan
from helmsman.this_machine import this_machine

HELM = "helm"
"""The name of Helm's own executor among engines."""
BENCHED = (HELM, *DRIVEN)
"""Engines that are compared here."""

MOST_REPETITIONS = 1000


@dataclass(frozen=True)
class BenchEntrant:
    """An engine with a plan of its own for the file, what runs it, and the seconds of every test in each of its
    processes. `predicts`: whether the plan's speed is this engine's."""

    engine: str
    program: str
    settings: str
    plan: Plan
    side: EngineSide
    predicts: bool = True
    seconds: list[tuple[float, ...]] = field(default_factory=list)


def compare_engines(
    model: Path,
    tests: Sequence[Test],
    engines: Sequence[str] = (HELM, "llama.cpp"),
    *,
    repetitions: int = 5,
    pythons: Mapping[str, Path] | None = None,
    hardware: Hardware | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> EngineBench:
    """Return the speeds of a GGUF file in several engines, `repetitions` fresh processes of each, in turns.

    Helm and llama.cpp run with the plans and settings that Helm makes for this machine, or for `hardware`; others as
    they choose, on as many processors. `pythons`: interpreters by engine that have its package. Raises UsageError for
    engines and numbers that make no sense, BadInputError for a file that an engine does not load,
    HardwareUnavailableError where an engine is not there."""
    unknown = next((name for name in engines if name not in BENCHED), None)
    if unknown is not None or not engines:
        remedy = f"use some of {', '.join(BENCHED)}"
        raise UsageError("no engine that is compared", field="engine", value=unknown, remedy=remedy)
    if not 1 <= repetitions <= MOST_REPETITIONS:
        remedy = f"use 1 to {MOST_REPETITIONS}"
        raise UsageError("out of range", field="repetitions", value=repetitions, remedy=remedy)
    if not tests:
        raise UsageError("there is nothing to test", field="tests", remedy="give a number above 0")
    check_gguf(model)
    record, here, shares = without_loopback(hardware or this_machine()), facts_here(Machine.this()), list[float]()
    with _entrants(model, tests, tuple(dict.fromkeys(engines)), dict(pythons or {}), record) as entrants:
        for entrant in alternating(entrants, repetitions):
            before = cpu_times()
            entrant.seconds.append(entrant.side.seconds(tests))
            share = others_share(before, cpu_times())
            shares += [] if share is None else [share]
            tell(entrant.engine)
        plan = entrants[0].plan
        return EngineBench(
            machine=str(here),
            model_filename=str(model)[-200:],
            model_type=model_type(plan),
            model_size=weight_bytes(plan),
            model_n_params=parameters(plan.model),
            repetitions=repetitions,
            engines=tuple(_benched(entrant, tests) for entrant in entrants),
            others_cpu_share=median(shares) if shares else None,
        )


@contextmanager
def _entrants(
    model: Path, tests: Sequence[Test], engines: Sequence[str], pythons: Mapping[str, Path], hardware: Hardware
) -> Iterator[list[BenchEntrant]]:
    """Yield the engines, ready to run; a plan that Helm's process reads is a file meanwhile."""
    context = max(test.context for test in tests)
    prompt = max(1, *(test.prompt or test.depth for test in tests))
    question: dict[str, object] = {"model": str(model), "hardware": hardware, "context": context}
    question |= {"prompt_tokens": prompt, "output_tokens": context - prompt}
    alone = all(device.kind == "cpu" for device in hardware.devices)
    with TemporaryDirectory() as folder:
        entrants = []
        for engine in engines:
            if engine == "llama.cpp":
                program = find_program(engine, "tests", pythons.get(engine))
                request = request_from({**question, "engine": engine})
                plan = decide(request).plan
                text = settings_of(plan, engine, request).text.strip()
                side = llama_side(program, LlamaCommand.of(text), model, context)
                entrants.append(BenchEntrant(engine, program.title, text, plan, side))
                continue
            plan = decide(request_from({**question, "strategy": "cpu-only" if alone else "optimal"})).plan
            if engine == HELM:
                place = Path(folder) / "plan.json"
                place.write_text(plan.to_json())
                entrants.append(BenchEntrant(engine, f"Helm {__version__}", "", plan, HelmSide(place, model)))
            else:
                program = find_program(engine, "tests", pythons.get(engine))
                given: dict[str, object] = {"model": str(model.absolute()), "threads": _threads(plan)}
                entrants.append(BenchEntrant(engine, program.title, "", plan, PackageSide(program, given), False))
        yield entrants


def _threads(plan: Plan) -> int:
    return PlanPlaces(plan).threads or len(Machine.this().cpus)


def _benched(entrant: BenchEntrant, tests: Sequence[Test]) -> BenchedEngine:
    rows = [_result(test, [seconds[place] for seconds in entrant.seconds], entrant) for place, test in enumerate(tests)]
    return BenchedEngine(
        engine=entrant.engine,
        program=entrant.program,
        settings=entrant.settings,
        backends=backends_of(entrant.plan),
        n_threads=_threads(entrant.plan),
        results=tuple(rows),
    )


def _result(test: Test, seconds: Sequence[float], entrant: BenchEntrant) -> EngineTest:
    rates = [(test.prompt or test.steps) / one for one in seconds]
    nanoseconds = [one * 1e9 for one in seconds]
    several = len(seconds) > 1
    return EngineTest(
        n_prompt=test.prompt,
        n_gen=test.steps,
        n_depth=test.depth,
        avg_ns=fmean(nanoseconds),
        stddev_ns=stdev(nanoseconds) if several else 0.0,
        avg_ts=fmean(rates),
        stddev_ts=stdev(rates) if several else 0.0,
        samples_ns=tuple(nanoseconds),
        predicted_ts=predicted_rate(entrant.plan, test) if entrant.predicts else None,
    )
