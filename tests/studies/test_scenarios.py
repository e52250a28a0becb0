"""Studies under several circumstances: one answer for what shares a question, a section for each combination."""

from collections.abc import Iterator, Sequence
from typing import Any

from helmsman.schemas.study import Study
from helmsman.studies.answering.shards import Rows, StudyShard, answered
from helmsman.studies.ask import report_of
from helmsman.studies.questions.points import grid_of
from helmsman.studies.questions.read_study import study_of
from helmsman.studies.report.page import page
from helmsman.studies.report.text import text

QUESTIONS: dict[str, Any] = {
    "models": ["Qwen3-0.6B"],
    "machines": ["rtx4060-laptop", "epyc9554-cpu"],
    "strategies": ["cpu-only", "llama-cpp"],
    "options": {"llama-cpp": {"ngl": [3, 29]}},
    "slo": ["ttft=1us", "ttft=9s"],
    "prices": [
        {"name": "new", "machines": {"rtx4060-laptop": 1200, "epyc9554-cpu": 9000}},
        {"name": "used", "currency": "EUR", "machines": {"rtx4060-laptop": 500, "epyc9554-cpu": 100}},
    ],
    "sensitivity": 0,
}


class Counting:
    """An engine that counts what it is asked."""

    def __init__(self) -> None:
        self.points = 0

    def __call__(self, study: Study, shards: Sequence[StudyShard]) -> Iterator[Rows]:
        for shard in shards:
            self.points += len(shard.points)
            yield answered(study, shard)


def test_slos_of_plans_and_prices_need_no_further_answers() -> None:
    study, engine = study_of(QUESTIONS), Counting()
    report = report_of(study, grid_of(study), engine, None, lambda done, total: None)
    assert engine.points == 2 * 3 and len(report.rows) == 2 * 3 * 2 * 2
    assert len({row.key for row in report.rows}) == engine.points
    circumstances = [(one.slo, one.prices) for one in report.scenarios]
    assert circumstances == [(slo, name) for slo in ("ttft=1us", "ttft=9s") for name in ("new", "used")]
    strict = [entry for entry in report.best if entry.scenario < 2]
    assert all(entry.row is None and entry.missing == "misses ttft=1us" for entry in strict)
    cheapest = {report.rows[row].prices: report.rows[row].machine for row in report.cheapest}
    assert cheapest == {"new": "rtx4060-laptop", "used": "epyc9554-cpu"}


def test_texts_have_a_section_for_every_combination() -> None:
    study = study_of({**QUESTIONS, "slo": "ttft=9s"})
    report = report_of(study, grid_of(study), Counting(), None, lambda done, total: None)
    heads = ("prices: new", "prices: used")
    for written in (text(report), page(report)):
        places = [written.index(head) for head in heads]
        assert places == sorted(places) and "EUR" in written[places[1] :] and "llama-cpp, ngl=29" in written
    assert "ngl=3" in {row.options for row in report.rows}


def test_served_circumstances_are_questions_of_their_own() -> None:
    serving = {"requests": "synthetic:n=20,input=64,output=8,rate=1", "think": ["1s", "20s"], "users": 3000}
    one = {"machines": "epyc9554-cpu", "strategies": "cpu-only", "options": {}, "slo": "ttft=3s", "prices": {}}
    study, engine = study_of({**QUESTIONS, **one, "serving": serving}), Counting()
    report = report_of(study, grid_of(study), engine, None, lambda done, total: None)
    assert engine.points == 2 and [one.think for one in report.scenarios] == ["1s", "20s"]
    hasty, slow = report.rows
    assert (hasty.users or 0) < (slow.users or 0) and hasty.rate == slow.rate
    assert (hasty.replicas or 0) > (slow.replicas or 0) > 1
    assert "replicas for 3000 users" in text(report)
