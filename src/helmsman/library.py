"""Helm as functions: each takes names or documents, and returns documents.

Errors are `HelmError`: UsageError for what makes no sense, BadInputError for a document or file that cannot be
accepted, InfeasibleError, with the smallest change that would do, where nothing fits."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from helmsman.hwdb import load_hardware as records
from helmsman.hwdb import load_model as models
from helmsman.library_questions import (
    Asked,
    AskedServing,
    checked_seeds,
    compared_names,
    given_plan,
    given_request,
    named_engine,
    serving_question,
    with_model_place,
    with_settings_format,
)
from helmsman.models_here import model_place
from helmsman.planner.decide import decide
from helmsman.planner.decision import Decision
from helmsman.planner.read_request import machine_of, read_question
from helmsman.planner.registry import check_no_engine, method
from helmsman.planner.request import PlanRequest
from helmsman.schemas.comparison import Comparison
from helmsman.schemas.engine_settings import EngineSettings, SettingsReading
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Plan
from helmsman.schemas.serving import ServingCapacity, ServingCount, ServingReport
from helmsman.this_machine import this_machine

if TYPE_CHECKING:
    from helmsman.analysis.ask_calibration import Calibration
    from helmsman.executor.ask_run import Execution
    from helmsman.executor.text.sampling import Sampling
    from helmsman.schemas.check_report import CheckReport
    from helmsman.schemas.doctor_report import DoctorReport
    from helmsman.schemas.replay_report import ReplayReport
    from helmsman.schemas.trace import Trace

MOST_TOLERANCE = 10.0


def load_model(name: str | Path) -> Model:
    """Return the model of a name of the catalogue, a checkpoint's directory, a GGUF file or a document, or of
    `local:NAME`, a model that an engine has on this disk.

    >>> load_model("Qwen3-8B").layers
    36
    """
    return models.load_model(model_place(str(name)))


def load_hardware(name: str | Path, profiles: Path | None = None) -> Hardware:
    """Return the machine of a name of the catalogue or of a record's file; `this`: the newest profile of the machine at
    hand, in the folder `profiles` or where helm-profile leaves them, and without one its parts as they are found.

    >>> load_hardware("rtx4060-laptop").memory("vram").capacity
    8589934592
    """
    return this_machine(profiles) if str(name) == records.THIS else records.load_hardware(str(name), None)


def compose_hardware(
    cpu: str | None,
    ram: int | str,
    gpu: str | None = None,
    link: str | None = None,
    peer: float | str | None = None,
    memory: str | None = None,
) -> Hardware:
    """Return a machine of listed parts; `ram`: bytes, or with a unit, `64GB`; `cpu` None: that in whose chip `gpu` is;
    `link`, `peer`, `memory`: as in `ComposedMachine`.

    >>> compose_hardware("AMD Ryzen 9 5950X", 64 * 10**9, "RTX 3090").name
    'rtx3090-amdryzen95950x'
    """
    parts = {"cpu": cpu, "ram": ram, "gpu": gpu, "link": link, "peer": peer, "memory": memory}
    given = {name: value for name, value in parts.items() if value is not None}
    return machine_of(read_question({"model": "-", "hardware": given}))


def diagnose(repair: bool = False) -> "DoctorReport":
    """Return what this machine is, what of Helm works on it, and what is missing for the rest, with a remedy each, as
    helm-doctor prints it; `repair`: make folders that are missing first.

    >>> diagnose().needs[0].ready
    True
    """
    from helmsman.detection.system import ObservedSystem
    from helmsman.diagnosis import diagnose as diagnosed
    from helmsman.diagnosis import loaded_kernels, now, profiles_place

    return diagnosed(ObservedSystem.here(), profiles_place(), loaded_kernels(), now(), repair)


def plan(question: Asked) -> Decision:
    """Return the best plan for a question, with what it was chosen from.

    >>> decision = plan({"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "strategy": "layer-split"})
    >>> decision.plan.label
    'cpu(1)->cuda(29)'
    """
    return decide(given_request(question))


def compare(
    question: Asked,
    strategies: Sequence[str] | None = None,
    options: Mapping[str, str | int | float | bool] | None = None,
    most: int | None = None,
) -> Comparison:
    """Return what several strategies answer, the best first; all of Helm's own by default.

    `options`: of any of them, for those that have it; `most`: also plans for larger batches, up to as many sequences.

    >>> found = compare({"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop"}, ["layer-split", "llama-cpp"])
    >>> [row.verdict for row in found.rows]
    ['fits', 'fits']
    """
    from helmsman.analysis.ask_strategies import check_several
    from helmsman.analysis.ask_strategies import compare as compared

    check_no_engine(named_engine(question))
    request, names = given_request(question), compared_names(strategies)
    given = {name: value for name, value in dict(options or {}).items() if value is not None}
    check_several(given, several=True)
    if request.batch is not None or request.batches is not None:
        raise UsageError("every strategy has one of its own", field="batch", value="max, best", remedy="give a number")
    if request.options != method(request.strategy).options():
        raise UsageError("are those of one strategy", field="options", remedy="give them to compare(options=...)")
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < request.workload.batch):
        remedy = f"use {request.workload.batch}, the question's own, or more"
        raise UsageError("not a number of sequences", field="most", value=most, remedy=remedy)
    return compared(request, names, given, most)


def emit(asked: Plan | Decision | Asked, engine: str) -> EngineSettings:
    """Return the command or file with which an engine carries out a plan, or the best plan for a question; what it
    cannot say of it, and what that costs.

    `engine`: llama.cpp, ollama, lm-studio, vllm, sglang, accelerate, deepspeed, ktransformers, freetoken or exllamav3.
    What is lost is priced on the machine that the plan was made for.

    >>> question = {"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "strategy": "llama-cpp"}
    >>> emit(question, "llama.cpp").text.split()[:3]
    ['llama-server', '-ngl', '29']
    """
    from helmsman.analysis.ask_settings import settings_of

    if isinstance(asked, Plan | Decision):
        return settings_of(given_plan(asked), engine)
    request = given_request(asked)
    return settings_of(decide(request).plan, engine, request)


def read_settings(given: str | Path, question: Asked) -> SettingsReading:
    """Return the prediction for settings of another engine, beside the plan for a question.

    `given`: a command, a file or the address of a llama-server; the question says the model, the machine, the formats
    and how many tokens. Where neither it nor the model's name states a format of weights, it is the one that the
    settings state in the name of what they run.

    >>> question = {"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "strategy": "llama-cpp"}
    >>> reading = read_settings("llama-server -ngl 4 -c 4096", question)
    >>> reading.yours.speed.decode_rate.mid < reading.best.speed.decode_rate.mid
    True
    """
    from helmsman.analysis.ask_settings import reading_of
    from helmsman.settings_text import settings_text

    text = settings_text(str(given))
    question, stated = with_settings_format(question, text)
    return reading_of(text, given_request(question), stated)


def calibrate(
    question: Asked,
    decode: float | None = None,
    prefill: float | None = None,
    results: Sequence[str | Path] = (),
) -> "Calibration":
    """Return the record of a question's machine with the engine's constants as runs on it had them, and a report of
    how much narrower predictions became.

    `decode`, `prefill`: tokens/s that were measured of steps and of the prompt of the question; `results`: files of
    llama-bench, `vllm bench` or AIPerf, whose models are the question's, or those that they name where it has none
    (`"model": "-"`). Plans on the record for the same engine are priced with them, and are more certain.

    >>> machine = compose_hardware("AMD Ryzen 9 5950X", 64 * 10**9, "RTX 3090")
    >>> asked = {"model": "Qwen3-8B", "hardware": machine, "format": "q4_k", "engine": "llama.cpp"}
    >>> calibrate(asked, decode=95).hardware.calibrations[0].engine
    'llama.cpp'
    """
    from helmsman.analysis.ask_calibration import calibration, runs_by_hand
    from helmsman.analysis.bench_files.read import read_results
    from helmsman.analysis.bench_files.run_requests import subject_of

    subject = subject_of(question if isinstance(question, PlanRequest) else with_model_place(question), this_machine)
    runs = [*runs_by_hand(decode, prefill), *(run for path in results for run in read_results(Path(path)))]
    return calibration(subject, runs)


def simulate(plan: Plan | Decision) -> "ReplayReport":
    """Return what a replay of all steps of a plan in virtual time gives, as `helm-sim --json` prints it.

    >>> from helmsman import plan
    >>> simulate(plan({"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "strategy": "layer-split"})).ttft_s > 0
    True
    """
    from helmsman.planner.cost.plan_costs import cost_model
    from helmsman.simulator.drafts import simulate_drafts
    from helmsman.simulator.pricing import median_price
    from helmsman.simulator.report import document
    from helmsman.simulator.stream import simulate as replayed
    from helmsman.simulator.synchronisation import synchronisation

    plan = given_plan(plan)
    costs = cost_model(plan)
    stream = replayed(plan, median_price(plan), costs.between(), slowed=costs.slowed())
    drafts = simulate_drafts(plan, max(1, plan.workload.decode_steps))
    return document(plan, stream, synchronisation(plan), drafts=drafts)


def serve_simulation(plan: Plan | Decision, question: AskedServing) -> ServingReport:
    """Return what becomes of requests that replicas of a plan serve in virtual time.

    >>> from helmsman import plan
    >>> decision = plan({"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "strategy": "layer-split"})
    >>> report = serve_simulation(decision, {"requests": "synthetic:n=20,input=64,output=16,rate=2"})
    >>> report.counts.finished
    20
    """
    from helmsman.analysis.ask_serving import served, study_of

    return served(study_of(given_plan(plan), serving_question(question)))[1]


def find_capacity(plan: Plan | Decision, question: AskedServing, seeds: int | None = None) -> ServingCapacity:
    """Return the maximum rate at which replicas of a plan keep the question's `slo`.

    `seeds`: the number of draws of arrivals, where these are drawn, of as many requests as the question has; by
    default runs become longer and draws more until neither changes much, as `converged` says.

    >>> from helmsman import plan
    >>> decision = plan({"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "strategy": "layer-split"})
    >>> asked = {"requests": "synthetic:n=200,input=512,output=16,rate=2", "slo": "ttft=300ms"}
    >>> find_capacity(decision, asked, seeds=2).rate > 1
    True
    """
    from helmsman.analysis.ask_capacity import capacity
    from helmsman.analysis.ask_serving import study_of

    return capacity(study_of(given_plan(plan), serving_question(question)), checked_seeds(seeds))


def find_users(plan: Plan | Decision, question: AskedServing, seeds: int | None = None) -> ServingCount:
    """Return the most users with whom replicas of a plan keep the question's `slo`, where each thinks for `think`
    between an answer and the next request.

    `seeds`: as of `find_capacity`. More than half of the draws keep the SLO with as many users.

    >>> from helmsman import plan
    >>> decision = plan({"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "strategy": "layer-split"})
    >>> asked = {"requests": "synthetic:n=400,input=512,output=16", "think": "1s", "slo": "ttft=200ms"}
    >>> find_users(decision, asked, seeds=2).count > 1
    True
    """
    from helmsman.analysis.ask_capacity import most_users
    from helmsman.analysis.ask_serving import study_of

    return most_users(study_of(given_plan(plan), serving_question(question)), checked_seeds(seeds))


def find_replicas(plan: Plan | Decision, question: AskedServing, seeds: int | None = None) -> ServingCount:
    """Return the fewest replicas of a plan that keep the question's `slo` at its `rate`, or for its `users`.

    `seeds`: as of `find_capacity`. More than half of the draws keep the SLO with as many replicas.

    >>> from helmsman import plan
    >>> decision = plan({"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "strategy": "layer-split"})
    >>> asked = {"requests": "synthetic:n=200,input=512,output=16", "rate": 100.0, "slo": "ttft=300ms"}
    >>> find_replicas(decision, asked, seeds=2).count > 1
    True
    """
    from helmsman.analysis.ask_capacity import fewest_replicas
    from helmsman.analysis.ask_serving import study_of

    return fewest_replicas(study_of(given_plan(plan), serving_question(question)), checked_seeds(seeds))


def profile(loopback: str | None = None, storage: Sequence[str | Path] = ()) -> Hardware:
    """Measure this machine for a minute or two and return its record; `loopback`: settings of an accelerator made of
    some of its cores, as `cores=1,vram=512MiB,link=2GB/s,latency=20us`, some of them or ""; `storage`: folders whose
    disks are read at random places.

    >>> [device.name for device in profile().devices]
    ['cpu']
    """
    from datetime import UTC, datetime

    from helmsman.executor.profile.run import profile as measured
    from helmsman.executor.profile.settings import Loopback
    from helmsman.executor.system.machine import Machine

    settings = None if loopback is None else Loopback.parse(loopback) if loopback else Loopback()
    folders = [Path(folder) for folder in storage]
    return measured(Machine.this(), settings, f"{datetime.now(UTC):%Y-%m-%d}", folders=folders)


def run(
    plan: Plan | Decision,
    checkpoint: str | Path,
    prompts: str | Sequence[str] | Sequence[Sequence[int]],
    *,
    output_tokens: int | None = None,
    runs: int = 1,
    ignore_eos: bool = False,
    sampling: "Sampling | None" = None,
    seed: int = 0,
) -> "Execution":
    """Execute a plan on this machine: its tokens, times and, of several `runs`, the Trace with probes beside them.

    `prompts`: texts or token ids, one for every sequence of the plan's batch; `output_tokens`: the plan's by default;
    `sampling`: the likeliest tokens by default. The weights are loaded and freed again. With a `decision` for this
    machine and a `checkpoint` of its model:

    >>> len(run(decision, checkpoint, [[7, 3, 11]], output_tokens=4, ignore_eos=True).tokens[0])
    4
    """
    from helmsman.executor.ask_run import run as executed

    listed: list[str | Sequence[int]] = [prompts] if isinstance(prompts, str) else [*prompts]
    return executed(given_plan(plan), Path(checkpoint), listed, output_tokens, runs, ignore_eos, sampling, seed)


def check(plan: Plan | Decision, measured: "Trace | Execution", tolerance: float = 0.08) -> "CheckReport":
    """Return predicted, simulated and measured seconds of a plan term by term, and the verdict, as `helm-check --json`
    prints it: `passed`, `missed` or `disturbed`. `measured`: several runs, or the Trace of some.

    >>> runs = run(decision, checkpoint, [[7, 3, 11]], output_tokens=4, runs=2, ignore_eos=True)
    >>> check(decision, runs).verdict in ("passed", "missed", "disturbed")
    True
    """
    from helmsman.analysis.check import check as checked
    from helmsman.analysis.report import document
    from helmsman.planner.cost.plan_costs import cost_model
    from helmsman.schemas.trace import Trace

    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0.0 < tolerance <= MOST_TOLERANCE:
        raise UsageError(f"must be between 0 and {MOST_TOLERANCE:g}", field="tolerance", value=tolerance)
    plan = given_plan(plan)
    if not isinstance(measured, Trace) and not hasattr(measured, "trace"):
        raise UsageError(
            "neither runs nor a Trace", field="measured", value=measured, remedy="give what run() returned"
        )
    trace = measured if isinstance(measured, Trace) else measured.trace()
    return document(plan, checked(plan, cost_model(plan), trace, None, tolerance, ("measured", "simulated")))
