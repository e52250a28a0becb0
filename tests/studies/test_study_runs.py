"""Studies from their questions to their rows: the same whoever answers, resumed where they ended, kept whole."""

import hashlib
import io
from base64 import b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path
from select import select
from typing import Any

import pytest
from daily import one_in
from remembered import remembered_replicas

from helmsman.schemas.errors import BadInputError, HardwareUnavailableError
from helmsman.schemas.study import Study
from helmsman.schemas.study_row import StudyRow
from helmsman.schemas.study_table import read_rows, write_rows
from helmsman.studies.answering.local import LocalEngine
from helmsman.studies.answering.run import rows_of
from helmsman.studies.answering.shards import Rows, StudyShard, answered
from helmsman.studies.answering.store import Store
from helmsman.studies.ask import report_of
from helmsman.studies.questions import named_parts
from helmsman.studies.questions.points import grid_of
from helmsman.studies.questions.read_study import study_of
from helmsman.studies.report.page import page, picture_files
from helmsman.studies.report.text import text

QUESTIONS: dict[str, Any] = {
    "name": "laptops",
    "models": ["Qwen3-0.6B"],
    "machines": ["rtx4060-laptop", "epyc9554-cpu"],
    "changes": ["as it is", "vram=x2"],
    "formats": ["q4_k", "q8_0"],
    "strategies": ["cpu-only", "llama-cpp"],
    "sensitivity": 0,
}


def few(study: Study, shards: Sequence[StudyShard]) -> Iterator[Rows]:
    """Answer in shards of one point, so that there are several of them."""
    for shard in shards:
        for entry in shard.points:
            yield answered(study, StudyShard((entry,), shard.models, shard.machines))


class Ending:
    """An engine that ends after some shards, as a process does that is killed."""

    def __init__(self, after: int) -> None:
        self.after, self.points = after, 0

    def __call__(self, study: Study, shards: Sequence[StudyShard]) -> Iterator[Rows]:
        for rows in few(study, shards):
            if self.points == self.after:
                raise KeyboardInterrupt
            self.points += len(rows)
            yield rows


def ask(study: Study, engine: Any, store: Store | None = None) -> tuple[StudyRow, ...]:
    return rows_of(study, tuple(grid_of(study).points()), engine, store, lambda done, total: None)


def table(rows: Sequence[StudyRow]) -> str:
    stream = io.BytesIO()
    write_rows(rows, stream)
    return hashlib.sha256(stream.getvalue()).hexdigest()


@pytest.fixture(autouse=True, scope="module")
def remembered() -> Iterator[None]:
    """The cost of a replica is worked out once for each plan."""
    with remembered_replicas():
        yield


@pytest.fixture(scope="module")
def rows() -> tuple[StudyRow, ...]:
    return ask(study_of(QUESTIONS), LocalEngine(1))


def test_what_does_not_fit_or_apply_is_a_row_that_says_why(rows: tuple[StudyRow, ...]) -> None:
    assert len(rows) == len(grid_of(study_of(QUESTIONS)))
    refused = [row for row in rows if row.status == "does-not-apply"]
    assert {row.machine for row in refused} == {"epyc9554-cpu"} and all(row.missing for row in refused)
    unequal = {**QUESTIONS, "models": ["gpt-oss-20b"], "machines": ["rtx4060-laptop"], "strategies": ["op-split"]}
    reasons = {row.missing for row in ask(study_of(unequal), LocalEngine(1)) if row.status == "does-not-apply"}
    assert any(reason and "op-split plans models of equal dense blocks" in reason for reason in reasons), "and goes on"
    small = ask(study_of({**QUESTIONS, "models": ["Llama-3.1-70B"], "machines": ["rtx4060-laptop"]}), LocalEngine(1))
    assert any(row.status == "does-not-fit" and "more" in (row.missing or "") for row in small)


def test_rows_say_what_planning_alone_says(rows: tuple[StudyRow, ...]) -> None:
    import helmsman

    row = next(row for row in rows if row.status == "fits" and row.strategy == "llama-cpp" and row.format == "q8_0")
    asked_for = {"model": row.model, "hardware": row.machine, "strategy": row.strategy, "format": "q8_0"}
    plan = helmsman.plan(asked_for).plan
    assert plan.predicted.request is not None
    assert (row.plan, row.request_s) == (plan.label, plan.predicted.request.seconds.mid)
    assert row.accelerator_bytes == plan.predicted.memory[1].used


