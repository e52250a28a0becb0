"""What passes took beside their price between two moments, from what a server tells."""

import pytest

from helmsman.service.inference.load.pass_prices import parse_passes, price_notes

BEFORE = {"pass": {"priced": 2.0, "measured": 3.0}, "host": {"priced": 1.0, "measured": 1.0}}


def test_ratios_are_of_the_time_between() -> None:
    after = {
        "pass": {"priced": 4.0, "measured": 6.0},
        "device": {"priced": 2.0, "measured": 1.0},
        "host": {"priced": 1.0, "measured": 1.0},
    }
    assert price_notes(BEFORE, after) == pytest.approx({"pass_over_price": 1.5, "device_over_price": 0.5})
    assert price_notes({}, after) == {}


@pytest.mark.parametrize("text", ["", "vllm:num_requests_running 1.0\n", "<html>not metrics</html>"])
def test_servers_that_do_not_tell_have_no_ratios(text: str) -> None:
    assert parse_passes(text) == {} and price_notes(BEFORE, parse_passes(text)) == {}
