"""The published JSON Schemas (2020-12), generated from the documents: `python -m helmsman.schemas.generate`."""

import json
from pathlib import Path
from typing import Any

from helmsman.schemas.base import Document
from helmsman.schemas.bench import Bench
from helmsman.schemas.calibration_report import CalibrationReport
from helmsman.schemas.check_report import CheckReport
from helmsman.schemas.comparison import Comparison
from helmsman.schemas.comparison_question import ComparisonQuestion
from helmsman.schemas.doctor_report import DoctorReport
from helmsman.schemas.engine_bench import EngineBench
from helmsman.schemas.engine_contest import EngineContest
from helmsman.schemas.engine_settings import EngineSettings, SettingsReading
from helmsman.schemas.explanation import Explanation
from helmsman.schemas.fit_report import FitReport
from helmsman.schemas.gate_acceptance import GateAcceptance
from helmsman.schemas.gate_case import GateCase
from helmsman.schemas.gate_history import GateEntry, HistoryManifest
from helmsman.schemas.gate_report import GateReport
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.job import PlannerJob, PlannerJobs
from helmsman.schemas.listing import Listing
from helmsman.schemas.longest_context import LongestContext
from helmsman.schemas.made_checkpoint import MadeCheckpoint
from helmsman.schemas.model import Model
from helmsman.schemas.operation_table import OperationTable
from helmsman.schemas.plan import Plan
from helmsman.schemas.plan_answer import PlanAnswer
from helmsman.schemas.plan_question import PlanQuestion
from helmsman.schemas.planner_question import PlannerQuestion
from helmsman.schemas.problem import Problem
from helmsman.schemas.replay_report import ReplayReport
from helmsman.schemas.routing import Routing
from helmsman.schemas.routing_trace import RoutingTraceInfo
from helmsman.schemas.run_report import RunReport
from helmsman.schemas.served_comparison import ServedComparison
from helmsman.schemas.served_table import ServedInfo
from helmsman.schemas.server_ready import ServerReady
from helmsman.schemas.service_health import ServiceHealth
from helmsman.schemas.serving import ServingCapacity, ServingCount, ServingReport, ServingSweep
from helmsman.schemas.serving_question import ServingQuestion
from helmsman.schemas.simulation_answer import SimulationAnswer
from helmsman.schemas.simulation_question import SimulationQuestion
from helmsman.schemas.study import Study
from helmsman.schemas.study_report import StudyReport
from helmsman.schemas.trace import TraceInfo
from helmsman.schemas.web_ready import WebReady
from helmsman.schemas.workload import Workload

DOCUMENTS: dict[str, type[Document]] = {
    "bench": Bench,
    "calibration": CalibrationReport,
    "check": CheckReport,
    "comparison": Comparison,
    "comparison-question": ComparisonQuestion,
    "engine-bench": EngineBench,
    "engine-contest": EngineContest,
    "engine-settings": EngineSettings,
    "doctor": DoctorReport,
    "explanation": Explanation,
    "fit-report": FitReport,
    "gate-acceptance": GateAcceptance,
    "gate-case": GateCase,
    "gate-entry": GateEntry,
    "gate-manifest": HistoryManifest,
    "gate-report": GateReport,
    "hardware": Hardware,
    "job": PlannerJob,
    "job-list": PlannerJobs,
    "listing": Listing,
    "longest-context": LongestContext,
    "made-checkpoint": MadeCheckpoint,
    "model": Model,
    "optable": OperationTable,
    "plan": Plan,
    "plan-answer": PlanAnswer,
    "plan-question": PlanQuestion,
    "planner-question": PlannerQuestion,
    "problem": Problem,
    "replay": ReplayReport,
    "routing": Routing,
    "routing-trace": RoutingTraceInfo,
    "run": RunReport,
    "served": ServedInfo,
    "served-comparison": ServedComparison,
    "server-ready": ServerReady,
    "service-health": ServiceHealth,
    "serving": ServingReport,
    "serving-capacity": ServingCapacity,
    "serving-count": ServingCount,
    "serving-question": ServingQuestion,
    "serving-sweep": ServingSweep,
    "settings-reading": SettingsReading,
    "simulation-answer": SimulationAnswer,
    "simulation-question": SimulationQuestion,
    "study": Study,
    "study-report": StudyReport,
    "trace": TraceInfo,
    "web-ready": WebReady,
    "workload": Workload,
}
FOLDER = Path(__file__).parent / "json"


def json_schema(name: str) -> dict[str, Any]:
    """Return the schema of the document called `name`, with its versioned `$id`."""
    cls = DOCUMENTS[name]
    identifier = cls.model_fields["schema_id"].default
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{identifier.replace('/', ':')}",
    }
    return {**head, **cls.model_json_schema(by_alias=True)}


def schema_text(name: str) -> str:
    """Return the file content of the schema called `name`."""
    return json.dumps(json_schema(name), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for document in DOCUMENTS:
        (FOLDER / f"{document}.schema.json").write_text(schema_text(document))