@pytest.mark.parametrize(
    ("model", "strategy", "options", "experts"),
    [
        ("Qwen3-30B-A3B", "llama-cpp", {"cpu_moe": True}, "of blocks 1-48 128 on the CPU"),
        ("Qwen3.5-35B-A3B", "freetoken", {"miss_mode": "cpu"}, "of blocks 1-40 256 on the CPU; of blocks 1-40 the "),
    ],
)
def test_rows_say_where_experts_are(model: str, strategy: str, options: dict[str, Any], experts: str) -> None:
    """Rows name where the experts of a mixture are, and of a hybrid with slots beside the experts on the CPU."""
    one_machine = {
        "name": "experts",
        "models": model,
        "machines": "rtx4080-14700k",
        "formats": "q4_0",
        "sensitivity": 0,
    }
    study = study_of({**one_machine, "strategies": strategy, "options": {strategy: options}})
    report = report_of(study, grid_of(study), LocalEngine(1), None, lambda done, total: None)
    [row] = report.rows
    assert row.experts is not None and row.experts.startswith(experts)
    assert f"experts on rtx4080-14700k: {row.experts}" in " ".join(text(report).split())


def test_two_processes_give_the_bytes_of_one(rows: tuple[StudyRow, ...], tmp_path: Path) -> None:
    again = ask(study_of(QUESTIONS), LocalEngine(2), Store(tmp_path))
    assert table(again) == table(rows)


@pytest.mark.parametrize("after", one_in(3, [0, 1, 5, 15]))
def test_a_study_that_ended_goes_on_where_it_was(rows: tuple[StudyRow, ...], tmp_path: Path, after: int) -> None:
    store, ending = Store(tmp_path / "answers"), Ending(after)
    with pytest.raises(KeyboardInterrupt):
        ask(study_of(QUESTIONS), ending, store)
    assert len(store.rows()) == after
    rest = Ending(len(rows))
    assert table(ask(study_of(QUESTIONS), rest, store)) == table(rows)
    assert rest.points == len(rows) - after


def test_a_changed_study_asks_only_what_is_new(tmp_path: Path) -> None:
    store, first = Store(tmp_path), Ending(100)
    ask(study_of(QUESTIONS), first, store)
    more, renamed = Ending(100), Ending(0)
    ask(study_of({**QUESTIONS, "batches": [1, 2]}), more, store)
    assert more.points == first.points
    priced = {"name": "other", "prices": {"energy": 0.3}, "slo": "ttft=1s", "changes": ["vram=x2", "as it is"]}
    assert ask(study_of({**QUESTIONS, **priced}), renamed, store) and renamed.points == 0


