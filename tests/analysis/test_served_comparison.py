"""Served against simulated: which figures, whose requests, and the exit code."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from serving_oracle import serve, simple_cost

from helmsman.analysis.served_comparison import compare_served, served_table, served_verdict
from helmsman.cli import check as helm_check
from helmsman.scheduler.limits import Limits
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest
from helmsman.schemas.served_table import CANCELLED, FAILED, OVER_PRICE, PASS_PARTS, REJECTED, ServedTable, write_served
from helmsman.simulator.serving.requests.read import read_requests

PLAN = "0" * 64
LIMITS = Limits(gpu_tokens=4000, cpu_tokens=0, batch_tokens=512, sequences=64, chunk=128)


@pytest.fixture(scope="module")
def simulated() -> ServedTable:
    requests = read_requests("synthetic:n=40,input=300,output=40,rate=5", seed=1)
    return serve(requests, simple_cost(0.01, 1e-4, 1e-6, layers=4), LIMITS)


def slower(table: ServedTable, factor: float) -> ServedTable:
    """A measured run in which everything takes `factor` times as long from its arrival on."""
    times = {name: table.arrival_s + factor * (getattr(table, name) - table.arrival_s)
             for name in ("started_s", "first_token_s", "finish_s")}  # fmt: skip
    return replace(table, info=table.info.model_copy(update={"source": "measured"}), **times)


def test_errors_are_signed_and_of_every_figure(simulated: ServedTable) -> None:
    found = compare_served(PLAN, simulated, slower(simulated, 1.1), 0.15)
    errors = {figure.what: figure.error for figure in found.figures}
    assert list(errors) == ["throughput", "ttft p50", "ttft p99", "tpot p50", "tpot p99", "e2e p50", "e2e p99"]
    assert errors.pop("throughput") < 0
    assert list(errors.values()) == pytest.approx([0.1] * 6)
    assert found.passed and "7 figures within 15.0%, the largest error 10.0%" in served_table(found)
    tight = compare_served(PLAN, simulated, slower(simulated, 1.1), 0.09)
    assert not tight.passed and "ttft p50, ttft p99, tpot p50, tpot p99, e2e p50, e2e p99 BEYOND 9.0%" in served_table(
        tight
    )
    assert compare_served(PLAN, simulated, slower(simulated, 1.1), 0.09, ("throughput",)).passed


def test_who_failed_has_no_latency_and_lowers_throughput(simulated: ServedTable) -> None:
    served = slower(simulated, 1.0)
    lost = np.arange(40) >= 20
    served = replace(served, status=np.where(lost, FAILED, served.status), produced=np.where(lost, 0, served.produced))
    found = compare_served(PLAN, simulated, served, 0.15, ("throughput",))
    assert not found.passed and found.measured_requests.failed == 20
    nothing = replace(served, status=np.full(40, FAILED), first_token_s=np.full(40, np.nan))
    found = compare_served(PLAN, simulated, nothing, 0.15, ("tpot",))
    assert not found.passed and found.figures[1].measured is None and "-" in served_table(found)


def losing(table: ServedTable, status: int, count: int = 3) -> ServedTable:
    """A run as fast as that of `table`, but for the last `count` requests, which ended with `status`."""
    lost = np.arange(len(table)) >= len(table) - count
    return replace(table, status=np.where(lost, status, table.status))


@pytest.mark.parametrize("status", [FAILED, REJECTED])
def test_a_run_that_lost_requests_missed_whatever_is_judged(simulated: ServedTable, status: int) -> None:
    served = losing(slower(simulated, 1.0), status)
    found = compare_served(PLAN, simulated, served, 0.15, ("tpot",))
    assert (found.verdict, found.passed, found.lost) == ("missed", False, 3)
    assert "3 requests LOST that finished in simulation; 2 figures within 15.0%" in served_table(found)
    both = compare_served(PLAN, losing(simulated, status), served, 0.15, ("tpot",))
    assert (both.verdict, both.lost) == ("passed", 0)
    assert compare_served(PLAN, simulated, losing(served, CANCELLED), 0.15, ("tpot",)).lost == 0


def test_other_requests_and_sources_are_refused(simulated: ServedTable) -> None:
    served = slower(simulated, 1.0)
    others = {
        "not a measured run": (simulated, simulated),
        "not a simulated run": (served, served),
        "another request": (simulated, replace(served, output_tokens=served.output_tokens + (np.arange(40) == 7))),
        "of another plan": (simulated, replace(served, info=served.info.model_copy(update={"plan_sha256": "1" * 64}))),
    }
    for message, (one, other) in others.items():
        with pytest.raises(BadInputError, match=message):
            compare_served(PLAN, one, other, 0.15)


@pytest.fixture
def check(plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """check(simulated, served, *arguments) -> (exit code, stdout, stderr)."""

    def call(simulated: ServedTable, served: ServedTable, *arguments: str) -> tuple[int, str, str]:
        (tmp_path / "plan.json").write_text(plan.to_json())
        for name, table in (("simulated", simulated), ("served", served)):
            named = replace(table, info=table.info.model_copy(update={"plan_sha256": digest(plan)}))
            with (tmp_path / name).open("wb") as stream:
                write_served(named, stream)
        places = [str(tmp_path / name) for name in ("plan.json", "simulated", "served")]
        code = helm_check.main([places[0], "--simulated", places[1], "--served", places[2], *arguments])
        return code, *capsys.readouterr()

    return call


def test_the_command_exits_with_4_beyond_the_tolerance(
    check: Callable[..., tuple[int, str, str]], simulated: ServedTable
) -> None:
    assert check(simulated, slower(simulated, 1.1))[0] == 0
    code, out, err = check(simulated, slower(simulated, 1.3))
    assert code == 4 and "+30.0%   +-0.0%  BEYOND" in out and err.count("\n") == 1
    code, out, err = check(simulated, slower(simulated, 1.3), "--json")
    assert code == 4 and err.count("\n") == 1 and json.loads(out)["passed"] is False
    assert check(simulated, slower(simulated, 1.3), "--judge", "throughput", "--tolerance", "0.25")[0] == 0
    code, out, err = check(simulated, losing(slower(simulated, 1.0), FAILED), "--judge", "tpot")
    assert code == 4 and "3 requests LOST" in out and "see what helm-bench-serve said" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--judge", "speed"], "unknown figure"), (["--tolerance", "0"], "between 0 and 10")],
)
def test_mistakes(
    check: Callable[..., tuple[int, str, str]], simulated: ServedTable, arguments: list[str], said: str
) -> None:
    code, _, err = check(simulated, slower(simulated, 1.0), *arguments)
    assert code == 2 and said in err


def test_both_runs_can_be_drawn(
    check: Callable[..., tuple[int, str, str]], simulated: ServedTable, tmp_path: Path
) -> None:
    assert check(simulated, slower(simulated, 1.0), "--plot", str(tmp_path / "both.png"))[0] == 0
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")


def noted(table: ServedTable, **notes: float) -> ServedTable:
    return replace(table, info=table.info.model_copy(update={"notes": notes}))


def test_a_disturbed_run_neither_passes_nor_misses(
    check: Callable[..., tuple[int, str, str]], simulated: ServedTable
) -> None:
    notes = {"others_cpu_share": 0.3, "thread_wait_share": 0.1}
    for factor in (1.0, 2.5):
        code, out, err = check(simulated, noted(slower(simulated, factor), **notes))
        assert code == 6 and "DISTURBED, not judged: others used 30%" in out and err.count("\n") == 1
        code, out, _ = check(simulated, noted(slower(simulated, factor), **notes), "--json")
        found = json.loads(out)
        assert (code, found["verdict"], found["passed"], found["others_cpu_share"]) == (6, "disturbed", False, 0.3)


def test_a_quiet_run_is_judged_and_says_what_others_took(simulated: ServedTable) -> None:
    found = compare_served(PLAN, simulated, noted(slower(simulated, 1.3), others_cpu_share=0.02), 0.15)
    assert found.verdict == "missed" and "used 2.0% of the server" in served_table(found)
    assert "unknown" not in served_verdict(found)
    nobody_knows = compare_served(PLAN, simulated, slower(simulated, 1.0), 0.15)
    assert nobody_knows.verdict == "passed" and "others       unknown" in served_table(nobody_knows)
    assert served_verdict(nobody_knows).endswith("; what others took of the processors is unknown")


def test_a_miss_names_the_parts_of_passes_that_took_longer_than_their_price(simulated: ServedTable) -> None:
    notes = {"pass_over_price": 1.31, "device_over_price": 1.02, "host_over_price": 1.9, "others_cpu_share": 0.0}
    found = compare_served(PLAN, simulated, noted(slower(simulated, 1.3), **notes), 0.15)
    assert found.passes == {"pass": 1.31, "device": 1.02, "host": 1.9}
    parts = "took 1.31 times their price (the device with the weights 1.02, attention on the host 1.90)"
    assert served_verdict(found).endswith(f"BEYOND 15.0%: passes {parts}") and parts in served_table(found)
    within = compare_served(PLAN, simulated, noted(slower(simulated, 1.0), **notes), 0.15)
    assert "their price" not in served_verdict(within) and parts in served_table(within)
    alone = compare_served(PLAN, simulated, noted(slower(simulated, 1.3), pass_over_price=1.3), 0.15)
    assert "passes took 1.30 times their price;" in served_verdict(alone)


def test_every_part_that_a_server_tells_is_compared(simulated: ServedTable) -> None:
    """The comparison has the ratio of measured to predicted seconds of every part that the server's metrics have."""
    ratios = {part + OVER_PRICE: 1.5 for part in PASS_PARTS}
    comparison = compare_served(PLAN, simulated, noted(slower(simulated, 1.3), **ratios), 0.15)
    assert comparison.passes == dict.fromkeys(PASS_PARTS, 1.5)
    assert served_verdict(comparison).count("1.50") == len(PASS_PARTS)


