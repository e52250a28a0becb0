"""`helm-run --routing-trace`: what the command writes, and what it refuses in one line."""

import json
from pathlib import Path

import pytest
from expert_layouts import divided_plan
from expert_plans import written_checkpoint
from plans import make_plan
from shapes import small_model
from two_cpus import TWO_CPUS

from helmsman.cli.run import main
from helmsman.planner.strategies.expert_split.layout import ExpertLayout
from helmsman.schemas.read import digest
from helmsman.schemas.routing_trace import read_routing_trace
from helmsman.schemas.workload import Workload

PROMPT, OUTPUT = 9, 4
SHAPE = Workload(prompt_tokens=PROMPT, output_tokens=OUTPUT, context=32)


def command(folder: Path, plan: str, *more: str) -> list[str]:
    """Return the arguments of a run of PROMPT tokens."""
    (folder / "plan.json").write_text(plan)
    (folder / "tokens.json").write_text(json.dumps(list(range(3, 3 + PROMPT))))
    files = ["--tokens", str(folder / "tokens.json"), "--routing-trace", str(folder / "routing.parquet")]
    return [str(folder / "plan.json"), "--checkpoint", str(folder / "checkpoint"), *files, "--ignore-eos", *more]


@TWO_CPUS
def test_a_run_writes_what_its_tokens_chose(tmp_path: Path) -> None:
    """With the digest of the model, wherever its experts are computed."""
    _, model = written_checkpoint("olmoe", tmp_path)
    plan = divided_plan(model, ExpertLayout(0, 2, 3), SHAPE)
    assert main(command(tmp_path, plan.to_json())) == 0
    trace = read_routing_trace(tmp_path / "routing.parquet")
    assert (trace.info.model_sha256, [layer.chosen for layer in trace.info.layers]) == (digest(model), [4, 4])
    assert [choice.iteration for choice in trace.choices if choice.layer == 0] == [0] * PROMPT + [1, 2, 3]
    assert [choice.position for choice in trace.choices if choice.layer == 1] == list(range(PROMPT + OUTPUT - 1))
    assert all(list(choice.experts) == sorted(set(choice.experts)) for choice in trace.choices)


def test_models_and_runs_that_record_nothing_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "checkpoint").mkdir()
    plan = make_plan(small_model("qwen3"), workload=SHAPE).to_json()
    for more, reason in (((), "has no routed experts"), (("--backend", "torch"), "native runs of one request")):
        assert main(command(tmp_path, plan, *more)) != 0
        error = capsys.readouterr().err.strip()
        assert reason in error
        assert "\n" not in error
