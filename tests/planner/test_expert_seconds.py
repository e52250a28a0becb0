"""The closed form of layers with experts, against the clock where nothing is shared."""

from dataclasses import replace

import pytest
from daily import one_in
from expert_question import MIB, question, routing_of, skewed
from plans import figure

from helmsman.lowering.lower import lower
from helmsman.lowering.nearest_format import ASSUMED
from helmsman.planner.prediction.predict import pass_seconds
from helmsman.planner.strategies.expert_split.layout import ExpertLayout, SlotRule, place
from helmsman.planner.strategies.expert_split.prices import BlockPrices
from helmsman.planner.strategies.streaming.question import Question
from helmsman.schemas.routing import LayerRouting

FETCHED, PINNED = SlotRule("least-recent", "fetched"), SlotRule("popularity", "host")
LAYERS = 4


def apart(ask: Question) -> Question:
    """Return a question on a machine where no memory or link is shared, nothing waits to be handed over, and slots are
    looked up."""
    hardware = ask.frame.roles.hardware
    fast = tuple(
        memory.model_copy(update={"bandwidth": memory.bandwidth.model_copy(update={"value": 1e15, "p90": 1e16})})
        for memory in hardware.memories
    )
    links = tuple(link.model_copy(update={"slows": None, "interrupts": None}) for link in hardware.links)
    looked_up = figure(3e-4).model_copy(update={"source": ASSUMED})
    devices = tuple(device.model_copy(update={"look_up": looked_up}) for device in hardware.devices)
    roles = ask.frame.roles.on(hardware.model_copy(update={"memories": fast, "links": links, "devices": devices}))
    return replace(ask, frame=replace(ask.frame, roles=roles))


@pytest.mark.parametrize(
    "layout",
    one_in(
        2,
        [
            ExpertLayout(0, LAYERS),
            ExpertLayout(1, 2, 32),
            ExpertLayout(0, 3, 0, False, FETCHED, 48),
            ExpertLayout(1, 3, 0, False, PINNED, 48),
            ExpertLayout(0, LAYERS, 0, False, PINNED, 128),
            ExpertLayout(LAYERS, 0),
            ExpertLayout(0, 0),
            ExpertLayout(0, 0, entry=True),
            ExpertLayout(0, LAYERS, 0, False, PINNED, 0, (16, 0, 64, 128)),
            ExpertLayout(0, LAYERS, 0, False, FETCHED, 0, (16, 8, 64, 128)),
        ],
    ),
)
@pytest.mark.parametrize("skew", [None, 1.0])
def test_the_closed_form_is_the_clock_where_nothing_is_shared(layout: ExpertLayout, skew: float | None) -> None:
    ask = question("Qwen3-30B-A3B", LAYERS, 12_000 * MIB)
    if skew is not None:
        chances = [skewed(128, 8, skew * (layer + 1) / LAYERS) for layer in range(LAYERS)]
        layers = [LayerRouting(layer=layer, popularity=chance) for layer, chance in enumerate(chances)]
        ask = question("Qwen3-30B-A3B", LAYERS, 12_000 * MIB, routing=routing_of(ask.frame.model, *layers))
    ask = apart(ask)
    placement = place(ask.frame, layout)
    prices = BlockPrices(ask.frame, ask.costs(placement))
    replayed = pass_seconds(lower(placement, prices.iteration("decode")), ask.costs(placement))
    assert prices.seconds(layout, "decode") == pytest.approx(replayed, rel=1e-9)


def test_divided_misses_take_less_than_either_alone() -> None:
    ask = question("Qwen3-30B-A3B", LAYERS, 12_000 * MIB)
    prices = BlockPrices(ask.frame, ask.costs(place(ask.frame, ExpertLayout(0, LAYERS))))
    rules = (SlotRule("least-recent", "divided", 0.25), FETCHED, PINNED)
    divided, fetched, host = (prices.seconds(ExpertLayout(0, LAYERS, 0, False, rule, 32), "decode") for rule in rules)
    assert divided < min(fetched, host)


def test_parts_of_experts_are_launched_and_read_like_all_of_them() -> None:
    ask = question("Qwen3-30B-A3B", 2, 12_000 * MIB, prompt=300)
    placement = place(ask.frame, ExpertLayout(0, 2, 64))
    prices = BlockPrices(ask.frame, ask.costs(placement))
    tasks = [task for task in lower(placement, prices.iteration("prefill")).tasks if task.kind == "experts"]
    whole = place(ask.frame, ExpertLayout(0, 0))
    (of_all, *_) = (task for task in lower(whole, prices.iteration("prefill")).tasks if task.kind == "experts")
    for task in tasks:
        assert round(task.tokens / task.per_token) == 300, "chunks are of tokens, not of choices"
        assert task.bytes / task.sequences == pytest.approx(of_all.bytes / of_all.sequences, rel=0.02)
    assert {task.resource for task in tasks} == {"cuda", "cpu"} and of_all.tokens == 2400
