"""Launches of an eager host's one thread: how they are counted, and what is planned with them."""

import json
import random
from collections import Counter
from itertools import product

import pytest
from fewer_blocks import fewer_blocks

from helmsman.cli.plan import main
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.lower import lower
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.prediction.complexity import Complexity, complexity
from helmsman.planner.prediction.launches import ceiling, driven, floor
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.prediction.sensitivity import HANDOVERS, LAUNCH, sensitivity
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import parse_document
from helmsman.schemas.workload import Workload
from helmsman.simulator.replay import replay
from helmsman.timing.pools import THREAD

EAGER = ("l40s-epyc7413", "rtx3090-epyc7h12")
WORK = Workload(prompt_tokens=128, output_tokens=128, batch=1, context=256)


def planned(capsys, model, machine, *options) -> Plan:
    assert main(["--model", model, "--hw", machine, *options, "--json"]) == 0
    return parse_document(Plan, capsys.readouterr().out.encode(), "plan")


def test_the_ceiling_counts_so_many_seconds():
    rng = random.Random(3)
    for _ in range(50):
        work = [rng.expovariate(1.0) for _ in range(rng.randint(1, 40))]
        total = rng.random() * 2 * sum(work)
        level = ceiling(Counter(work).items(), total)
        assert sum(min(each, level) for each in work) == pytest.approx(min(sum(work), total))
        assert level <= max(work) * (1 + 1e-9)
    assert ceiling([], 1.0) == 0.0


def test_what_is_launched_takes_the_thread_all_of_its_launches():
    """The floor and the ceiling of operations both add up to the seconds of all launches, whatever is longer."""
    work = [1.0, 2.0, 30.0, 4.0]
    for total in (8.0, 60.0):
        prices = [max(each, floor(Counter(work).items(), total)) for each in work]
        held = sum(min(each, ceiling(Counter(prices).items(), total)) for each in prices)
        assert held == pytest.approx(total)
        assert sum(prices) == pytest.approx(max(sum(work), total))


@pytest.mark.parametrize(
    ("model", "machine"),
    [
        ("Qwen3-0.6B", EAGER[0]),
        ("opt-1.3b", EAGER[1]),
        *(
            pytest.param(model, machine, marks=pytest.mark.nightly)
            for model, machine in product(("Qwen3-0.6B", "Qwen3-1.7B", "opt-1.3b"), EAGER)
        ),
    ],
)
def test_a_model_that_fits_stays_on_the_card(machine, model, capsys):
    """Each block shared with the CPU seemed a tenth faster while the CPU's work was beside the GPU's launches."""
    plan = planned(capsys, model, machine)
    assert complexity(plan) == Complexity.ONE_DEVICE


@pytest.mark.parametrize("machine", EAGER)
def test_the_search_finds_nothing_faster_than_the_card_and_proves_it(machine, capsys):
    """By the search's own prediction, proof and replay, for any step of a model that launches bound."""
    plan = planned(capsys, "Qwen3-0.6B", machine, "--strategy", "optimal", "--objective", "latency")
    card = planned(capsys, "Qwen3-0.6B", machine, "--strategy", "llama-cpp", "--ngl", "999", "--same-software")
    seconds = plan.predicted.decode.seconds.mid
    assert seconds == pytest.approx(card.predicted.decode.seconds.mid, rel=1e-3)
    assert seconds * 0.999 <= plan.certificate.lower_bound <= seconds * (1 + 1e-9)
    costs = CostModel(plan.hardware)
    graph = lower(plan, mean_step(plan.workload))
    done = replay(graph, lambda task: costs.price(task).mid, plan.hardware, between=costs.between())
    assert done.makespan == pytest.approx(seconds, rel=1e-9)


@pytest.mark.parametrize("machine", [EAGER[0], pytest.param(EAGER[1], marks=pytest.mark.nightly)])
def test_dividing_is_never_slower_than_not_dividing(machine, capsys):
    """Where the model does not fit, so that the CPU computes beside what is launched."""
    little = ["--vram-avail", "700MB", "--objective", "latency"]
    whole = planned(capsys, "Qwen3-0.6B", machine, "--strategy", "layer-split", *little)
    split = planned(capsys, "Qwen3-0.6B", machine, "--strategy", "optimal", *little)
    took = [plan.predicted.decode.seconds.mid for plan in (whole, split)]
    assert took[1] <= took[0] * (1 + 1e-9)
    assert split.certificate.lower_bound <= took[1] * (1 + 1e-9)


def test_only_eager_machines_have_such_a_thread():
    eager = driven(roles(load_hardware(EAGER[0], None)), load_model("Qwen3-0.6B"), WORK, "f16", "f16").hardware
    assert eager.device("cuda").launching is not None and THREAD in CostModel(eager).pools.capacity
    assert json.loads(eager.to_json())["devices"][1]["launching"]["source"] == "helm-launch"
    for machine in ("rtx4060-laptop", "a10-xeon6342", "epyc9554-cpu"):
        other = driven(roles(load_hardware(machine, None)), load_model("Qwen3-0.6B"), WORK, "f16", "f16").hardware
        assert THREAD not in CostModel(other).pools.capacity


def test_without_corrections_nothing_is_launched():
    eager = driven(roles(load_hardware(EAGER[0], None)), load_model("Qwen3-0.6B"), WORK, "f16", "f16").hardware
    bare = CostModel(eager, CostOptions(corrections=False))
    assert not bare.between().thread.known and THREAD not in bare.pools.capacity


def test_the_seconds_of_a_launch_err_as_one(capsys, tmp_path):
    """The least time of an operation and what it keeps the thread follow from one figure; what passes between tasks is
    another. Matrices shared with the CPU take as long as the thread that drives both."""
    model = fewer_blocks(tmp_path, "opt-13b", 10)
    plan = planned(capsys, model, EAGER[0], "--strategy", "hetegen", "--vram-avail", "2.2GB")

    def moved(p10, p90):
        """Where a launch keeps the thread for 60 us, more or less."""
        launching = plan.hardware.device("cuda").launching.model_copy(update={"value": 60e-6, "p10": p10, "p90": p90})
        devices = tuple(
            device.model_copy(update={"launching": launching}) if device.name == "cuda" else device
            for device in plan.hardware.devices
        )
        costs = CostModel(plan.hardware.model_copy(update={"devices": devices}))
        return sensitivity(plan, costs, {"decode": 1.0}).moved

    certain, uncertain = moved(60e-6, 60e-6), moved(40e-6, 120e-6)
    assert uncertain[HANDOVERS] == certain[HANDOVERS]
    assert uncertain["cuda", LAUNCH][0] <= certain["cuda", LAUNCH][0] <= 0.0
    assert uncertain["cuda", LAUNCH][1] > certain["cuda", LAUNCH][1] >= 0.0
