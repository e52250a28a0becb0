"""`expert-split`: its rules, its closed form, and its choice against every layout there is."""

from dataclasses import replace

import pytest

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.lower import lower
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.prediction.predict import pass_seconds
from helmsman.planner.strategies.expert_split.layout import ExpertLayout, away_layers, label, place
from helmsman.planner.strategies.expert_split.prices import BlockPrices
from helmsman.planner.strategies.expert_split.search import ExpertSearch
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.streaming.question import Question
from helmsman.schemas.errors import UsageError
from helmsman.schemas.workload import Workload

MIB = 2**20


def question(model: str, layers: int, vram: int, prompt: int = 256, output: int = 64) -> Question:
    """Return a question about the first layers of a model on a GPU of so many bytes."""
    machine = load_hardware("a4000-7950x", None)
    memories = tuple(
        memory.model_copy(update={"available": vram}) if memory.name == "vram" else memory
        for memory in machine.memories
    )
    machine = machine.model_copy(update={"memories": memories, "tables": ()})
    work = Workload(prompt_tokens=prompt, output_tokens=output, context=prompt + output)
    frame = Frame(load_model(model).with_layers(layers), roles(machine), work, "q4_0", "f16", fused=True)
    return Question(frame, CostOptions())


def fastest(asked: Question, steps: int = 8) -> float:
    """Return the predicted seconds of the best of all layouts, experts kept in steps."""
    layers, best = asked.frame.model.layers, float("inf")
    for host in range(layers + 1):
        for away in range(layers - host + 1):
            for kept in range(0, 128, 128 // steps) if away else (0,):
                for streamed in (False, True) if away else (False,):
                    placed = place(asked.frame, ExpertLayout(host, away, kept, streamed))
                    if asked.fits(placed):
                        best = min(best, asked.seconds(placed))
    return best


@pytest.mark.parametrize(("vram", "prompt", "output"), [(500, 256, 64), (800, 16, 200), (900, 2000, 4)])
def test_the_choice_is_the_fastest_layout(vram: int, prompt: int, output: int) -> None:
    asked = question("Qwen3-30B-A3B", 3, vram * MIB, prompt, output)
    splits = ExpertSearch(asked).splits()
    assert splits[0].seconds <= fastest(asked) * 1.01


@pytest.mark.parametrize("layout", [ExpertLayout(0, 12), ExpertLayout(3, 5, 32)])
@pytest.mark.parametrize("model", ["Qwen3-30B-A3B", "Qwen3.5-35B-A3B"])
def test_the_closed_form_is_near_the_prediction(model: str, layout: ExpertLayout) -> None:
    asked = question(model, 12, 12_000 * MIB)
    costs = asked.costs(place(asked.frame, layout))
    prices = BlockPrices(asked.frame, costs)
    for phase in ("prefill", "decode"):
        predicted = pass_seconds(lower(place(asked.frame, layout), prices.iteration(phase)), costs)
        assert prices.seconds(layout, phase) == pytest.approx(predicted, rel=0.12)


def test_room_is_what_memory_use_leaves() -> None:
    asked = question("Qwen3-30B-A3B", 8, 3_000 * MIB)
    prices = BlockPrices(asked.frame, asked.costs(ExpertSearch(asked).nearest()))
    for layout in (ExpertLayout(0, 8), ExpertLayout(2, 3, 40), ExpertLayout(0, 8, 16)):
        fits = "vram" not in asked.lacks(place(asked.frame, layout))
        left = prices.room(layout)
        assert abs(left) < 40 * MIB or (left > 0) == fits


def test_experts_are_divided_where_some_are_kept() -> None:
    asked = question("Qwen3-30B-A3B", 4, 3_000 * MIB)
    tasks = lower(place(asked.frame, ExpertLayout(0, 4, 32)), BlockPrices(asked.frame, asked.costs(
        ExpertSearch(asked).nearest())).iteration("decode")).tasks  # fmt: skip
    downs = [task for task in tasks if task.op == "experts_down" and task.layer == 1]
    assert sorted((task.resource, task.rows) for task in downs) == [("cpu", (32, 128)), ("cuda", (0, 32))]
    shares = {task.resource: task.bytes for task in downs}
    assert shares["cpu"] == pytest.approx(3 * shares["cuda"], rel=0.01)
    back = [task for task in tasks if task.kind == "transfer" and task.operation == "hidden" and task.resource == "d2h"]
    assert {task.bytes for task in back if task.layer == 1} <= {2 * 2048}
    into = [task for task in tasks if task.kind == "transfer" and task.op == "hidden" and task.layer == 2]
    assert [task.bytes for task in into] == [2 * 2048]


def test_labels_say_where_experts_are() -> None:
    frame = question("Qwen3-30B-A3B", 8, 3_000 * MIB).frame
    assert label(frame, ExpertLayout(2, 3, 32)) == "cpu(3)->cuda(7) experts cpu(3x96)"
    assert label(frame, ExpertLayout(0, 0)) == "cpu(1)->cuda(9)"
    assert away_layers(frame.model, ExpertLayout(6, 9)) == (6, 7)


def test_models_without_experts_are_refused() -> None:
    asked = question("Qwen3-8B", 4, 3_000 * MIB)
    with pytest.raises(UsageError, match="no routed experts"):
        ExpertSearch(replace(asked)).splits()
