"""GGUF files run: the same as the directory of the same weights, and their blocks as they are."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from daily import one_in
from family_models import family_model
from numpy.typing import NDArray
from op_plans import as_plan
from plans import make_plan
from splits import make_frame, make_layout
from two_cpus import TWO_CPUS

from helmsman.cli.make_checkpoint import main as make
from helmsman.cli.run import main
from helmsman.executor.checkpoint.gguf_write import write_gguf
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.engine import Engine
from helmsman.executor.system.machine import Machine
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.file_formats import file_formats
from helmsman.planner.mixed_formats import with_formats
from helmsman.planner.strategies.streaming.place import place as put
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.plan import Plan
from helmsman.schemas.workload import Workload

pytestmark = TWO_CPUS

WORK = Workload(prompt_tokens=12, output_tokens=8, context=40)
CLOSE = 2e-2
"""Of the largest logit: kernels may round activations to eight bits."""


def logits(place: Path, family: str, fmt: StoredFormat, on_cpu: int | None = None) -> NDArray[np.float32]:
    return computed(place, make_plan(family_model(family), on_cpu, weights=fmt, workload=WORK))


def computed(place: Path, plan: Plan) -> NDArray[np.float32]:
    tokens = np.random.default_rng(0).integers(0, plan.model.vocab, (1, 24)).astype(np.int32)
    with Engine.load(plan, place, Machine.this()) as engine:
        return engine.logits(tokens, 12)[0]


@pytest.mark.parametrize("family", ["llama", "mistral", "phi3", "qwen2", "qwen3"])
def test_values_are_those_of_the_directory(family: str, tmp_path: Path) -> None:
    write_gguf(family_model(family), tmp_path / "m.gguf", 1, "f32")
    write_checkpoint(family_model(family), tmp_path / "hf", 1, "f32")
    assert np.array_equal(logits(tmp_path / "m.gguf", family, "f16", 2), logits(tmp_path / "hf", family, "f16", 2))


@pytest.mark.parametrize("fmt", one_in(2, ["q8_0", "q4_0"]))
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_blocks_are_multiplied_as_they_are(fmt: StoredFormat, family: str, tmp_path: Path) -> None:
    """As their values are in f32, and unlike those of the weights before they were rounded."""
    write_gguf(family_model(family), tmp_path / "m.gguf", 1, fmt)
    found, values = (logits(tmp_path / "m.gguf", family, kept, 2) for kept in (fmt, "f32"))
    largest = np.abs(values).max()
    assert np.abs(found - values).max() < CLOSE * largest
    other: StoredFormat = "q4_0" if fmt == "q8_0" else "q8_0"
    through = logits(tmp_path / "m.gguf", family, other)
    assert np.corrcoef(through.ravel(), values.ravel())[0, 1] > (0.99 if other == "q8_0" else 0.7)


@pytest.mark.parametrize("family", one_in(2, ["llama", "qwen3"]))
@pytest.mark.parametrize("streamed", [False, True])
def test_matrices_of_several_formats_are_multiplied_as_they_are(family: str, streamed: bool, tmp_path: Path) -> None:
    """What llama.cpp calls Q4_K_M: where matrices live, and where one operation's comes after another's."""
    model, place = family_model(family), tmp_path / "m.gguf"
    write_gguf(model, place, 1, "q4_k_m")
    if streamed:
        frame = replace(make_frame(model, WORK), weights="q4_k")
        plan = as_plan(put(frame, make_layout(model, 3, 13, {"q": 2, "scores": 2, "wv": 2, "down": 3})))
    else:
        plan = make_plan(model, 2, weights="q4_k", workload=WORK)
    mixed = with_formats(plan, file_formats(place, model), CostModel(plan.hardware, CostOptions()))
    assert {rule.format for rule in mixed.residence} == {"q4_k", "q6_k", "q8_0"}
    found, values = (computed(place, each) for each in (mixed, make_plan(model, workload=WORK)))
    assert np.abs(found - values).max() < 1e-3 * np.abs(values).max()


def test_a_file_is_made_and_run_by_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, place = family_model("qwen2"), tmp_path / "m.gguf"
    (tmp_path / "model.json").write_text(model.to_json())
    (tmp_path / "plan.json").write_text(make_plan(model, 2, weights="f16", workload=WORK).to_json())
    asked = ["--model", str(tmp_path / "model.json"), "--seed", "1"]
    assert make([*asked, "--format", "f16", "--gguf", "-o", str(place)]) == 0
    assert make([*asked, "--format", "f16", "-o", str(tmp_path / "hf")]) == 0
    assert make([*asked, "--format", "q8_0", "-o", str(tmp_path / "no")]) == 2
    assert make([*asked, "--gguf", "-o", str(tmp_path / "no")]) == 2
    capsys.readouterr()
    told = []
    for checkpoint in (place, tmp_path / "hf"):
        run = [str(tmp_path / "plan.json"), "--checkpoint", str(checkpoint), "--text", "Call me", "--json"]
        assert main([*run, "--ignore-eos"]) == 0
        told.append(json.loads(capsys.readouterr().out))
    assert told[0]["tokens"] == told[1]["tokens"] and told[0]["text"] == told[1]["text"]


@pytest.mark.parametrize("prompt", ["--text", "--tokens"])
def test_what_is_no_checkpoint(prompt: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "1").write_text("1")
    (tmp_path / "plan.json").write_text(make_plan(family_model("qwen2"), workload=WORK).to_json())
    for name, content in (("absent.gguf", None), ("m.bin", b""), ("empty.gguf", b""), ("m.gguf", b"GGUF" + bytes(20))):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        run = [str(tmp_path / "plan.json"), "--checkpoint", str(tmp_path / name), prompt, str(tmp_path / "1")]
        assert main(run) == 5
        captured = capsys.readouterr()
        assert name in captured.err and captured.err.count("\n") == 1
