"""`helm-sim --requests`: what it says, writes and refuses."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from remembered import remembered_replicas

from helmsman.cli import documents
from helmsman.cli import plan as helm_plan
from helmsman.cli import sim as helm_sim
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest, parse_document, read_document
from helmsman.schemas.served_table import FINISHED, read_served
from helmsman.schemas.serving import ServingCapacity, ServingCount, ServingReport, ServingSweep
from helmsman.simulator.serving.report import report

SOME = "synthetic:n=40,input=300,output=30"


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model on an accelerator with room for few of its caches."""
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    machine = ["--hw", "rtx4060-laptop", "--vram-avail", "2GB", "--strategy", "vllm", "--same-software"]
    assert helm_plan.main(["--model", "Qwen3-0.6B", *machine, "-q", "-o", str(path)]) == 0
    return path


@pytest.fixture(autouse=True, scope="module")
def remembered() -> Iterator[None]:
    """Every run here is of one plan: it is read once, and what a replica costs is found once."""
    with pytest.MonkeyPatch.context() as patch, remembered_replicas():
        patch.setattr(documents, "read_plan", cache(documents.read_plan))
        yield


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = helm_sim.main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def asked(capsys: pytest.CaptureFixture[str], plan: Path, *arguments: str | Path) -> ServingReport:
    code, out, _ = run(capsys, plan, "--requests", SOME, "--json", *arguments)
    assert code == 0
    return parse_document(ServingReport, out.encode(), "stdout")


def test_a_run_says_what_became_of_its_requests(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, plan, "--rate", "5")
    assert found.counts.finished == 40 and found.run.policy == "gpu-only" and found.goodput is None
    assert found.run.plan_sha256 == digest(read_document(Plan, plan))
    assert found.activity.busy.gpu > 0.0 and found.latency.ttft.p50 > 0.0
    again = asked(capsys, plan, "--rate", "5")
    assert again == found and asked(capsys, plan, "--rate", "5", "--seed", "1") != found
    code, out, _ = run(capsys, plan, "--requests", SOME)
    assert code == 0
    for word in ("40 finished", "TTFT", "TPOT", "ITL", "E2E", "tokens/s", "busy", "KV cache", "all at once"):
        assert word in out


