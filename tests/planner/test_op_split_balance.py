"""Storage devices of unequal speed, alone and behind a shared ceiling, are brought to finish together."""

from itertools import pairwise
from random import Random
from statistics import fmean

import pytest
from plans import figure, make_hardware
from splits import with_storage

from helmsman.planner.cost.balance import balance, spread
from helmsman.planner.cost.stripes import parallel, stripes, together
from helmsman.schemas.errors import BadInputError

RATES = (2.0, 1.0, 1.0, 1.0)


def alone(rates):
    return lambda shares: tuple(share / rate for share, rate in zip(shares, rates, strict=True))


def sharing(rates, ceiling):
    """Devices that work at the same time, none faster than its rate, all together not faster than `ceiling`."""

    def measure(shares):
        left, ends, now = dict(enumerate(shares)), [0.0] * len(shares), 0.0
        left = {device: share for device, share in left.items() if share > 0}
        while left:
            speeds = _fair({device: rates[device] for device in left}, ceiling)
            step = min(left[device] / speeds[device] for device in left)
            now += step
            for device in tuple(left):
                left[device] -= step * speeds[device]
                if left[device] <= 1e-12:
                    ends[device] = now
                    del left[device]
        return tuple(ends)

    return measure


def _fair(rates, ceiling):
    """Max-min fair speeds under a ceiling."""
    speeds, rest = {}, ceiling
    for count, device in enumerate(sorted(rates, key=rates.__getitem__)):
        speeds[device] = min(rates[device], rest / (len(rates) - count))
        rest -= speeds[device]
    return speeds


def starts():
    rng = Random(7)
    yield (0.0,) * 4
    yield (0.25,) * 4
    for hot in range(4):
        yield tuple(float(k == hot) for k in range(4))
    for _ in range(60):
        yield tuple(rng.random() ** rng.choice([1, 6]) for _ in range(4))
    for _ in range(20):
        yield tuple(rng.choice([0.0, rng.random() * 100]) for _ in range(4))


@pytest.mark.parametrize("fast", range(4))
@pytest.mark.parametrize("ceiling", [None, 4.0, 3.0, 2.0, 0.8], ids=str)
def test_four_devices_one_twice_as_fast_finish_together_from_any_start(fast, ceiling):
    rates = tuple(2.0 if k == fast else 1.0 for k in range(4))
    measure = alone(rates) if ceiling is None else sharing(rates, ceiling)
    for start in starts():
        found = balance(start, measure)
        assert len(found.history) <= 10
        assert spread(measure(found.shares)) <= 1.02, start
        assert sum(found.shares) == pytest.approx(sum(start) or 1.0)


def test_alone_shares_are_proportional_to_speed():
    found = balance((25.0,) * 4, alone(RATES), iterations=40, tolerance=1 + 1e-9)
    assert found.shares == pytest.approx((40.0, 20.0, 20.0, 20.0), rel=1e-6)
    assert spread(found.history[-1][1]) == pytest.approx(1.0)


def test_other_devices_and_numbers_of_them():
    rng = Random(3)
    for _ in range(100):
        rates = tuple(rng.uniform(0.5, 8) for _ in range(rng.randint(1, 8)))
        measure = alone(rates)
        assert spread(measure(balance((1.0,) * len(rates), measure).shares)) <= 1.02


def test_it_stops_when_even():
    assert len(balance((40.0, 20.0, 20.0, 20.0), alone(RATES)).history) == 1


def test_the_printed_sign_diverges():
    """E-PARK-01: eq. 3 and 4 to the letter, s (1 + (1 - t_avg / t) alpha), give slow devices more, until a size is not
    positive; with the sign that `balance` uses the same steps even them out."""
    measure, history, shares = alone(RATES), [], (25.0,) * 4
    while min(shares) > 0 and len(history) < 12:
        seconds = measure(shares)
        history.append(spread(seconds))
        mean = fmean(seconds)
        shares = tuple(s * (1 + (1 - mean / t) * 0.5) for s, t in zip(shares, seconds, strict=True))
    assert all(later > earlier for earlier, later in pairwise(history))
    assert history[-1] > 4
    assert len(history) < 12
    even = [spread(seconds) for _, seconds in balance((25.0,) * 4, measure, alpha=0.5).history]
    assert even[0] == history[0] and all(later < earlier for earlier, later in pairwise(even))


@pytest.mark.parametrize(
    ("shares", "options", "message"),
    [
        ((), {}, "at least one"),
        ((1.0, -1.0), {}, "zero or more"),
        ((1.0, float("nan")), {}, "finite"),
        ((1.0, 1.0), {"alpha": 0.0}, "alpha"),
        ((1.0, 1.0), {"iterations": 0}, "at least one measurement"),
    ],
)
def test_what_cannot_be_shares_is_refused(shares, options, message):
    with pytest.raises(BadInputError, match=message):
        balance(shares, alone((1.0,) * len(shares)), **options)


@pytest.mark.parametrize("seconds", [(1.0,), (1.0, float("nan")), (1.0, -1.0), (1.0, 0.0)])
def test_what_cannot_be_times_is_refused(seconds):
    with pytest.raises(BadInputError, match="measure"):
        balance((1.0, 1.0), lambda shares: seconds)


def test_machines_are_balanced_as_their_links_are():
    """Alone by their rates; behind shared lanes by what these leave them; together never faster than the lanes."""
    links = dict(zip("abcd", (4.0, 2.0, 2.0, 2.0), strict=True))
    machine = with_storage(make_hardware(), *links)
    assert stripes(machine, tuple(links), "vram") == pytest.approx((0.25,) * 4)
    machine = _with_rates(machine, {f"s2d-{name}": rate for name, rate in links.items()}, None)
    assert stripes(machine, tuple(links), "vram") == pytest.approx((0.4, 0.2, 0.2, 0.2), rel=1e-6)
    assert together(machine, "vram")["a"] == pytest.approx(0.4, rel=1e-6)
    moved = [("s2d-a", 10.0, 40), ("s2d-b", 9.0, 20), ("s2d-b", 2.0, 4)]
    assert parallel(machine, moved) == 11.0
    assert parallel(_with_rates(machine, {}, "h2d"), moved) == 11.0
    slow = _with_rates(_with_rates(machine, {"h2d": 4.0}, None), {}, "h2d")
    assert parallel(slow, moved) == pytest.approx(64 / 4.0)
    assert parallel(slow, [*moved, ("h2d", 2.0, 8)]) == pytest.approx(72 / 4.0)


def _with_rates(machine, rates, shares):
    links = []
    for link in machine.links:
        change = {"bandwidth": figure(rates[link.name])} if link.name in rates else {}
        if shares is not None and link.name.startswith("s2d"):
            change["shares"] = shares
        links.append(link.model_copy(update=change))
    return machine.model_copy(update={"links": tuple(links)})
