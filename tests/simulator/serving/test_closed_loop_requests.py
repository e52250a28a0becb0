"""Think times as they are written and drawn, and requests that users send."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from together import together

from helmsman.schemas.errors import UsageError
from helmsman.simulator.serving.requests.closed_loop import ThinkTime, by_users, parse_think
from helmsman.simulator.serving.requests.request_source import Lengths, Variation, open_source

MADE_UP = open_source("synthetic:n=2000,input=1000,output=50,rate=3")
LOOP = replace(MADE_UP, users=40, think=ThinkTime(10.0))


def test_think_times_are_read() -> None:
    assert parse_think("10s") == ThinkTime(10.0)
    assert parse_think("fixed:250ms") == ThinkTime(0.25, "fixed")
    assert parse_think("0s").draw(3, 0).tolist() == [0.0] * 3


@together("text", ["", "ten", "nan", "nans", "-1s", "infs", "fixed:", "fixed", "1e9s", "uniform:3s", "1e999s"])
def test_what_is_no_think_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_think(text)
    assert (caught.value.field, caught.value.value) == ("think", text) and "10s" in caught.value.remedy


def test_think_times_have_the_mean_that_is_said() -> None:
    drawn, fixed = ThinkTime(10.0).draw(100_000, 3), ThinkTime(10.0, "fixed").draw(5, 3)
    assert drawn.mean() == pytest.approx(10.0, rel=0.02) and drawn.std() == pytest.approx(10.0, rel=0.02)
    assert fixed.tolist() == [10.0] * 5
    assert (ThinkTime(10.0).draw(500, 3) == drawn[:500]).all() and not (
        ThinkTime(10.0).draw(500, 4) == drawn[:500]
    ).any()


def test_users_are_somewhere_in_their_thoughts_when_a_run_begins() -> None:
    exponential = ThinkTime(10.0).draw_rest(100_000, 3)
    fixed = ThinkTime(10.0, "fixed").draw_rest(100_000, 3)
    assert exponential.mean() == pytest.approx(10.0, rel=0.02) and exponential.std() == pytest.approx(10.0, rel=0.02)
    assert fixed.mean() == pytest.approx(5.0, rel=0.02) and fixed.min() >= 0.0 and fixed.max() < 10.0


def test_users_send_the_same_lengths_in_their_order() -> None:
    open_arrivals, closed = MADE_UP.requests(5), LOOP.requests(5)
    assert (closed.prompt_tokens == open_arrivals.prompt_tokens).all()
    assert not closed.arrival_s.any() and len(open_arrivals.starts_s) == 0
    assert len(closed.starts_s) == 40 and (np.diff(closed.starts_s) >= 0.0).all() and len(closed.think_s) == 2000
    more = LOOP.requests(5, Variation(users=70))
    assert len(more.starts_s) == 70 and (more.think_s == closed.think_s).all()


def test_a_longer_run_begins_alike() -> None:
    long = LOOP.requests(5, Variation(count=4000))
    for name in ("prompt_tokens", "output_tokens", "think_s"):
        assert (getattr(long, name)[:2000] == getattr(LOOP.requests(5), name)).all(), name
    assert (long.starts_s == LOOP.requests(5).starts_s).all()
    arriving = MADE_UP.requests(5, Variation(count=4000))
    assert arriving.arrival_s[:2000] == pytest.approx(MADE_UP.requests(5).arrival_s, rel=1e-12)


def test_who_gives_up_does_so_as_long_after_sending() -> None:
    arriving = MADE_UP.requests(0)
    leaving = replace(arriving, cancel_s=arriving.arrival_s + 4.0)
    assert by_users(leaving, 3, ThinkTime(1.0), 0).cancel_s == pytest.approx(np.full(2000, 4.0))


def test_a_file_s_times_do_not_count_and_its_lengths_do(tmp_path: Path) -> None:
    path = tmp_path / "lengths.csv"
    path.write_text("arrival_s,prompt,output\n0,7,3\n50,8,4\n90,9,5\n")
    source = open_source(str(path))
    loop = replace(source, users=2, think=ThinkTime(1.0))
    assert loop.requests(0).prompt_tokens.tolist() == [7, 8, 9] and not loop.requests(0).arrival_s.any()
    assert loop.requests(0, Variation(lengths=Lengths(output=6))).output_tokens.tolist() == [6, 6, 6]
    assert len(loop.requests(0, Variation(count=2))) == 2
    assert not source.drawn and loop.drawn and not replace(loop, think=ThinkTime(0.0)).drawn
    assert (source.count, source.most, MADE_UP.count) == (3, 3, 2000)