def test_the_table_is_what_the_report_is_of(plan: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    written = tmp_path / "s.parquet"
    found = asked(capsys, plan, "--rate", "5", "-o", written)
    served = read_served(written)
    assert (served.status == FINISHED).all()
    assert report(served, None, found.activity) == found
    asked(capsys, plan, "-o", tmp_path / "r.json")
    assert parse_document(ServingReport, (tmp_path / "r.json").read_bytes(), "r.json").counts.asked == 40


def test_a_missed_slo_has_its_exit_code(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = asked(capsys, plan, "--rate", "1", "--slo", "ttft=3600s,tpot=10s")
    assert kept.goodput.met and kept.goodput.requests == pytest.approx(kept.throughput.requests)
    code, out, err = run(capsys, plan, "--requests", SOME, "--slo", "ttft=1us,share=0.5")
    assert code == 4 and "missed" in out and "--slo" in err and err.count("\n") == 1
    code, out, err = run(capsys, plan, "--requests", SOME, "--slo", "ttft=1us", "--json")
    assert code == 4 and not json.loads(out)["goodput"]["met"]
    assert err.startswith("helm-sim: error: --slo: ") and err.count("\n") == 1


def test_replicas_serve_faster_and_what_is_mispredicted_slower(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    once = asked(capsys, plan).throughput.requests
    assert asked(capsys, plan, "--replicas", "2", "--router", "least-loaded").throughput.requests > 1.2 * once
    assert asked(capsys, plan, "--mispredict", "linear=2").throughput.requests < 0.7 * once
    assert asked(capsys, plan, "--policy-option", "preemption=swap").run.options == {"preemption": "swap"}
    assert asked(capsys, plan, "--limit", "7").counts.asked == 7
    assert asked(capsys, plan, "--policy", "neo").run.policy == "neo"
    assert asked(capsys, plan, "--arrivals", "uniform", "--rate", "4").rate == pytest.approx(4.0)
    few = asked(capsys, plan, "--sequences", "1", "--chunk", "64")
    assert few.throughput.requests < once


def test_a_sweep_runs_every_point(plan: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    study = ("--requests", SOME, "--sweep", "output=10:30:10", "--policy", "neo", "--relative-to", "gpu-only")
    code, out, _ = run(capsys, plan, *study, "--json", "--plot", tmp_path / "s.svg")
    found = parse_document(ServingSweep, out.encode(), "stdout")
    assert code == 0 and (tmp_path / "s.svg").read_text().startswith("<?xml")
    assert [(point.value, point.policy) for point in found.points[:3]] == [
        (10.0, "neo"), (10.0, "gpu-only"), (20.0, "neo")
    ]  # fmt: skip
    assert found.points[1].relative == 1.0
    code, out, _ = run(capsys, plan, "--requests", SOME, "--sweep", "rate=1,2", "--policy", "apex,neo,apex")
    assert code == 0 and [line.split()[1] for line in out.splitlines()[1:]] == ["apex", "neo"] * 2
    for sweep in ("rate=1,2", "input=100,200", "cpu-bandwidth=0.5,2"):
        code, out, _ = run(capsys, plan, "--requests", SOME, "--sweep", sweep, "--slo", "ttft=100s")
        assert code == 0 and out.count("gpu-only") == 2 and "SLO kept" in out
    two = [run(capsys, plan, "--requests", SOME, "--sweep", f"rate={rate}", "--json")[1] for rate in ("1", "2")]
    rates = [json.loads(out)["points"][0]["report"]["rate"] for out in two]
    assert rates[1] == pytest.approx(2.0 * rates[0])


def test_a_sweep_of_which_no_point_keeps_the_slo_has_its_exit_code(
    plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = ("--requests", SOME, "--sweep", "rate=0.1,1000")
    code, out, err = run(capsys, plan, *study, "--slo", "e2e=500ms", "--json")
    met = [point["report"]["goodput"]["met"] for point in json.loads(out)["points"]]
    assert (code, err, met) == (0, "", [True, False])
    code, out, err = run(capsys, plan, *study, "--slo", "e2e=1us")
    assert code == 4 and out.count("gpu-only") == 2 and "no point" in err and err.count("\n") == 1
    code, out, err = run(capsys, plan, *study, "--slo", "e2e=1us", "--json")
    assert code == 4 and "no point" in err and len(json.loads(out)["points"]) == 2


def test_capacity_is_where_the_slo_is_lost(plan: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    study = ("--requests", SOME, "--slo", "ttft=1s", "--arrivals", "poisson")
    code, out, _ = run(capsys, plan, *study, "--find-capacity", "--seeds", "2", "--json")
    found = parse_document(ServingCapacity, out.encode(), "stdout")
    assert code == 0 and found.low < found.rate < found.high and [each.seed for each in found.seeds] == [0, 1]
    first = found.seeds[0]
    assert run(capsys, plan, *study, "--rate", str(first.keeps), "-q")[0] == 0
    assert run(capsys, plan, *study, "--rate", str(first.misses), "-q")[0] == 4
    code, out, _ = run(capsys, plan, *study, "--find-capacity", "--seeds", "2")
    assert "95 % interval" in out and "2 seeds" in out
    timed = tmp_path / "t.csv"
    timed.write_text("arrival_s,prompt,output\n" + "".join(f"{row},300,30\n" for row in range(80)))
    code, out, _ = run(capsys, plan, "--requests", timed, "--slo", "ttft=1s", "--find-capacity")
    assert code == 0 and "(1 seed," in out
    code, _, err = run(capsys, plan, "--requests", SOME, "--slo", "ttft=1ns", "--find-capacity")
    assert code == 3 and "no rate keeps" in err


def test_users_and_replicas_are_counted(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = ("--requests", "synthetic:n=200,input=300,output=30", "--slo", "ttft=150ms")
    code, out, _ = run(capsys, plan, *study, "--find-users", "--think", "1s", "--seeds", "2", "--json")
    users = parse_document(ServingCount, out.encode(), "stdout")
    assert code == 0 and users.of == "users" and [bracket.seed for bracket in users.seeds] == [0, 1]
    first = users.seeds[0]
    assert run(capsys, plan, *study, "--think", "1s", "--users", str(first.keeps), "-q")[0] == 0
    assert run(capsys, plan, *study, "--think", "1s", "--users", str(first.misses), "-q")[0] == 4
    code, out, _ = run(capsys, plan, *study, "--find-users", "--think", "1s", "--seeds", "2")
    assert code == 0 and f"{users.count} who think for 1s" in out and "2 seeds" in out
    code, out, _ = run(capsys, plan, *study, "--find-replicas", "--rate", "50", "--seeds", "1", "--json")
    replicas = parse_document(ServingCount, out.encode(), "stdout")
    assert code == 0 and (replicas.of, replicas.rate) == ("replicas", 50.0) and replicas.count > 1
    assert run(capsys, plan, *study, "--rate", "50", "--replicas", str(replicas.count), "-q")[0] == 0
    assert run(capsys, plan, *study, "--rate", "50", "--replicas", str(replicas.count - 1), "-q")[0] == 4
    code, out, _ = run(capsys, plan, *study, "--find-replicas", "--rate", "50", "--seeds", "1")
    assert code == 0 and f"{replicas.count} for 50 requests/s" in out


def test_without_seeds_a_capacity_says_whether_it_converged(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = ("--requests", "synthetic:n=100,input=300,output=30", "--slo", "ttft=1s,share=0.9", "--find-capacity")
    code, out, _ = run(capsys, plan, *study, "--json")
    capacity = parse_document(ServingCapacity, out.encode(), "stdout")
    assert code == 0 and capacity.converged is not None and capacity.requests >= 100
    code, out, _ = run(capsys, plan, *study)
    assert code == 0 and ("not converged" in out) is not capacity.converged


def test_a_run_of_users_says_so(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    closed = asked(capsys, plan, "--users", "3", "--think", "fixed:2s")
    assert (closed.run.users, closed.run.think, closed.counts.finished) == (3, "fixed:2s", 40)
    assert closed.rate < 1.5
    code, out, _ = run(capsys, plan, "--requests", SOME, "--users", "3")
    assert code == 0 and "3, who think for no time" in out


def test_exports_and_pictures_are_written(plan: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("v.json", "a.jsonl", "p.png", "t.json")]
    asked(capsys, plan, "--export-vllm", files[0], "--export-aiperf", files[1], "--plot", files[2])
    code, out, _ = run(capsys, plan, "--requests", SOME, "--timeline", files[3])
    assert code == 0 and out.splitlines()[-1].split()[:2] == ["timeline", str(files[3])]
    assert json.loads(files[3].read_text())["otherData"]["requests_written"] == 40
    assert json.loads(files[0].read_text())["completed"] == 40
    assert len(files[1].read_text().splitlines()) == 40
    assert files[2].read_bytes().startswith(b"\x89PNG")
    for option in ("--export-vllm", "--export-aiperf", "--plot", "--timeline"):
        code, out, _ = run(capsys, plan, "--requests", SOME, option, tmp_path / "none" / "p.png", "--json")
        assert code == 2 and "cannot be written" in json.loads(out)["error"]["message"]
    again = asked(capsys, plan)
    code, out, _ = run(capsys, plan, "--requests", files[0], "--json")
    assert code == 0 and json.loads(out)["counts"]["asked"] == again.counts.asked


@pytest.mark.parametrize(
    ("arguments", "code", "field"),
    [
        (("--requests", SOME, "--policy", "best"), 2, "--policy"),
        (("--requests", SOME, "--policy-option", "speed=3"), 2, "--policy-option"),
        (("--requests", SOME, "--policy-option", "preemption=pray"), 2, "--policy-option"),
        (("--requests", SOME, "--policy-option", "preemption"), 2, "--policy-option"),
        (("--requests", SOME, "--mispredict", "gpu=2"), 2, "--mispredict"),
        (("--requests", SOME, "--mispredict", "link=0"), 2, "--mispredict"),
        (("--requests", SOME, "--router", "random"), 2, "--router"),
        (("--requests", SOME, "--replicas", "0"), 2, "--replicas"),
        (("--requests", SOME, "--rate", "nan"), 2, "--rate"),
        (("--requests", SOME, "--rate", "-1"), 2, "--rate"),
        (("--requests", SOME, "--arrivals", "poisson:3"), 2, "--arrivals"),
        (("--requests", SOME, "--slo", "speed=1s"), 2, "--slo"),
        (("--requests", SOME, "--policy", "neo,apex"), 2, "--policy"),
        (("--requests", SOME, "--policy", "neo,best", "--sweep", "rate=1"), 2, "--policy"),
        (("--requests", SOME, "--find-capacity"), 2, "--find-capacity"),
        (("--requests", SOME, "--seeds", "3"), 2, "--seeds"),
        (("--requests", SOME, "--find-users"), 2, "--find-users"),
        (("--requests", SOME, "--find-replicas", "--rate", "3"), 2, "--find-replicas"),
        (("--requests", SOME, "--slo", "ttft=1s", "--find-replicas", "--find-users"), 2, "--find-replicas"),
        (("--requests", SOME, "--slo", "ttft=1s", "--find-users", "--sweep", "rate=1"), 2, "--find-users"),
        (("--requests", SOME, "--slo", "ttft=1s", "--find-users", "--users", "3"), 2, "--users"),
        (("--requests", SOME, "--slo", "ttft=1s", "--find-replicas"), 2, "--rate"),
        (
            ("--requests", SOME, "--slo", "ttft=1s", "--find-replicas", "--rate", "3", "--replicas", "2"),
            2,
            "--replicas",
        ),
        (("--requests", SOME, "--slo", "ttft=1s", "--find-capacity", "--users", "3"), 2, "--users"),
        (("--requests", SOME, "--users", "0"), 2, "--users"),
        (("--requests", SOME, "--users", "3", "--think", "nan"), 2, "--think"),
        (("--requests", SOME, "--users", "3", "--rate", "2"), 2, "--rate"),
        (("--requests", SOME, "--users", "3", "--arrivals", "poisson"), 2, "--arrivals"),
        (("--requests", SOME, "--users", "3", "--sweep", "rate=1"), 2, "--sweep"),
        (("--requests", SOME, "--think", "3s"), 2, "--think"),
        (("--users", "3"), 2, "--users"),
        (("--requests", SOME, "--relative-to", "neo"), 2, "--relative-to"),
        (("--requests", SOME, "--sweep", "rate=1", "-o", "s.parquet"), 2, "--out"),
        (("--requests", SOME, "--sweep", "rate=1", "--export-vllm", "v.json"), 2, "--export-vllm"),
        (("--requests", SOME, "--sweep", "rate=1", "--relative-to", "best"), 2, "--relative-to"),
        (("--requests", SOME, "--tensor-parallel", "2"), 2, "--tensor-parallel"),
        (("--requests", SOME, "--pipeline-parallel", "2"), 2, "--pipeline-parallel"),
        (("--requests", SOME, "--pipeline-parallel", "0"), 2, "--pipeline-parallel"),
        (("--pipeline-parallel", "2"), 2, "--pipeline-parallel"),
        (("--requests", SOME, "--sweep", "rate=1", "--timeline", "t.json"), 2, "--timeline"),
        (("--requests", SOME, "--per-layer"), 2, "--per-layer"),
        (("--requests", "synthetic:n=x"), 2, "--requests"),
        (("--requests", "none.csv"), 5, None),
        (("--slo", "ttft=1s"), 2, "--slo"),
        (("--rate", "3"), 2, "--rate"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    plan: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, field: str | None
) -> None:
    found, out, _ = run(capsys, plan, *arguments, "--json")
    error = json.loads(out)["error"]
    assert (found, error["field"]) == (code, field)
    assert error["remedy"] or "between" in error["message"]


def test_bad_rows_name_their_line(plan: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = tmp_path / "a.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,-44\n")
    code, out, _ = run(capsys, plan, "--requests", trace, "--json")
    error = json.loads(out)["error"]
    assert (code, error["file"], error["field"], error["value"]) == (5, str(trace), "line 2, GeneratedTokens", -44)


def test_a_policy_without_room_for_any_request_is_refused(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, plan, "--requests", SOME, "--policy", "symmetric", "--cpu-tokens", "0", "--json")
    error = json.loads(out)["error"]
    assert (code, error["field"], error["value"]) == (3, "--policy", "symmetric")
    assert error["remedy"] == "use one of gpu-only, neo, apex, adaptive, or more memory"


def test_what_never_fits_is_rejected_and_counted(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    huge = "synthetic:n=3,input=9000000,output=2,lengths=fixed"
    code, out, _ = run(capsys, plan, "--requests", huge, "--json")
    assert code == 0 and json.loads(out)["counts"]["rejected"] == 3
    assert run(capsys, plan, "--requests", huge, "--slo", "ttft=1000s", "-q")[0] == 4
    assert run(capsys, plan, "--requests", huge, "--slo", "ttft=1000s", "--find-capacity")[0] == 3
