"""Helm: plan, simulate and run large-language-model inference on machines whose GPU is too small.

    import helmsman

    decision = helmsman.plan({"model": "Qwen3-8B", "hardware": "rtx4060-laptop", "format": "q4_k"})
    decision.plan.label, decision.seconds
    helmsman.simulate(decision.plan).tokens_per_second

Names are imported when they are first used: `import helmsman` itself reads nothing else."""

from importlib import import_module

TYPE_CHECKING = False  # what type checkers take for true; importing typing would take longer than all else here
if TYPE_CHECKING:
    from helmsman.engines.ask_run import EngineExecution as EngineExecution
    from helmsman.engines.ask_run import run_engine as run_engine
    from helmsman.engines.contest import referee as referee
    from helmsman.engines.side_by_side import compare_engines as compare_engines
    from helmsman.executor.ask_run import Execution as Execution
    from helmsman.library import calibrate as calibrate
    from helmsman.library import check as check
    from helmsman.library import compare as compare
    from helmsman.library import compose_hardware as compose_hardware
    from helmsman.library import diagnose as diagnose
    from helmsman.library import emit as emit
    from helmsman.library import find_capacity as find_capacity
    from helmsman.library import find_replicas as find_replicas
    from helmsman.library import find_users as find_users
    from helmsman.library import load_hardware as load_hardware
    from helmsman.library import load_model as load_model
    from helmsman.library import plan as plan
    from helmsman.library import profile as profile
    from helmsman.library import read_settings as read_settings
    from helmsman.library import run as run
    from helmsman.library import serve_simulation as serve_simulation
    from helmsman.library import simulate as simulate
    from helmsman.planner.decision import Decision as Decision
    from helmsman.planner.request import PlanRequest as PlanRequest
    from helmsman.schemas.check_report import CheckReport as CheckReport
    from helmsman.schemas.comparison import Comparison as Comparison
    from helmsman.schemas.doctor_report import DoctorReport as DoctorReport
    from helmsman.schemas.engine_bench import EngineBench as EngineBench
    from helmsman.schemas.engine_contest import EngineContest as EngineContest
    from helmsman.schemas.engine_settings import EngineSettings as EngineSettings
    from helmsman.schemas.engine_settings import SettingsReading as SettingsReading
    from helmsman.schemas.errors import BadInputError as BadInputError
    from helmsman.schemas.errors import HardwareUnavailableError as HardwareUnavailableError
    from helmsman.schemas.errors import HelmError as HelmError
    from helmsman.schemas.errors import InfeasibleError as InfeasibleError
    from helmsman.schemas.errors import UsageError as UsageError
    from helmsman.schemas.fit_report import FitReport as FitReport
    from helmsman.schemas.hardware import Hardware as Hardware
    from helmsman.schemas.model import Model as Model
    from helmsman.schemas.plan import Plan as Plan
    from helmsman.schemas.plan_question import ComposedMachine as ComposedMachine
    from helmsman.schemas.plan_question import PlanQuestion as PlanQuestion
    from helmsman.schemas.replay_report import ReplayReport as ReplayReport
    from helmsman.schemas.run_report import RunReport as RunReport
    from helmsman.schemas.serving import ServingCapacity as ServingCapacity
    from helmsman.schemas.serving import ServingCount as ServingCount
    from helmsman.schemas.serving import ServingReport as ServingReport
    from helmsman.schemas.serving_question import ServingQuestion as ServingQuestion
    from helmsman.schemas.study import Study as Study
    from helmsman.schemas.study_report import StudyReport as StudyReport
    from helmsman.schemas.trace import Trace as Trace
    from helmsman.schemas.workload import Workload as Workload
    from helmsman.studies.ask import study as study
    from helmsman.studies.fitting.fit import fit as fit

__version__ = "0.1.0"

_HOMES = {
    "BadInputError": "schemas.errors",
    "CheckReport": "schemas.check_report",
    "Comparison": "schemas.comparison",
    "ComposedMachine": "schemas.plan_question",
    "Decision": "planner.decision",
    "EngineBench": "schemas.engine_bench",
    "EngineContest": "schemas.engine_contest",
    "EngineExecution": "engines.ask_run",
    "EngineSettings": "schemas.engine_settings",
    "FitReport": "schemas.fit_report",
    "DoctorReport": "schemas.doctor_report",
    "Hardware": "schemas.hardware",
    "HardwareUnavailableError": "schemas.errors",
    "HelmError": "schemas.errors",
    "InfeasibleError": "schemas.errors",
    "Model": "schemas.model",
    "Plan": "schemas.plan",
    "PlanQuestion": "schemas.plan_question",
    "PlanRequest": "planner.request",
    "Execution": "executor.ask_run",
    "ReplayReport": "schemas.replay_report",
    "RunReport": "schemas.run_report",
    "ServingCapacity": "schemas.serving",
    "ServingCount": "schemas.serving",
    "ServingQuestion": "schemas.serving_question",
    "ServingReport": "schemas.serving",
    "SettingsReading": "schemas.engine_settings",
    "Trace": "schemas.trace",
    "UsageError": "schemas.errors",
    "Study": "schemas.study",
    "StudyReport": "schemas.study_report",
    "Workload": "schemas.workload",
    "check": "library",
    "calibrate": "library",
    "compare": "library",
    "compare_engines": "engines.side_by_side",
    "compose_hardware": "library",
    "emit": "library",
    "diagnose": "library",
    "find_capacity": "library",
    "find_replicas": "library",
    "find_users": "library",
    "fit": "studies.fitting.fit",
    "load_hardware": "library",
    "load_model": "library",
    "plan": "library",
    "profile": "library",
    "read_settings": "library",
    "referee": "engines.contest",
    "run": "library",
    "run_engine": "engines.ask_run",
    "serve_simulation": "library",
    "simulate": "library",
    "study": "studies.ask",
}
"""The module of every public name."""


def __getattr__(name: str) -> object:
    """Return a public name, imported when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
