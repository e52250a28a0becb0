"""Simulations that clients ask for, from the question to the documents of the library."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

from helmsman import library
from helmsman.analysis.ask_capacity import check_capacity, of_one_user, rate_of_replicas
from helmsman.analysis.ask_serving import (
    ServingLoad,
    load_of,
    refuse_think_alone,
    replica_options,
    served,
    study_of,
)
from helmsman.planner.checks.accept import accept
from helmsman.planner.cost.plan_costs import cost_model
from helmsman.planner.decide import decide
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest
from helmsman.schemas.requests import Requests
from helmsman.schemas.serving_question import ServingQuestion
from helmsman.schemas.simulation_answer import SimulationAnswer
from helmsman.schemas.simulation_question import ListedRequest, SimulatedServing, SimulationQuestion
from helmsman.service.planner.problems import UnwritableStoreError
from helmsman.service.planner.questions.catalogue import Catalogue
from helmsman.service.planner.questions.planning import request_of
from helmsman.simulator.export import timeline_json
from helmsman.simulator.pricing import median_price
from helmsman.simulator.serving.timeline import serving_timeline
from helmsman.simulator.stream import timeline

TIMELINE_BYTES = 8 * 2**20
"""Of the Trace Events of one answer: what a page can draw."""


def check_simulation(question: SimulationQuestion, catalogue: Catalogue, folder: Path) -> None:
    """Raise what is wrong with a simulation as far as that is seen without planning; `folder`: the check's own, for
    what it needs while it runs."""
    if question.question is not None:
        request_of(question.question, catalogue)
    if question.plan is not None:
        accept(question.plan)
    if question.serving is not None:
        with _question(question.serving, folder) as serving:
            replica_options(serving)
            load = load_of(serving)
        _check_load(load, question)


def _check_load(load: ServingLoad, question: SimulationQuestion) -> None:
    """Raise what is wrong with what a simulation asks about a load."""
    refuse_think_alone(load)
    if isinstance(load.source.source, Requests):  # of a line that describes some, no draw is wrong
        load.source.requests(load.question.seed)
    if question.capacity:
        check_capacity(load)
    if question.users:
        of_one_user(load)
    if question.replicas:
        rate_of_replicas(load)


def simulation(question: SimulationQuestion, catalogue: Catalogue, folder: Path) -> SimulationAnswer:
    """Return the answer to a simulation; `folder`: the job's own, for what it needs while it runs. Raises what
    planning, or the library's functions for serving, raise."""
    plan = _plan(question, catalogue)
    if question.serving is None:
        replayed = _replayed(plan, question.steps) if question.timeline else None
        return SimulationAnswer(plan_sha256=digest(plan), replay=library.simulate(plan), timeline=replayed)
    with _question(question.serving, folder) as serving:
        outcome, report = served(study_of(plan, serving))
        title = f"{plan.model.name} under {report.run.policy}"
        drawn = serving_timeline(outcome.served, outcome.occupancy, title, TIMELINE_BYTES).text
        return SimulationAnswer(
            plan_sha256=digest(plan),
            serving=report,
            capacity=library.find_capacity(plan, serving, question.seeds) if question.capacity else None,
            users=library.find_users(plan, serving, question.seeds) if question.users else None,
            replicas=library.find_replicas(plan, serving, question.seeds) if question.replicas else None,
            timeline=json.loads(drawn) if question.timeline else None,
        )


def _plan(question: SimulationQuestion, catalogue: Catalogue) -> Plan:
    if question.plan is not None:
        return accept(question.plan)
    assert question.question is not None, "one of the two is there"
    return decide(request_of(question.question, catalogue)).plan


@contextmanager
def _question(serving: SimulatedServing, folder: Path) -> Iterator[ServingQuestion]:
    """Give the library's question. Requests that are listed are read from a file in `folder`, which is gone when the
    block ends; what a worker that is killed leaves there, the server removes. Raises UnwritableStoreError where there
    is no room for that file."""
    given = serving.model_dump(exclude={"requests"})
    if isinstance(serving.requests, str):
        yield ServingQuestion(requests=serving.requests, **given)
        return
    try:
        yield ServingQuestion(requests=str(_listed(serving.requests, folder)), **given)
    finally:
        rmtree(folder, ignore_errors=True)


def _listed(requests: Sequence[ListedRequest], folder: Path) -> Path:
    """Return a new file of requests in a folder. Raises UnwritableStoreError."""
    path = folder / "requests.jsonl"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        path.write_text("".join(json.dumps(_row(row)) + "\n" for row in requests))
    except OSError as error:
        raise UnwritableStoreError(
            f"the requests cannot be kept: {error.strerror}", remedy="come again later"
        ) from None
    return path


def _row(row: ListedRequest) -> dict[str, Any]:
    """Return a request as a line of a Mooncake trace, whose times are milliseconds."""
    lengths = {"input_length": row.prompt_tokens, "output_length": row.output_tokens}
    return {"timestamp": row.arrival * 1e3, **lengths, "hash_ids": []}


def _replayed(plan: Plan, steps: int) -> dict[str, Any]:
    """Return the Trace Events of a replay of a prompt and some steps."""
    costs = cost_model(plan)
    spans = list(timeline(plan, median_price(plan), costs.between(), steps, costs.slowed()))
    lanes = [device.name for device in plan.hardware.devices] + [link.name for link in plan.hardware.links]
    used = {span.resource for span in spans}
    ordered = [lane for lane in dict.fromkeys(lanes) if lane in used]
    events: dict[str, Any] = json.loads(
        timeline_json(spans, ordered, f"{plan.model.name} {plan.label}", TIMELINE_BYTES)
    )
    return events
