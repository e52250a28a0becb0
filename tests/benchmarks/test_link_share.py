"""The share of a link's rate that pages of a step move at."""

import pytest
from benchmarks.link_share import shares

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.schemas.trace import Span

HARDWARE = load_hardware("rtx4060-laptop", None)
LINK = next(link for link in HARDWARE.links if link.target_memory == "vram")
DEVICE = next(device.name for device in HARDWARE.devices if device.memory == "vram")
BYTES = 10_000_000
TAKES = LINK.latency.value + BYTES / LINK.bandwidth.value


def _span(resource: str, start: float, end: float, moved: int = 0, iteration: int = 1) -> Span:
    return Span(0, "measured", f"{iteration}/0.x", iteration, 0, "decode", 0, "x", resource, start, end, moved, 0.0)


def _page(start: float, end: float, iteration: int = 1) -> Span:
    return _span(LINK.name, start, end, BYTES, iteration)


def test_what_stands_still_while_the_device_works_counts():
    work = _span(DEVICE, 10.0, 20.0)
    full = [work, _page(10.0, 10.0 + TAKES), _page(10.0 + TAKES, 10.0 + 2 * TAKES)]
    rest = [_page(11.0, 11.0 + TAKES, 2), _page(11.0 + 3 * TAKES, 11.0 + 4 * TAKES, 2), _span(DEVICE, 10.0, 20.0, 0, 2)]
    assert list(shares(HARDWARE, full + rest)) == pytest.approx([1.0, 0.5])


def test_buffers_filled_before_the_device_begins_do_not_count():
    early = [_page(1.0, 1.0 + TAKES), _span(LINK.name, 2.0, 9.0, 4096), _page(10.0, 10.0 + 2 * TAKES)]
    assert list(shares(HARDWARE, [*early, _span(DEVICE, 10.0, 20.0)])) == pytest.approx([0.5])
    assert list(shares(HARDWARE, [_span(DEVICE, 10.0, 20.0)])) == []