def test_other_constants_of_engines_are_another_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store outlives a fit of the constants: its answers are those of the tables that they were made with."""
    study = study_of(QUESTIONS)
    points = list(grid_of(study).points())[:1]
    keys = []
    for table in ("before", "after", "after"):
        monkeypatch.setattr(named_parts, "constants_digest", lambda engine, table=table: f"{engine} {table}")
        keys += [key for key, _ in named_parts.keyed(study, points, named_parts.Machines())]
    assert keys[0] != keys[1] == keys[2]


def test_another_record_of_the_same_name_is_another_question(tmp_path: Path) -> None:
    from helmsman.hwdb.edits import edited
    from helmsman.hwdb.load_hardware import load_hardware

    record = tmp_path / "machine.json"
    store = Store(tmp_path / "answers")
    study = study_of({**QUESTIONS, "machines": [str(record)], "strategies": ["cpu-only"], "changes": ["as it is"]})
    seconds = []
    for factor in ("x1", "x0.5"):
        record.write_text(edited(load_hardware("rtx4060-laptop", None), f"dram_bw={factor}").to_json())
        seconds.append(ask(study, LocalEngine(1), store)[0].step_s or 0.0)
    assert seconds[1] > 1.5 * seconds[0]


def test_damage_to_a_shard_is_noticed_wherever_it_is(rows: tuple[StudyRow, ...], tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(rows)
    (path,) = tmp_path.iterdir()
    assert read_rows(path) == list(rows)
    content, refused = path.read_bytes(), list[int]()
    for place in range(0, len(content), 97):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            assert list(store.rows().values()) == list(rows), "a byte that says nothing of the rows"
        except BadInputError as error:
            refused.append(place)
            assert error.file == str(path) and error.remedy
    assert len(refused) > len(content) / 97 / 2


def test_a_killed_process_is_replaced(
    rows: tuple[StudyRow, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("helmsman.studies.answering.local.answered", killed_once)
    study = study_of({**QUESTIONS, "name": str(tmp_path / "killed")})
    assert table(ask(study, LocalEngine(2))) == table(rows) and (tmp_path / "killed").exists()


def test_processes_that_are_always_killed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helmsman.studies.answering.local.answered", killed)
    monkeypatch.setattr("helmsman.studies.answering.local._MOST_RESTARTS", 1)
    with pytest.raises(HardwareUnavailableError, match="killed"):
        ask(study_of(QUESTIONS), LocalEngine(2))


def test_the_report_is_read_by_people(tmp_path: Path) -> None:
    prices = {"machines": {"rtx4060-laptop": 1000.0, "epyc9554-cpu": 9000.0}, "energy": 0.3}
    study = study_of({**QUESTIONS, "prices": prices, "sensitivity": 1})
    report = report_of(study, grid_of(study), LocalEngine(1), None, lambda done, total: None)
    shown, html = text(report), page(report)
    assert max(map(len, shown.splitlines())) <= 100
    for word in ("rtx4060-laptop", "cheapest", "most precise weights"):
        assert word in shown
    assert "<script" not in html and "http" not in html.replace("http://www.w3.org", "")
    assert all(row.plan is None or row.plan in html for row in report.rows)
    assert html == page(report) and report.to_json() == report.to_json()


def test_what_kernels_of_an_engine_reach_is_varied_as_its_interval_says() -> None:
    content = {
        **QUESTIONS,
        "machines": "rtx4060-laptop",
        "changes": "as it is",
        "formats": "q4_k",
        "strategies": "vllm",
    }
    study = study_of({**content, "sensitivity": 1})
    report = report_of(study, grid_of(study), LocalEngine(1), None, lambda done, total: None)
    (row,), (kernels,) = report.rows, [entry for entry in report.sensitivity if entry.figures == "engine.kernels"]
    assert kernels.low == pytest.approx(row.request_high_s) and kernels.high == pytest.approx(row.request_low_s)
    assert "engine.kernels" in text(report) and "robust" not in text(report)
    asked = {entry.figures for entry in report.sensitivity}
    assert "h2d.bandwidth" in asked
    assert not asked & {"cuda.launch", "cuda.efficiency", "cuda.read", "vram.bandwidth"}, (
        "vLLM's kernels have their own"
    )


def test_a_strategy_without_kernels_of_an_engine_varies_what_its_record_says() -> None:
    content = {**QUESTIONS, "machines": "rtx4060-laptop", "changes": "as it is", "formats": "f16", "sensitivity": 1}
    study = study_of({**content, "strategies": "accelerate"})
    report = report_of(study, grid_of(study), LocalEngine(1), None, lambda done, total: None)
    asked = {entry.figures for entry in report.sensitivity}
    assert {"vram.bandwidth", "cuda.efficiency"} <= asked and not asked & {"cuda.launch", "engine.kernels"}


def test_pictures_are_those_of_the_page() -> None:
    prices = {"machines": {"rtx4060-laptop": 1000.0, "epyc9554-cpu": 9000.0}}
    study = study_of({**QUESTIONS, "prompt_tokens": [64, 128], "prices": prices})
    report = report_of(study, grid_of(study), LocalEngine(1), None, lambda done, total: None)
    files, html = dict(picture_files(report)), page(report)
    assert list(files)[:2] == [
        "01-machines-for-qwen3-0.6b-64-prompt-tokens.svg",
        "02-cost-against-latency-64-prompt-tokens.svg",
    ]
    assert len(files) == 4 and all(b64encode(picture).decode() in html for picture in files.values())


def killed_once(study: Study, shard: StudyShard) -> Rows:
    """Answer a shard; the first process that does is killed, and leaves the file that is the study's name."""
    import os
    import signal

    try:
        os.close(os.open(study.name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return answered(study, shard)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("is killed")


def killed(study: Study, shard: StudyShard) -> Rows:
    """End this process."""
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("is killed")


def test_processes_end_with_the_one_that_asked_for_them() -> None:
    import os
    import signal
    import subprocess
    import sys

    code = (
        "import os; from concurrent.futures import ProcessPoolExecutor as Pool;"
        "from multiprocessing import get_context;"
        "from helmsman.studies.answering.local import _START, _end_with_parent;"
        "pool = Pool(1, get_context(_START), _end_with_parent);"
        "print(pool.submit(os.getpid).result(), flush=True); pool.submit(os.getpid).result(); input()"
    )
    main = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert main.stdout is not None and main.stdin is not None
    worker = os.pidfd_open(int(main.stdout.readline()))
    main.send_signal(signal.SIGKILL)
    main.wait()
    ended, _, _ = select([worker], [], [], 60.0)
    os.close(worker)
    main.stdin.close()
    main.stdout.close()
    assert ended


SERVED: dict[str, Any] = {
    **QUESTIONS,
    "machines": ["rtx4060-laptop"],
    "changes": ["as it is"],
    "formats": ["q4_k"],
    "strategies": ["llama-cpp"],
    "slo": "ttft=2s,tpot=100ms",
}
SHORT = "synthetic:n=40,input=64,output=8"


def test_what_is_served_is_what_the_library_says_of_its_plan() -> None:
    import helmsman

    serving = {"requests": "synthetic:n=40,input=512,output=16", "think": "5s", "rate": 60.0}
    (row,) = ask(study_of({**SERVED, "serving": serving}), LocalEngine(1))
    plan = helmsman.plan({"model": row.model, "hardware": row.machine, "strategy": row.strategy, "format": "q4_k"})
    question = {"requests": serving["requests"], "slo": SERVED["slo"]}
    capacity, users = helmsman.find_capacity(plan, question), helmsman.find_users(plan, {**question, "think": "5s"})
    replicas = helmsman.find_replicas(plan, {**question, "rate": 60.0})
    assert (row.rate, row.rate_low, row.rate_settled) == (capacity.rate, capacity.low, capacity.converged)
    assert (row.users, row.replicas) == (users.count, replicas.count)
    assert row.served_tokens == pytest.approx(16 * capacity.rate, rel=0.02)


def test_a_machine_that_the_requests_cannot_overload_is_not_one_that_misses_the_slo(tmp_path: Path) -> None:
    trace = tmp_path / "few.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{n},16,2\n" for n in range(8)))
    serving = {"requests": str(trace), "think": "1s", "rate": 1.0}
    study = study_of({**SERVED, "slo": "ttft=60s", "serving": serving})
    report = report_of(study, grid_of(study), LocalEngine(1), None, lambda done, total: None)
    (row,) = report.rows
    assert row.rate and row.users and row.replicas == 1 and row.keeps_slo is True
    assert row.rate_settled is False and "at least" in (row.missing or "")
    assert report.best[0].row == 0 and "(not settled)" in text(report) and "replicas for 1/s" in text(report)


