"""Runs a plan through an engine that people have: its settings, fresh processes, and what they show as a Trace."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from helmsman.analysis.ask_settings import settings_of
from helmsman.engines.engine_process import engine_process, worker_command
from helmsman.engines.engine_run import EngineRun, engine_trace
from helmsman.engines.llama_command import LlamaCommand
from helmsman.engines.llama_server import run_server
from helmsman.engines.programs import EngineProgram, find_program
from helmsman.engines.read_probes import read_probe
from helmsman.executor.measuring.host_facts import facts_here
from helmsman.executor.system.interference import disturbance, moment, others_share
from helmsman.executor.system.machine import Machine
from helmsman.hwdb.gguf_paths import is_gguf
from helmsman.schemas.engine_names import EngineName
from helmsman.schemas.engine_settings import EngineSettings
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.plan import Plan
from helmsman.schemas.run_report import EngineUse, RunReport, RunTimes
from helmsman.schemas.trace import Probe, Trace

RUN_BY: EngineName = "llama.cpp"
"""The engine through which plans are run."""

Tell = Callable[[int], None]
"""Gets every token of the first run."""


@dataclass(frozen=True)
class EngineExecution:
    """Runs of one prompt of `prompt_tokens` by an engine with `settings` that stand for `plan`, the probes beside them,
    and notes on each."""

    plan: Plan
    settings: EngineSettings
    program: EngineProgram
    prompt_tokens: int
    runs: tuple[EngineRun, ...]
    probes: tuple[Probe, ...]
    notes: dict[str, str | int | float]

    def trace(self) -> Trace:
        """Return when every pass began and ended, and what probes read beside the runs."""
        return engine_trace(self.plan, self.program.engine, self.prompt_tokens, self.runs, self.probes, self.notes)

    def document(self, text: tuple[str, ...] | None = None) -> RunReport:
        """Return the report of the runs; `text`: of the first one's tokens."""
        times = tuple(RunTimes(ttft_s=run.ttft_s, tpot_s=run.tpot_s, tokens_per_second=_rate(run)) for run in self.runs)
        steps = [run.tpot_s for run in self.runs if run.tpot_s is not None]
        rates = [rate for rate in map(_rate, self.runs) if rate is not None]
        resident = max((run.resident for run in self.runs if run.resident is not None), default=None)
        return RunReport(
            tokens=(self.runs[0].tokens,),
            text=text,
            ttft_s=median(run.ttft_s for run in self.runs),
            tpot_s=median(steps) if steps else None,
            tokens_per_second=median(rates) if rates else None,
            runs=times,
            engine=EngineUse(
                name=self.program.engine,
                program=self.program.title,
                settings=self.settings.text.strip(),
                differences=self.settings.differences,
                resident_bytes=resident,
            ),
        )


def _rate(run: EngineRun) -> float | None:
    return 1.0 / run.tpot_s if run.tpot_s else None


def run_engine(
    plan: Plan,
    checkpoint: Path,
    prompt: Sequence[int],
    *,
    engine: str = RUN_BY,
    python: Path | None = None,
    output_tokens: int | None = None,
    runs: int = 1,
    ignore_eos: bool = False,
    tell: Tell = lambda _: None,
) -> EngineExecution:
    """Run a plan through an engine, each run in a fresh process, with a probe of this machine's memory before it and
    after it.

    `prompt`: token ids of the one sequence; `python`: an interpreter that has the engine's package, by default this
    one, else a program on the path. Raises UsageError for a plan that is not of one sequence, BadInputError for a file
    that the engine does not load, HardwareUnavailableError where the engine is not there."""
    output = plan.workload.output_tokens if output_tokens is None else output_tokens
    check_engine_run(plan, checkpoint, engine, len(prompt), output)
    program = find_program(engine, "run", python)
    settings = settings_of(plan, RUN_BY)
    command, machine = LlamaCommand.of(settings.text), Machine.this()
    made, probes = list[EngineRun](), list[Probe]()
    notes: dict[str, str | int | float] = {"engine_program": program.title, **facts_here(machine).notes}
    for number in range(runs):
        probes.append(read_probe(plan, machine, number))
        before = moment()
        hear = tell if number == 0 else _unheard
        if program.kind == "package":
            made.append(_run_package(program, command, plan, checkpoint, prompt, output, ignore_eos, hear))
        else:
            flags = command.server_words()
            made.append(run_server(program.path, flags, checkpoint, prompt, output, ignore_eos, hear))
        after = moment()
        notes[f"disturbance.{number}"] = disturbance(before, after)
        share = others_share(before.times, after.times)
        if share is not None:
            notes[f"others_cpu_share.{number}"] = share
        probes.append(read_probe(plan, machine, number))
    return EngineExecution(plan, settings, program, len(prompt), tuple(made), tuple(probes), notes)


def _unheard(_: int) -> None:
    """Drop a token of a run after the first."""


def check_engine_run(plan: Plan, checkpoint: Path, engine: str, prompt_tokens: int, output_tokens: int) -> None:
    """Refuse what an engine does not run for a plan. Raises UsageError, BadInputError."""
    work = plan.workload
    if engine != RUN_BY:
        raise UsageError("runs no plan here", field="engine", value=engine, remedy=f"use {RUN_BY}")
    if work.batch * work.batches != 1:
        problem, remedy = "an engine is run with one sequence", "plan with `batch` 1"
        raise UsageError(problem, field="batch", value=work.batch * work.batches, remedy=remedy)
    if work.prefix_tokens:
        problem, remedy = "an engine computes the whole prompt", "plan with `prefix_tokens` 0"
        raise UsageError(problem, field="prefix_tokens", value=work.prefix_tokens, remedy=remedy)
    used = {rule.device for rule in plan.compute}
    if any(device.kind == "loopback" and device.name in used for device in plan.hardware.devices):
        remedy = f"plan with `engine` {engine}, which leaves it out"
        raise UsageError(f"{engine} has no loopback accelerator", field="plan", value=plan.label, remedy=remedy)
    if not prompt_tokens or prompt_tokens + output_tokens > work.context:
        remedy = f"ask for 1 to {work.context} tokens of prompt and output together, or plan with a larger `context`"
        raise UsageError("no room in the plan's context", value=prompt_tokens + output_tokens, remedy=remedy)
    check_gguf(checkpoint)


def check_gguf(checkpoint: Path) -> None:
    """Refuse what is no GGUF file. Raises BadInputError."""
    if not is_gguf(checkpoint) or not checkpoint.is_file():
        remedy = "name a GGUF file of the plan's model, in the plan's format"
        raise BadInputError("llama.cpp reads GGUF files", file=str(checkpoint), remedy=remedy)


def _run_package(
    program: EngineProgram,
    command: LlamaCommand,
    plan: Plan,
    checkpoint: Path,
    prompt: Sequence[int],
    output: int,
    ignore_eos: bool,
    tell: Tell,
) -> EngineRun:
    settings = command.worker_settings(checkpoint, plan.workload.context)
    request = {"run": list(map(int, prompt)), "output": output, "ignore_eos": ignore_eos}
    tokens, moments = list[int](), list[float]()
    with engine_process(worker_command(program, settings), program.engine) as process:
        for answer in process.answers(request):
            if "token" in answer:
                tokens.append(int(answer["token"]))
                moments.append(float(answer["at"]))
                tell(tokens[-1])
        return EngineRun(tuple(tokens), tuple(moments), process.peak)