def test_noise_is_what_batches_of_requests_differ_by(simulated: ServedTable) -> None:
    even = compare_served(PLAN, simulated, slower(simulated, 1.1), 0.15)
    assert all(figure.noise == pytest.approx(0.0, abs=1e-9) for figure in even.figures if figure.what != "throughput")
    late = np.where(np.arange(40) < 8, 2.0, 1.0)
    times = {name: simulated.arrival_s + late * (getattr(simulated, name) - simulated.arrival_s)
             for name in ("started_s", "first_token_s", "finish_s")}  # fmt: skip
    uneven = compare_served(PLAN, simulated, replace(slower(simulated, 1.0), **times), 0.15)
    noise = {figure.what: figure.noise for figure in uneven.figures}
    assert noise["e2e p50"] == pytest.approx(0.2) and noise["ttft p99"] == pytest.approx(0.2)
    assert "+-20.0%" in served_table(uneven)


def test_a_run_of_few_requests_has_no_noise_to_speak_of(simulated: ServedTable) -> None:
    few = serve(
        read_requests("synthetic:n=8,input=300,output=4,rate=5", seed=1),
        simple_cost(0.01, 1e-4, 1e-6, layers=4),
        LIMITS,
    )
    assert all(figure.noise is None for figure in compare_served(PLAN, few, slower(few, 1.0), 0.15).figures)
