"""The placement of experts that the search chooses, against every one there is, on random small questions."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random

import pytest
from daily import one_in
from expert_question import MIB, question, routing_of, skewed, with_experts

from helmsman.hwdb.load_model import load_model
from helmsman.planner.strategies.expert_split.layout import ExpertLayout, SlotRule, place
from helmsman.planner.strategies.expert_split.rooms import Rooms
from helmsman.planner.strategies.expert_split.search import ExpertSearch
from helmsman.planner.strategies.streaming.question import Question
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.routing import LayerRouting

LAYERS = 2
SHARES = (0.25, 0.5, 0.75)
RULES = (
    SlotRule("popularity", "host"),
    SlotRule("least-recent", "host"),
    SlotRule("least-recent", "fetched"),
    *(SlotRule("least-recent", "divided", share) for share in SHARES),
)


def random_question(random: Random) -> tuple[Question, int]:
    """Return a question about two layers of a few experts on a machine of random rates, and how many experts."""
    experts, chosen = random.choice(((4, 1), (4, 2), (6, 2)))
    model = with_experts(load_model("Qwen3-30B-A3B"), experts, chosen).with_layers(LAYERS)
    layers = [
        LayerRouting(layer=layer, popularity=skewed(experts, chosen, random.uniform(0.2, 2.0)))
        for layer in range(LAYERS)
    ]
    routing = routing_of(model, *layers) if random.random() < 0.5 else None
    tokens = random.choice((16, 300)), random.choice((2, 64))
    rooms = Rooms(question(model, LAYERS, MIB, *tokens).frame)
    bare, whole = (MIB - rooms.on_accelerator(layout) for layout in (ExpertLayout(0, LAYERS), ExpertLayout(0, 0)))
    vram = random.randint(bare * 9 // 10, whole)
    ask = question(model, LAYERS, vram, *tokens, routing)
    hardware = scaled(ask.frame.roles.hardware, random.uniform(0.3, 3.0), random.uniform(0.3, 3.0))
    ask = replace(ask, frame=replace(ask.frame, roles=ask.frame.roles.on(hardware)))
    return replace(ask, objective=random.choice(("request", "latency"))), experts


def scaled(hardware: Hardware, link: float, host: float) -> Hardware:
    """Return a machine whose links, and whose host's reads, are so many times as fast."""

    def times(figure: object, factor: float) -> dict[str, float]:
        return {end: getattr(figure, end) * factor for end in ("value", "p10", "p90")}

    links = tuple(
        one.model_copy(update={"bandwidth": one.bandwidth.model_copy(update=times(one.bandwidth, link))})
        for one in hardware.links
    )
    devices = tuple(
        one.model_copy(update={"read": one.read.model_copy(update=times(one.read, host))}) if one.kind == "cpu" else one
        for one in hardware.devices
    )
    return hardware.model_copy(update={"links": links, "devices": devices})


def with_context(ask: Question, context: int) -> Question:
    """Return a question with room for so many tokens, of which few are live."""
    work = ask.frame.workload.model_copy(update={"context": context})
    return replace(ask, frame=replace(ask.frame, workload=work))


def attending(layouts: Iterable[ExpertLayout]) -> Iterator[ExpertLayout]:
    """Yield layouts, and the same with caches on the host."""
    for layout in layouts:
        yield from (replace(layout, attended=many) for many in range(LAYERS - layout.host + 1))


def every_layout(ask: Question, experts: int) -> Iterator[ExpertLayout]:
    """Yield every layout with as many experts held in every layer, and every rule for the others."""
    streams = (False, True) if ask.objective == "request" else (False,)
    for host in range(LAYERS + 1):
        yield ExpertLayout(host, 0)
        for away in range(1, LAYERS - host + 1):
            for streamed in streams:
                yield ExpertLayout(host, away, 0, streamed)
                for held in range(1, experts):
                    yield ExpertLayout(host, away, held, streamed)
                    yield from (ExpertLayout(host, away, 0, streamed, rule, held) for rule in RULES)


def check(seed: int, context: int | None = None) -> None:
    """Compare with every placement by the prediction; `context`: tokens for which there is room, by default those that
    come."""
    ask, experts = random_question(Random(seed))
    layouts = every_layout(ask, experts)
    if context is not None:
        ask, layouts = with_context(ask, context), attending(layouts)
    placements = (place(ask.frame, layout) for layout in layouts)
    best = min(ask.seconds(placed) for placed in placements if ask.fits(placed))
    search = ExpertSearch(ask)
    assert search.fits()
    chosen = search.splits()[0]
    assert chosen.seconds <= best * 1.01, search.label(chosen)


@pytest.mark.parametrize("seed", one_in(2, range(10)))
def test_the_closed_form_of_the_choice_is_as_small_as_any(seed: int) -> None:
    ask, experts = random_question(Random(seed))
    search, rooms = ExpertSearch(ask), Rooms(ask.frame)
    best = min(search.candidates.priced(layout) for layout in every_layout(ask, experts) if rooms.fit(layout))
    assert min(seconds for seconds, _ in search.candidates.ranked()) <= best * 1.01


@pytest.mark.parametrize("seed", [10])
def test_the_choice_is_as_fast_as_any(seed: int) -> None:
    check(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(20, 220))
def test_the_choice_is_as_fast_as_any_of_200(seed: int) -> None:
    check(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(220, 260))
def test_the_choice_is_as_fast_as_any_with_room_for_many_tokens(seed: int) -> None:
    check(seed, (2048, 8192)[seed % 2])
