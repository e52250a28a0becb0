"""`helm-plan --routing`: what a plan says of it, and files that are no routing of the model."""

from pathlib import Path

import pytest
from expert_question import routing_of, skewed

from helmsman.cli import plan
from helmsman.hwdb.load_model import load_model
from helmsman.planner.decide import decide
from helmsman.planner.read_request import request_from
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import read_document
from helmsman.schemas.routing import HitCurve, LayerRouting, RoutingCurve

MODEL = "Qwen3-30B-A3B"
ASKED = ("--model", MODEL, "--hw", "a4000-7950x", "--format", "q4_0", "--strategy", "freetoken", "--miss-mode", "cpu")


def routing(path: Path, layers: int = 48) -> Path:
    hits = HitCurve(
        eviction="least-recent",
        warm=RoutingCurve(at=(32, 64), mid=(0.6, 0.8), low=(0.5, 0.7), high=(0.7, 0.9)),
        cold=RoutingCurve(at=(64,), mid=(0.5,)),
    )
    chances = skewed(128, 8, 0.5)
    made = [LayerRouting(layer=layer, popularity=chances, hits=(hits,)) for layer in range(layers)]
    text = routing_of(load_model(MODEL), *made).model_copy(update={"traces": 3}).to_json()
    path.write_text(text)
    return path


def test_a_plan_says_what_it_assumed_and_how_its_seconds_move(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "plan.json"
    ask = [*ASKED, "--expert-slots", "48", "--routing", str(routing(tmp_path / "r"))]
    assert plan.main([*ask, "-v", "-o", str(out)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "routing curves of 3 traces" in text and "under uniform routing" in text and "while slots fill" in text
    assert "used last on the GPU; others are computed where they live" in text
    made = read_document(Plan, out)
    assumed = made.predicted.routing
    assert assumed is not None and assumed.assumed == "curves"
    seconds = {case.name: case.decode for case in assumed.cases}
    assert set(seconds) == {"uniform", "least", "most", "cold"}
    assert seconds["least"] < made.predicted.decode.seconds.mid < seconds["most"] < seconds["cold"]


def test_the_library_takes_the_same_file(tmp_path: Path) -> None:
    question = {"model": MODEL, "hardware": "a4000-7950x", "format": "q4_0", "strategy": "ktransformers"}
    plain, skew = (
        decide(request_from({**question, **more, "options": {"gpu_experts": 64, "expert_order": "popularity"}}))
        for more in ({}, {"routing": str(routing(tmp_path / "r"))})
    )
    assert skew.seconds < plain.seconds


def test_routings_of_other_models_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(routing(tmp_path / "r"))
    other = ["--model", "gpt-oss-20b", "--hw", "a4000-7950x", "--routing", path]
    assert plan.main(other) == 5
    (tmp_path / "n").write_text("{}")
    assert plan.main([*ASKED, "--routing", str(tmp_path / "n")]) == 5
    (tmp_path / "trace.parquet").write_bytes(b"PAR1 and so on")
    assert plan.main([*ASKED, "--routing", str(tmp_path / "trace.parquet")]) == 5
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3 and "a trace of routing" in lines[2] and "helm-fit-routing" in lines[2]
    assert path in lines[0] and "a routing of another model" in lines[0]
