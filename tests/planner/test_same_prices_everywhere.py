"""Bound, prediction and replay of a plan are of the same prices: with and without the time between tasks and passes,
the host's launching thread, and whatever else corrections are."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from daily import one_in
from fewer_blocks import fewer_blocks
from plans import figure, make_hardware
from shapes import small_model

from helmsman.cli.plan import build_parser, plan_request
from helmsman.cli.sim import main as simulate_main
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.decide import decide
from helmsman.planner.machine import roles
from helmsman.planner.prediction.launches import driven
from helmsman.planner.strategies.op_split.finalists import layer_seconds
from helmsman.planner.strategies.op_split.split_rules import SplitRules
from helmsman.planner.strategies.op_split.strategy import OpSplit
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.between_passes import BetweenPasses
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.read import parse_json
from helmsman.schemas.workload import Workload

EAGER = ("l40s-epyc7413", "rtx3090-epyc7h12")
MACHINES = (EAGER[0], pytest.param(EAGER[1], marks=pytest.mark.nightly), "loopback")
STRATEGIES = {
    "optimal": (),
    "op-split": ("--batch", "32", "--batches", "2"),
    "layer-split": (),
    "hetegen": (),
    "flexgen": (),
    "llama-cpp": (),
}
"""Each with its batches: two of them in turns keep both devices at work at once."""
ROUNDING = 1 + 1e-9


def loopback() -> Hardware:
    """A processor and a loopback accelerator, profiled together: what passes between their tasks takes its time."""
    machine = make_hardware(vram=96 << 20)
    return machine.model_copy(
        update={
            "links": tuple(link.model_copy(update={"handover": figure(3e-6)}) for link in machine.links),
            "devices": tuple(device.model_copy(update={"join": figure(2e-6)}) for device in machine.devices),
            "between_passes": BetweenPasses(
                begin={"cpu": figure(9e-5), "loopback": figure(2e-4)}, submission=figure(5e-7)
            ),
        }
    )


def question(machine: str, folder: Path) -> list[str]:
    """A prompt and one decode step of a model that does not fit the accelerator."""
    if machine in EAGER:
        return ["--model", fewer_blocks(folder, "Qwen3-0.6B", 4), "--hw", machine, "--vram-avail", "400MB"]
    file = folder / "loopback.json"
    file.write_text(loopback().to_json())
    return ["--model", fewer_blocks(folder, "Qwen3-0.6B", 6), "--hw", str(file), "--format", "q4_0"]


@pytest.mark.parametrize("corrections", [True, pytest.param(False, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("strategy", one_in(2, STRATEGIES))
@pytest.mark.parametrize("machine", MACHINES)
def test_a_bound_is_no_more_than_the_prediction_and_that_is_the_replay(
    machine: str, strategy: str, corrections: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [*question(machine, tmp_path), "--strategy", strategy, *STRATEGIES[strategy], "--objective", "latency"]
    asked += ["--prompt-tokens", "32", "--output-tokens", "2"]
    request = plan_request(build_parser(strategy).parse_args(asked))
    plan = decide(replace(request, prices=CostOptions(corrections))).plan
    file = tmp_path / "plan.json"
    file.write_text(plan.to_json())
    assert simulate_main([str(file), "--json"]) == 0
    replayed, predicted = parse_json(capsys.readouterr().out.encode(), "replayed"), plan.predicted
    assert replayed["ttft_s"] == pytest.approx(predicted.ttft.seconds.mid, rel=1e-9)
    assert replayed["tpot_s"] == pytest.approx(predicted.decode.seconds.mid, rel=1e-9)
    assert predicted.decode.lower_bound <= predicted.decode.seconds.mid * ROUNDING
    if plan.certificate is not None:
        assert plan.certificate.lower_bound <= predicted.decode.seconds.mid * ROUNDING


@pytest.mark.parametrize("corrections", [True, False])
@pytest.mark.parametrize("machine", MACHINES)
def test_the_closed_form_of_a_split_is_a_bound_of_its_prediction(machine: str, corrections: bool) -> None:
    """Of one batch where links slow nobody (`finalists.by_prediction`). Products of 32 sequences keep the processor
    longer than their weights take to come to the accelerator, so that whoever counts what a thread launches there
    without a price for that has a closed form above."""
    hardware = load_hardware(machine, None) if machine in EAGER else loopback()
    model = load_model("opt-13b") if machine in EAGER else small_model("qwen3")
    work = Workload(prompt_tokens=256, output_tokens=2, context=512, batch=32)
    parts = driven(roles(hardware), model, work, "f16", "f16")
    asked = OpSplit(Frame(model, parts, work), SplitRules(), CostOptions(corrections), "latency")
    for start, stop in combinations(range(6), 2):
        split = asked.every_split.at(start, stop)
        layout = replace(asked.layout(split), ends="host")
        assert split.seconds <= layer_seconds(asked.frame, asked.costs, layout) * ROUNDING, (start, stop)
