"""helm-bench: llama-bench's columns and fields, from runs of the plan's own executor."""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
from op_plans import make_op_split_plan
from paged import make_paged_plan
from plans import make_hardware, make_plan
from shapes import small_model
from two_cpus import TWO_CPUS

from helmsman.cli.bench import main
from helmsman.executor._kernels import isa
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.engine import Engine
from helmsman.executor.measuring.bench import BenchRunner
from helmsman.executor.measuring.bench import tests_of as combined
from helmsman.planner.strategies.streaming.division import pieces
from helmsman.schemas.bench import Bench
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest, parse_document
from helmsman.schemas.workload import Workload

MODEL = small_model("llama")
WORK = Workload(prompt_tokens=16, output_tokens=8, context=96)
TESTS = ("-p", "0,24", "-n", "6", "-d", "0,40", "-r", "3")

pytestmark = TWO_CPUS

Bench_ = Callable[..., int]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("bench") / MODEL.name
    write_checkpoint(MODEL, place, seed=1, fmt="f32")
    return place


@pytest.fixture
def bench(tmp_path: Path, checkpoint: Path) -> Bench_:
    def call(*argv: str, plan: Plan | None = None) -> int:
        (tmp_path / "plan.json").write_text((plan or make_plan(MODEL, 2, workload=WORK)).to_json())
        return main([str(tmp_path / "plan.json"), "--checkpoint", str(checkpoint), *argv])

    return call


def test_tests_are_prompts_then_steps_at_every_depth() -> None:
    names = [test.name for test in combined((512, 0), (128,), (0, 4096))]
    assert names == ["pp512", "pp512 @ d4096", "tg128", "tg128 @ d4096"]


def test_json_has_llama_benchs_fields(bench: Bench_, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = make_plan(MODEL, 2, workload=WORK)
    assert bench(*TESTS, "--json", "-o", str(tmp_path / "bench.json"), plan=plan) == 0
    captured = capsys.readouterr()
    assert captured.out == (tmp_path / "bench.json").read_text()
    found = parse_document(Bench, captured.out.encode(), "out")
    assert [(t.n_prompt, t.n_gen, t.n_depth) for t in found.results] == [(24, 0, 0), (24, 0, 40), (0, 6, 0), (0, 6, 40)]
    for test in found.results:
        tokens = test.n_prompt or test.n_gen
        rates = [tokens * 1e9 / each for each in test.samples_ns]
        assert rates == pytest.approx(test.samples_ts) and len(rates) == 3
        assert (test.avg_ts, test.stddev_ts) == pytest.approx((fmean(rates), stdev(rates)))
        assert (test.avg_ns, test.stddev_ns) == pytest.approx((fmean(test.samples_ns), stdev(test.samples_ns)))
    assert f"{isa()} kernels" in found.machine and found.machine.startswith(found.cpu_info)
    assert found.plan_sha256 == digest(plan) and found.backends == "cpu+loopback" and found.n_threads == 2
    values = sum(np.prod(shape) for shape in shapes())
    assert (found.model_n_params, found.model_size) == (values, 4 * values)


def shapes() -> list[tuple[int, ...]]:
    from helmsman.lowering.tensors import tensors

    return [tensor.shape for tensor in tensors(MODEL)]


def test_the_table_is_markdown_below_the_machine(bench: Bench_, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("-p", "16", "-n", "4", "-d", "8", "-r", "2") == 0
    machine, nothing, *lines = capsys.readouterr().out.splitlines()
    assert machine.startswith("machine: ") and f"{isa()} kernels" in machine and "reads" in machine and not nothing
    assert [cell.strip() for cell in lines[0].split("|")[1:-1]] == [
        "model", "size", "params", "backend", "threads", "test", "t/s",
    ]  # fmt: skip
    assert len({len(line) for line in lines}) == 1 and len(lines) == 4
    assert "pp16 @ d8" in lines[2] and "tg4 @ d8" in lines[3] and "±" in lines[2]
    assert set(lines[1]) <= set("|-: ")


def split() -> Plan:
    return make_op_split_plan(MODEL, 4, len(pieces(MODEL, {})), workload=WORK)


def window() -> Plan:
    return make_paged_plan(MODEL, 2, page=32, window=64, workload=WORK)


@pytest.mark.parametrize("plan", [lambda: make_plan(MODEL, 2, workload=WORK), split, window])
def test_every_test_runs_on_as_much_cache_as_it_says(
    bench: Bench_, monkeypatch: pytest.MonkeyPatch, plan: Callable[[], Plan]
) -> None:
    """Timed passes of decode at depth d follow exactly d tokens, all but one of which are noise."""
    made, passes = Engine.generate, []

    def watched(self: Engine, *args: Any, **options: Any) -> object:
        found = made(self, *args, **options)
        passes.append([(each.tokens, each.past) for each in found.iterations])
        return found

    monkeypatch.setattr(Engine, "generate", watched)
    assert bench("-p", "0", "-n", "5", "-d", "40", "-r", "2", "-q", plan=plan()) == 0
    timed = [(1, past) for past in range(40, 45)]
    ends = [each[1:] for each in passes if len(each) > 1]
    assert ends == [timed[:4], timed, timed]  # the first warms up
    filled = sum(tokens for each in passes for tokens, _ in each[:1])
    assert filled == 3


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["-p", "200"], "a context of 201 tokens, and the plan has 96"),
        (["-p", "0", "-n", "0"], "nothing to test"),
        (["-p", "x"], "whole numbers"),
        (["-r", "0"], "out of range"),
        (["--model", "Qwen3-0.6B"], "a plan or a model"),
        (["--batch", "2"], "goes with --model"),
        (["--activations", "int8"], "goes with --model"),
    ],
)
def test_what_cannot_be_tested(bench: Bench_, capsys: pytest.CaptureFixture[str], argv: list[str], says: str) -> None:
    assert bench(*argv) == 2
    assert says in capsys.readouterr().err


def test_prompts_at_a_depth_need_caches_that_stay(bench: Bench_, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("-p", "8", "-d", "8", "-n", "0", plan=split()) == 2
    assert "move between memories" in capsys.readouterr().err


def test_a_model_and_a_machine_make_a_plan(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hw.json").write_text(make_hardware().to_json())
    (tmp_path / "model.json").write_text(MODEL.to_json())
    argv = ["--model", str(tmp_path / "model.json"), "--hw", str(tmp_path / "hw.json"), "--format", "f32"]
    assert main([*argv, "--checkpoint", str(checkpoint), "-p", "8", "-n", "3", "-r", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model_type"] == "small-llama f32" and [t["stddev_ts"] for t in found["results"]] == [0, 0]


def test_a_clock_that_stands_still_measures_nothing(
    bench: Bench_, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(BenchRunner, "seconds", lambda runner, test: 0.0)
    assert bench("-p", "2", "-n", "0", "-r", "1") == 6
    assert "the clock stood still while pp2 was measured; measure again" in capsys.readouterr().err
