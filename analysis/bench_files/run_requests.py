"""Measured runs as questions to the planner, and refusals of what is about another machine or another model."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from helmsman.analysis.ask_settings import same_request
from helmsman.analysis.bench_files.measured_run import MeasuredRun
from helmsman.hwdb.catalogue import find_cpu, reported_gpus
from helmsman.hwdb.device_names import read_name
from helmsman.hwdb.load_model import entry_name, load_model
from helmsman.hwdb.model_names import stated_format
from helmsman.lowering.tensors import parameters
from helmsman.planner.options import recorded
from helmsman.planner.read_request import machine_of, read_question, request_from
from helmsman.planner.registry import ENGINES, strategy_of
from helmsman.planner.request import PlanRequest
from helmsman.schemas.errors import HelmError, UsageError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Plan
from helmsman.schemas.plan_question import PlanQuestion, Value

_SAME_SIZE = 0.03
"""Part by which counts of parameters of one model may differ: some count embeddings once, some twice."""


@dataclass(frozen=True)
class CalibrationSubject:
    """Holds what results do not state of their runs: the machine, the engine, the model (None: each result names its
    own), formats, tokens of prompt and output, and options of the engine; `plan`: what the runs carried out, in place
    of all that."""

    hardware: Hardware
    engine: str
    model: Model | None = None
    format: str | None = None
    kv: str = "f16"
    prompt: int = 128
    output: int = 128
    prefix: int = 0
    batch: int = 1
    options: Mapping[str, Value] = field(default_factory=dict)
    plan: Plan | None = None


UNNAMED = "-"
"""Stands for a model in questions whose results name theirs."""


def subject_of(
    question: PlanRequest[Any] | PlanQuestion | Mapping[str, object], this: Callable[[], Hardware]
) -> CalibrationSubject:
    """Return what a question says of runs; `this`: gives the machine at hand. Raises what reading a question raises,
    UsageError for a strategy that no engine carries out."""
    if isinstance(question, PlanRequest):
        work, options = question.workload, dict(recorded(question.options))
        return CalibrationSubject(
            question.hardware, _engine_of(None, question.strategy), question.model, question.weights, question.kv,
            work.prompt_tokens, work.output_tokens, work.prefix_tokens, work.batch, options,
        )  # fmt: skip
    held = question if isinstance(question, Mapping) else {}
    read = question if isinstance(question, PlanQuestion) else read_question(question)
    machine, model = held.get("hardware"), held.get("model")
    hardware = machine_of(read, this, machine if isinstance(machine, Hardware) else None)
    known = model if isinstance(model, Model) else None if read.model == UNNAMED else load_model(read.model)
    if isinstance(read.batch, str):
        raise UsageError("runs have one", field="batch", value=read.batch, remedy="give a number")
    return CalibrationSubject(
        hardware, _engine_of(read.engine, read.strategy), known, read.format, read.kv_format, read.prompt_tokens,
        read.output_tokens, read.prefix_tokens, read.batch, dict(read.options),
    )  # fmt: skip


def _engine_of(engine: str | None, strategy: str) -> str:
    """Return the engine that is named, or that a strategy plans for. Raises UsageError where there is none."""
    if engine is not None and engine != "ours":
        strategy_of(engine, strategy)
        return engine
    known = next((name for name, own in ENGINES.items() if own == strategy and name != "ours"), None)
    if known is None:
        remedy = f"use one of {', '.join(name for name in ENGINES if name != 'ours')}; helm-profile measures ours"
        raise UsageError("has no constants to calibrate", field="engine", value=engine or strategy, remedy=remedy)
    return known


def _request_of_plan(plan: Plan, subject: CalibrationSubject) -> PlanRequest[Any]:
    """Return the question whose answer a plan is, on the subject's machine. Raises UsageError for a plan of another
    engine or machine."""
    strategy = ENGINES[subject.engine]
    if plan.strategy.name != strategy:
        problem, remedy = f"is a plan of {plan.strategy.name}", f"plan with `engine` {subject.engine}"
        raise UsageError(problem, field="plan", remedy=remedy)
    for device in plan.hardware.devices:
        same = (other for other in subject.hardware.devices if other.name == device.name)
        if next((other.product for other in same), None) != device.product:
            problem, remedy = f"is for {device.product or device.name}", "name the machine that ran it"
            raise UsageError(problem, field="plan", value=subject.hardware.name, remedy=remedy)
    return same_request(plan, subject.hardware)


def request_of_run(run: MeasuredRun, subject: CalibrationSubject) -> PlanRequest[Any]:
    """Return the question whose plan a run carried out. Raises UsageError for a run on another machine or of another
    model, and for what the planner does not know."""
    if subject.plan is not None:
        return _request_of_plan(subject.plan, subject)
    _check_machine(run, subject.hardware)
    model = _model(run, subject)
    options = {name: value for name, value in {**run.options, **subject.options}.items() if value is not None}
    options |= {"build_era": run.era} if run.era and subject.engine == "llama.cpp" else {}
    prompt, output = run.prompt or subject.prompt, run.output or subject.output
    question = {
        "model": model.model_copy(update={"max_context": max(model.max_context, prompt + output)}),
        "hardware": subject.hardware,
        "engine": subject.engine,
        "format": subject.format or _format(run) or "f16",
        "kv_format": run.kv or subject.kv,
        "prompt_tokens": prompt,
        "output_tokens": output,
        "prefix_tokens": run.prefix if run.prompt else subject.prefix,
        "batch": run.batch or subject.batch,
        "options": options,
    }
    return request_from(question)


def _format(run: MeasuredRun) -> str | None:
    return run.format or (stated_format(run.model) if run.model else None)


def _check_machine(run: MeasuredRun, hardware: Hardware) -> None:
    """Raise UsageError where a run names a GPU that the machine has not, or a processor that worked and is another."""
    products = [device.product or device.name for device in hardware.devices if device.kind != "cpu"]
    for name in run.gpus:
        if not any(_same_gpu(name, product) for product in products):
            has = f"has {', '.join(products)}" if products else "has no GPU"
            raise UsageError(f"ran on {name}, and {hardware.name} {has}", remedy="name the machine that ran it")
    host = next((device.product for device in hardware.devices if device.kind == "cpu"), None)
    if run.cpu and host and not (run.gpus and run.whole) and not _same_cpu(run.cpu, host):
        problem = f"ran on {run.cpu}, and {hardware.name} has {host}"
        raise UsageError(problem, remedy="name the machine that ran it")


def _same_gpu(name: str, product: str) -> bool:
    return product in reported_gpus(name, None) or read_name(name).key == read_name(product).key


def _same_cpu(name: str, product: str) -> bool:
    plain = re.sub(r"^\dx ", "", product)
    if read_name(name).key == read_name(plain).key:
        return True
    try:
        return find_cpu(name)[0].name == plain
    except HelmError:
        return False


def _model(run: MeasuredRun, subject: CalibrationSubject) -> Model:
    """Return the model of a run: that of the subject where it names none, or the same. Raises UsageError for another
    one, and where none is known."""
    entry = entry_name(run.model) if run.model else None
    if subject.model is None:
        if entry is None:
            problem = f"is of {run.model or 'a model that it does not name'}"
            raise UsageError(problem, remedy="say which with `model`")
        return load_model(entry)
    counted = parameters(subject.model)
    sized = run.parameters is None or abs(run.parameters / counted - 1.0) <= _SAME_SIZE
    if (entry is None and not sized) or (entry is not None and entry_name(subject.model.name) not in (entry, None)):
        problem = f"is of {entry or run.model or run.parameters}, and not of {subject.model.name}"
        raise UsageError(problem, remedy="leave `model` out, or give the one that ran")
    return subject.model
