"""Figures of two devices at once and of the time between tasks, from samples made by hand."""

from dataclasses import replace

import pytest

from helmsman.executor.profile.fits import (
    between,
    copy_overhead,
    interrupts_of,
    joint_compute,
    joint_products,
    joint_rate,
)
from helmsman.executor.profile.handovers import BYTES, LARGE
from helmsman.executor.profile.samples import HandoverSamples, JointSamples


def test_what_both_reach_is_the_sum_while_the_link_rests() -> None:
    samples = JointSamples(("cpu", "loopback"), {"idle": [50e9, 48e9], "busy": [1e9]}, visits=1)
    found = joint_rate(samples)
    assert found.value == pytest.approx(49e9)
    assert found.n == 2


def test_products_of_a_format_are_the_median_share_of_all_sizes_and_visits() -> None:
    samples = JointSamples(shares={("bf16", 1 << 20): [0.7, 0.8], ("bf16", 4 << 20): [0.9], ("q4_0", 1 << 20): [0.6]})
    found = {each.format: (each.share.value, each.share.n) for each in joint_products(samples)}
    assert found == {"bf16": (pytest.approx(0.8), 3), "q4_0": (pytest.approx(0.6), 1)}


def test_a_spell_of_one_visit_is_not_what_both_reach() -> None:
    samples = JointSamples(("cpu", "loopback"), {"idle": [44e9, 75e9, 45e9]}, visits=3)
    three_visits = joint_rate(samples)
    assert three_visits.value == pytest.approx(45e9)
    assert three_visits.n == 3 and three_visits.p90 > 65e9
    whole = joint_rate(replace(samples, throughout=[40e9] * 20))
    assert whole.value == pytest.approx(40e9) and whole.n == 23


def test_what_devices_keep_of_their_arithmetic_is_the_mean_of_its_moments() -> None:
    """Half of the seconds at half the rate: three quarters of the work."""
    found = joint_compute(JointSamples(kept=[1.0, 0.5] * 10))
    assert found is not None
    assert found.value == pytest.approx(3 / 4)
    assert (found.p10, found.p90, found.n) == (0.5, 1.0, 20)
    assert joint_compute(JointSamples()) is None


def test_the_time_between_passes_is_a_line_through_the_fewest_pieces_and_the_most() -> None:
    samples = {("cpu", 1): [11e-6, 13e-6, 12e-6], ("cpu", 101): [212e-6, 211e-6, 213e-6], ("cpu-all", 2): [54e-6]}
    found = between(samples)
    assert found.submission.value == pytest.approx(2e-6)
    assert found.begin["cpu"].value == pytest.approx(10e-6)
    assert found.begin["cpu-all"].value == pytest.approx(50e-6)
    assert found.submission.p10 <= found.submission.value <= found.submission.p90


def test_a_host_alone_hands_over_in_one_piece() -> None:
    found = between({("cpu", 1): [70e-6, 80e-6]})
    assert found.begin["cpu"].value == pytest.approx(75e-6)
    assert found.submission.value == 0.0


def test_a_copy_takes_a_part_of_the_time_of_processors_that_move_it() -> None:
    """Half of it adds as much again; one that takes all counts as a twentieth left; noise below nothing counts as
    nothing."""
    taken = {
        ("h2d", "loopback", BYTES): [(0.0, 20e-6), (20e-6, 20e-6), (0.0, 20e-6), (20e-6, 20e-6)],
        ("h2d", "loopback", LARGE): [(600e-6, 500e-6)],
        ("h2d", "cpu", BYTES): [(-3e-6, 20e-6)],
        ("h2d", "cpu", LARGE): [(-3e-6, 500e-6)],
    }
    found = interrupts_of(HandoverSamples(nominal=20e-6, taken=taken), "h2d")
    assert found is not None
    assert list(found) == ["loopback"]
    assert found["loopback"].small.value == pytest.approx(1.0)
    assert found["loopback"].large.value == pytest.approx(19.0)


def test_what_a_copy_takes_beyond_its_latency_and_bytes() -> None:
    samples = HandoverSamples(nominal=20e-6, copy={"d2h": [21e-6, 25e-6]}, beside={"d2h": [19e-6]})
    assert copy_overhead(samples, "d2h").value == pytest.approx(1e-6)
