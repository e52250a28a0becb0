"""`expert-split`: its rules, its closed form, and its choice against every layout there is."""

from dataclasses import replace

import pytest
from expert_question import MIB, question

from helmsman.lowering.lower import lower
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.prediction.predict import pass_seconds
from helmsman.planner.strategies.expert_split.layout import ExpertLayout, SlotRule, away_layers, label, place
from helmsman.planner.strategies.expert_split.prices import BlockPrices
from helmsman.planner.strategies.expert_split.rooms import Rooms
from helmsman.planner.strategies.expert_split.search import ExpertSearch
from helmsman.planner.strategies.streaming.question import Question
from helmsman.scheduler.iteration import PHASES
from helmsman.schemas.errors import UsageError


def fastest(ask: Question, steps: int = 2) -> float:
    """Return the predicted seconds of the best of all layouts, experts kept or in slots in steps."""
    layers, best = ask.frame.model.layers, float("inf")
    shares = (SlotRule("least-recent", "divided", part / 8) for part in (2, 6))
    rules = (None, SlotRule("least-recent", "fetched"), SlotRule("popularity", "host"), *shares)
    for host in range(layers + 1):
        for away in range(layers - host + 1):
            for held in range(0, 128, 128 // steps) if away else (0,):
                for rule in rules if held else (None,):
                    for streamed in (False, True) if away else (False,):
                        layout = ExpertLayout(host, away, held if rule is None else 0, streamed)
                        layout = layout if rule is None else replace(layout, rule=rule, slots=held)
                        placed = place(ask.frame, layout)
                        if ask.fits(placed):
                            best = min(best, ask.seconds(placed))
    return best


@pytest.mark.parametrize(("vram", "prompt", "output"), [(500, 256, 64), (800, 16, 200), (900, 2000, 4)])
def test_the_choice_is_the_fastest_layout(vram: int, prompt: int, output: int) -> None:
    ask = question("Qwen3-30B-A3B", 3, vram * MIB, prompt, output)
    splits = ExpertSearch(ask).splits()
    assert splits[0].seconds <= fastest(ask) * 1.01


@pytest.mark.parametrize("layout", [ExpertLayout(0, 12), ExpertLayout(3, 5, 32)])
@pytest.mark.parametrize("model", ["Qwen3-30B-A3B", "Qwen3.5-35B-A3B"])
def test_the_closed_form_is_near_the_prediction(model: str, layout: ExpertLayout) -> None:
    ask = question(model, 12, 12_000 * MIB)
    costs = ask.costs(place(ask.frame, layout))
    prices = BlockPrices(ask.frame, costs)
    for phase in ("prefill", "decode"):
        predicted = pass_seconds(lower(place(ask.frame, layout), prices.iteration(phase)), costs)
        assert prices.seconds(layout, phase) == pytest.approx(predicted, rel=0.12)


def test_room_is_what_memory_use_leaves() -> None:
    ask = question("Qwen3-30B-A3B", 8, 3_000 * MIB)
    rooms, fetched = Rooms(ask.frame), SlotRule("least-recent", "fetched")
    layouts = (
        ExpertLayout(0, 8),
        ExpertLayout(2, 3, 40),
        ExpertLayout(0, 8, 16),
        ExpertLayout(0, 8, 16, True),
        ExpertLayout(0, 8, 0, True, fetched, 16),
        ExpertLayout(0, 8, 0, True, SlotRule("popularity", "host"), 16),
        ExpertLayout(0, 0),
        ExpertLayout(0, 0, entry=True),
        ExpertLayout(8, 0),
        ExpertLayout(0, 8, 16, attended=8),
        ExpertLayout(2, 3, 16, True, attended=4),
    )
    for layout in layouts:
        used = {use.memory: use for use in memory_use(place(ask.frame, layout))}
        left = {name: use.available - use.used for name, use in used.items()}
        assert rooms.on_accelerator(layout) == pytest.approx(left["vram"], abs=MIB), layout
        assert layout.entry or rooms.on_host(layout) == pytest.approx(left["dram"], abs=MIB), layout


def test_experts_are_divided_where_some_are_kept() -> None:
    ask = question("Qwen3-30B-A3B", 4, 3_000 * MIB)
    tasks = lower(place(ask.frame, ExpertLayout(0, 4, 32)), BlockPrices(ask.frame, ask.costs(
        ExpertSearch(ask).nearest())).iteration("decode")).tasks  # fmt: skip
    of_block = [task for task in tasks if task.layer == 1]
    downs = [task for task in of_block if task.op == "experts_down" and task.kind == "experts"]
    assert sorted((task.resource, task.rows) for task in downs) == [("cpu", (32, 128)), ("cuda", (0, 32))]
    shares = {task.resource: task.bytes for task in downs}
    assert shares["cpu"] == pytest.approx(3 * shares["cuda"], rel=0.01)
    crossing = {task.resource: (task.op, task.bytes) for task in of_block if task.kind == "transfer"}
    assert crossing == {"d2h": ("router", 2 * 2048 + 8 * 8), "h2d": ("experts_down", 2 * 2048)}
    assert sum(task.kind == "transfer" for task in of_block) == 2, "one message each way"


def test_caches_that_leave_no_room_for_weights_are_on_the_host() -> None:
    ask = question("Qwen3-30B-A3B", 8, 1_000 * MIB)
    work = ask.frame.workload.model_copy(update={"context": 40_000})
    ask = replace(ask, frame=replace(ask.frame, workload=work))
    best = ExpertSearch(ask).splits()[0]
    assert best.layout.attended
    assert {rule.memory for rule in best.placement.kv} == {"dram", "vram"}
    prices = BlockPrices(ask.frame, ask.costs(best.placement))
    for phase in PHASES:
        tasks = lower(best.placement, prices.iteration(phase)).tasks
        attending = {task.resource for task in tasks if task.kind == "attention" and task.layer == best.layout.host}
        assert attending == {"cpu" if phase == "decode" else "cuda"}
    assert label(ask.frame, best.layout).endswith(f"caches cpu({best.layout.attended})")


def test_labels_say_where_experts_are() -> None:
    frame = question("Qwen3-30B-A3B", 8, 3_000 * MIB).frame
    assert label(frame, ExpertLayout(2, 3, 32)) == "cpu(3)->cuda(7) experts cpu(3x96)"
    assert label(frame, ExpertLayout(0, 0)) == "cpu(1)->cuda(9)"
    assert away_layers(frame.model, ExpertLayout(6, 9)) == (6, 7)


def test_models_without_experts_are_refused() -> None:
    ask = question("Qwen3-8B", 4, 3_000 * MIB)
    with pytest.raises(UsageError, match="no routed experts"):
        ExpertSearch(replace(ask)).splits()


def test_what_is_to_be_executed_has_no_slots_but_on_loopback_accelerators() -> None:
    ask = question("Qwen3-30B-A3B", 4, 900 * MIB)
    every = {layout.rule for _, layout in ExpertSearch(ask).candidates.ranked()}
    assert any(rule is not None and rule.misses == "divided" for rule in every)
    assert {layout.rule for _, layout in ExpertSearch(ask, executed=True).candidates.ranked()} == {None}
    hardware = ask.frame.roles.hardware
    devices = tuple(
        device.model_copy(update={"kind": "loopback"}) if device.kind == "cuda" else device
        for device in hardware.devices
    )
    roles_there = ask.frame.roles.on(hardware.model_copy(update={"devices": devices}))
    looped = replace(ask, frame=replace(ask.frame, roles=roles_there))
    rules = {layout.rule for _, layout in ExpertSearch(looped, executed=True).candidates.ranked()} - {None}
    assert {rule.misses for rule in rules if rule is not None} == {"fetched", "divided"}
