"""Several GPUs and NUMA nodes: what passes between memories without a link of their own stops in host memory."""

from dataclasses import replace

import pytest

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.lower import lower
from helmsman.lowering.placement import Placement, shaped
from helmsman.planner.cost.model import CostModel
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.prediction.predict import mean_step, predict
from helmsman.scheduler.iteration import prefill
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.plan import ComputeRule, KvRule, LayerRange, Residence, Schedule, Select
from helmsman.schemas.workload import Workload
from helmsman.simulator.replay import replay

WORK = Workload(prompt_tokens=64, output_tokens=8, batch=2, context=72)
LAYERS, CUT = 6, 3


def two(machine: str, weights: tuple[str, str] = ("vram", "vram1"), **schedule: object) -> Placement:
    """The first blocks on one GPU, the rest on the other; `weights`: where those of each live."""
    hardware = load_hardware(machine, None)
    model = load_model("Qwen3-0.6B").with_layers(LAYERS)
    first = Select(layers=LayerRange(start=0, stop=CUT))
    ends = [Select(names="embedding*")]
    return Placement(
        model=model,
        hardware=hardware,
        workload=WORK,
        residence=(
            *(Residence(select=select, memory="vram", format="f16") for select in ends),
            Residence(select=first, memory=weights[0], format="f16"),
            Residence(select=Select(), memory=weights[1], format="f16"),
        ),
        kv=(
            KvRule(select=first, memory="vram", format="f16"),
            KvRule(select=Select(), memory="vram1", format="f16"),
        ),
        compute=(
            *(ComputeRule(select=select, device="cuda") for select in (*ends, first)),
            ComputeRule(select=Select(), device="cuda1"),
        ),
        schedule=Schedule(**schedule),
    )


def crossings(placed: Placement) -> list[tuple[str, tuple[str, ...], int]]:
    graph = lower(placed, mean_step(placed.workload))
    found = [task for task in graph.tasks if task.kind == "transfer"]
    return [(task.op, task.memories, task.bytes) for task in found]


@pytest.mark.parametrize("machine", ["h100x2-hgx", "a100x2-dgx", "rtx3090x2-threadripper3960x"])
def test_gpus_with_a_link_use_it(machine):
    size = 2 * WORK.batch * 1024
    assert crossings(two(machine)) == [("hidden", ("vram", "vram1"), size), ("token", ("vram1", "vram"), 8)]


@pytest.mark.parametrize("machine", ["rtx3090x2-5950x", "a40x2-2xeon6330"])
def test_gpus_without_one_go_through_host_memory(machine):
    size = 2 * WORK.batch * 1024
    found = crossings(two(machine))
    assert [(op, moved) for op, _, moved in found] == [("hidden", size), ("hidden", size), ("token", 8), ("token", 8)]
    assert [ends for _, ends, _ in found][:2] == [("vram", "dram"), ("dram", "vram1")]
    assert [ends for _, ends, _ in found][2:] == [("vram1", "dram"), ("dram", "vram")]


def test_the_second_leg_waits_for_the_first():
    graph = lower(two("rtx3090x2-5950x"), prefill(WORK))
    down, up = (index for index, task in enumerate(graph.tasks) if task.op == "hidden")
    assert graph.tasks[up].deps == (down,)
    later = [task for task in graph.tasks if task.resource == "cuda1" and task.layer == CUT]
    assert all(any(dep >= up for dep in task.deps) for task in later)


@pytest.mark.parametrize("overlap", [{}, {"overlap": "next-layer", "prefetch": 1}])
@pytest.mark.parametrize("weights", [("vram", "vram1"), ("dram", "vram1"), ("vram", "dram")])
@pytest.mark.parametrize("machine", ["rtx3090x2-5950x", "a100x2-dgx", "a40x2-2xeon6330"])
def test_prediction_and_simulation_agree(machine, weights, overlap):
    placed = two(machine, weights, **overlap)
    costs = CostModel(placed.hardware)
    predicted = predict(placed, costs)
    for phase, iteration in ((predicted.prefill, prefill(WORK)), (predicted.decode, mean_step(WORK))):
        made = replay(lower(placed, iteration), lambda task: costs.price(task).mid, placed.hardware)
        assert made.makespan == pytest.approx(phase.seconds.mid, rel=1e-6)
    kept = {use.memory: use.weights for use in memory_use(placed)}
    assert (kept["dram"] > 0) == ("dram" in weights)


def test_weights_of_both_gpus_share_the_lanes_of_a_switch():
    """Streamed to both ahead, they take as long as all bytes do, not as long as those of the lane with more."""
    seconds = {}
    for machine in ("a100x2-dgx", "own"):
        placed = two("a100x2-dgx", ("dram", "dram"), overlap="next-layer", prefetch=LAYERS)
        if machine == "own":
            links = tuple(link.model_copy(update={"shares": None}) for link in placed.hardware.links)
            placed = replace(placed, hardware=placed.hardware.model_copy(update={"links": links}))
        seconds[machine] = predict(placed, CostModel(placed.hardware)).decode.seconds.mid
    sizes = [sum(size for _, ends, size in crossings(placed) if ends[1] == memory) for memory in ("vram", "vram1")]
    assert seconds["a100x2-dgx"] / seconds["own"] == pytest.approx(sum(sizes) / max(sizes), rel=0.02)


def test_weights_of_the_other_node_come_at_the_speed_of_its_link():
    """GUPTA-07: reads from either node's DRAM are equally fast; what the CPU of one node reads of the other crosses the
    link between them."""
    hardware = load_hardware("a100-numa", None)
    whole = two("rtx3090x2-5950x")

    def on(memory: str, device: str) -> Placement:
        return replace(
            whole,
            hardware=hardware,
            residence=(Residence(select=Select(), memory=memory, format="f16"),),
            kv=(KvRule(select=Select(), memory=hardware.device(device).memory, format="f16"),),
            compute=(ComputeRule(select=Select(), device=device),),
        )

    def step(placed: Placement) -> float:
        return predict(placed, CostModel(hardware)).decode.seconds.mid

    assert step(on("dram1", "cuda")) == pytest.approx(step(on("dram", "cuda")), rel=0.01)
    assert step(on("dram1", "cpu")) > 1.5 * step(on("dram", "cpu"))
    assert step(on("dram1", "cpu1")) == pytest.approx(step(on("dram", "cpu")))
    assert {ends for _, ends, _ in crossings(on("dram1", "cpu"))} == {("dram1", "dram")}


def test_gpus_that_nothing_joins_are_refused():
    placed = two("rtx3090x2-5950x")
    links = tuple(link for link in placed.hardware.links if link.target_memory != "vram1")
    apart = replace(placed, hardware=placed.hardware.model_copy(update={"links": links}))
    with pytest.raises(BadInputError, match="no link from memory vram to memory vram1"):
        lower(apart, mean_step(WORK))


def test_the_faster_host_memory_is_on_the_way():
    """Of two nodes' memories that join them, the one through which it is quicker."""
    placed = two("a40x2-2xeon6330")
    slow = tuple(
        link.model_copy(update={"bandwidth": link.bandwidth.model_copy(update={"value": 1e9, "p10": 1e9})})
        if link.name == "d2h"
        else link
        for link in placed.hardware.links
    )
    changed = replace(placed, hardware=placed.hardware.model_copy(update={"links": slow}))
    assert [ends for _, ends, _ in crossings(changed)][:2] == [("vram", "dram1"), ("dram1", "vram1")]
    assert shaped(placed).shape is not shaped(changed).shape
