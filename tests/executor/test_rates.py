"""A clock that stood still: no rate of memory, products or links is a division by zero."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from helmsman.executor.devices import probe
from helmsman.executor.devices.base import LinkSample
from helmsman.executor.system.rates import per_second
from helmsman.schemas.errors import DisturbedError

PIECE: Any = SimpleNamespace(size=1 << 20, part=lambda start, stop: None)
POOL: Any = None


@pytest.mark.parametrize(
    "measured",
    [
        lambda: probe.read_rate(POOL, [PIECE]),
        lambda: probe.weights_rate(POOL, "f16", [PIECE]),
        lambda: probe.product_rate(POOL, "f16", [PIECE], "f32"),
        lambda: probe.joint_read_rate([POOL, POOL], [PIECE, PIECE]),
        lambda: LinkSample.of(lambda _: 0.0, 1 << 20, 64),
    ],
    ids=["reads", "weights", "products", "joint reads", "a link"],
)
def test_what_took_no_time_was_not_measured(monkeypatch: pytest.MonkeyPatch, measured: Callable[[], object]) -> None:
    for timer in ("time_read", "time_linear"):
        monkeypatch.setattr(probe, timer, lambda *_: [0.0])
    with pytest.raises(DisturbedError, match="the clock stood still while .* was measured; measure again"):
        measured()


def test_a_rate_is_an_amount_a_second() -> None:
    assert per_second(6.0, 2.0, "anything") == 3.0