@pytest.mark.nightly
def test_other_requests_in_the_same_file_are_another_question(tmp_path: Path) -> None:
    trace, store = tmp_path / "trace.csv", Store(tmp_path / "answers")
    study = study_of({**SERVED, "serving": {"requests": str(trace)}})
    keys = []
    for tokens in (64, 640):
        trace.write_text("arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{n},{tokens},8\n" for n in range(40)))
        keys.append(ask(study, LocalEngine(1), store)[0].key)
    assert keys[0] != keys[1]


def test_two_records_of_one_content_keep_their_names_and_prices(tmp_path: Path) -> None:
    from helmsman.hwdb.load_hardware import load_hardware

    records = [tmp_path / "a.json", tmp_path / "b.json"]
    for record in records:
        record.write_text(load_hardware("rtx4060-laptop", None).to_json())
    prices = {str(record): price for record, price in zip(records, (100.0, 500.0), strict=True)}
    content = {**SERVED, "machines": list(prices), "prices": {"machines": prices}}
    study = study_of(content)
    report = report_of(study, grid_of(study), LocalEngine(1), Store(tmp_path / "answers"), lambda done, total: None)
    assert [(row.machine, row.price) for row in report.rows] == list(prices.items())
    alone = study_of({**content, "machines": [str(records[1])], "prices": {"machines": {str(records[1]): 500.0}}})
    again = report_of(alone, grid_of(alone), Ending(0), Store(tmp_path / "answers"), lambda done, total: None)
    assert [(row.machine, row.price) for row in again.rows] == [(str(records[1]), 500.0)]


def test_a_question_that_fails_is_a_row_and_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(question: Any) -> Any:
        raise ZeroDivisionError("a bug")

    store = Store(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("helmsman.studies.answering.answer.library.plan", broken)
        (row,) = ask(study_of(SERVED), LocalEngine(1), store)
    assert row.status == "failed" and "a bug" in (row.missing or "")
    assert ask(study_of(SERVED), LocalEngine(1), store)[0].status == "fits"
