"""Proofs where tensors are kept in several formats: nothing that is searched is faster at the prices of these."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from family_models import family_model
from plans import make_hardware
from questions import asked

from helmsman.cli.plan import main
from helmsman.executor.checkpoint.gguf_write import write_gguf
from helmsman.lowering.tensors import tensors
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.mixed_formats import with_formats
from helmsman.planner.strategies.optimal.configurations.rules import Assignment
from helmsman.planner.strategies.optimal.search.compositions import Aim
from helmsman.planner.strategies.optimal.search.finalist import predicted
from helmsman.planner.strategies.optimal.search.mixed_bound import MixedBound
from helmsman.planner.strategies.optimal.strategy import Optimal

AIMS = [
    Aim("decode step", {"decode": 1.0}),
    Aim("prompt pass", {"prefill": 1.0}),
    Aim("request", {"prefill": 1.0, "decode": 9.0}),
]
FORMATS = ("f16", "q8_0", "q4_0", "q6_k", "q4_k")


def mixture(model, seed: int, choice=FORMATS):
    """A format for every matrix, most of one operation's alike."""
    chance = random.Random(seed)
    usual = {each.name: chance.choice(choice) for each in tensors(model)}
    matrices = [each for each in tensors(model) if len(each.shape) == 2 and each.tied_to is None]
    return {
        (each.name, each.layer): chance.choice(choice) if chance.random() < 0.2 else usual[each.name]
        for each in matrices
    }


@pytest.mark.parametrize(
    ("model", "machine", "work"),
    [
        ("Qwen3-0.6B", "rtx4060-laptop", {"vram": 300 * 10**6}),
        pytest.param("Qwen3-0.6B", "gh200-96gb", {"batch": 4}, marks=pytest.mark.nightly),
        ("Llama-3.2-1B", "m1-16gb", {}),
        ("Qwen3-0.6B", "rtx3090x2-5950x", {"batch": 2}),
        pytest.param("Qwen3-0.6B", "rtx4060-laptop", {"batch": 4, "batches": 2}, marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 8))])
def test_no_assignment_is_faster_than_the_bound(model, machine, work, seed):
    """Whatever ways blocks have, in any order, with every tensor in its own format."""
    chance = random.Random(seed)
    question, aim = asked(model, machine, layers=random.Random(seed).choice([3, 4, 5]), **work), chance.choice(AIMS)
    formats = mixture(question.frame.model, seed)
    question = replace(question, frame=replace(question.frame, weights=chance.choice(sorted(set(formats.values())))))
    optimal, own = Optimal(question, aim), replace(question, frame=replace(question.frame, formats=formats))
    blocks, compared = optimal.blocks, 0
    bound = MixedBound(question, blocks, aim, formats).seconds
    pool = sorted(range(len(blocks.ways)), key=lambda row: blocks.summed.lanes[row].max())[:60]
    for _ in range(20):
        ways = chance.sample(pool, chance.randint(1, 3))
        rows = [chance.choice(ways) for _ in range(blocks.count)]
        chosen = Assignment(tuple(blocks.ways[row] for row in rows), *chance.choice(blocks.arrangements), blocks.shares)
        found = predicted(own, chosen, aim)
        if found is not None:
            assert bound <= found.seconds * (1 + 1e-9), chosen
            compared += 1
    assert compared > 2


@pytest.mark.parametrize("machine", [pytest.param("rtx4060-laptop", marks=pytest.mark.nightly), "m1-16gb"])
def test_a_plan_of_mixed_formats_has_a_proof_of_its_own_prices(machine):
    """The proof was that of the format of most weights, and above the plan."""
    question, costs = asked("Qwen3-8B", machine), CostOptions()
    names = {"v.weight": "q6_k", "down.weight": "q6_k", "head.weight": "q6_k"}
    formats = {
        (each.name, each.layer): names.get(each.name, "q4_k") if (each.layer or 0) % 2 == 0 else "q4_k"
        for each in tensors(question.frame.model)
        if len(each.shape) == 2
    }
    for weights in ("q4_k", "q6_k"):
        asked_in = replace(question, frame=replace(question.frame, weights=weights, formats=formats))
        plan = Optimal(asked_in, AIMS[0]).decide({}).plan
        assert with_formats(plan, formats, CostModel(question.frame.roles.hardware, costs)) is plan
        proof = plan.certificate
        assert proof.lower_bound <= proof.seconds == plan.predicted.decode.seconds.mid
        assert proof.gap < (0.03 if weights == "q4_k" else 0.15)


@pytest.mark.parametrize(
    "objective", ["latency", *(pytest.param(aim, marks=pytest.mark.nightly) for aim in ("throughput", "ttft"))]
)
def test_what_is_printed_for_a_mixed_file_is_proved_for_it(
    objective: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hw.json").write_text(make_hardware().to_json())
    write_gguf(family_model("qwen2"), tmp_path / "m.gguf", fmt="q4_k_m")
    argv = ["--model", str(tmp_path / "m.gguf"), "--hw", str(tmp_path / "hw.json"), "--objective", objective, "--json"]
    assert main(argv) == 0
    plan = json.loads(capsys.readouterr().out)
    proof = plan["certificate"]
    assert proof["lower_bound"] <= proof["seconds"]
    if objective == "latency":
        assert proof["seconds"] == plan["predicted"]["decode"]["seconds"]["mid"]
    assert main([*argv, "--compress", "weights"]) == 2
