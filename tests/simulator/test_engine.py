import random

import pytest

from helmsman.simulator.engine import Engine


def test_events_come_in_order_of_time_then_priority_then_schedule() -> None:
    engine: Engine[str] = Engine()
    for time, event, priority in [(2.0, "d", 0), (1.0, "b", 1), (1.0, "c", 1), (1.0, "a", 0)]:
        engine.schedule(time, event, priority)
    assert engine.step() == ["a", "b", "c"] and engine.now == 1.0
    assert engine.step() == ["d"] and engine.now == 2.0
    assert engine.step() == [] and engine.now == 2.0


def test_an_event_scheduled_for_now_comes_in_the_next_step() -> None:
    engine: Engine[str] = Engine()
    engine.schedule(1.0, "first")
    engine.step()
    engine.schedule(1.0, "again")
    assert engine.step() == ["again"] and engine.now == 1.0


def test_the_past_is_closed() -> None:
    engine: Engine[str] = Engine()
    engine.schedule(1.0, "x")
    engine.step()
    with pytest.raises(ValueError, match="cannot be scheduled"):
        engine.schedule(0.5, "y")


def test_the_clock_never_goes_back() -> None:
    rng, engine = random.Random(0), Engine[int]()
    for number in range(200):
        engine.schedule(rng.choice([0.0, 1.0, rng.random()]), number)
    seen: list[tuple[float, list[int]]] = []
    while due := engine.step():
        seen.append((engine.now, due))
    times = [time for time, _ in seen]
    assert times == sorted(set(times)) and sum(len(due) for _, due in seen) == 200
