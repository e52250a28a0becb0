"""Requests at other rates and of other lengths, as studies ask for them."""

from pathlib import Path

import numpy as np
import pytest

from helmsman.simulator.serving.requests.arrivals import Arrivals, own_rate
from helmsman.simulator.serving.requests.request_source import Lengths, Variation, open_source

MADE_UP = "synthetic:n=2000,input=1000,output=50"
TRACE = '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n' * 3 + (
    '{"timestamp": 6000, "input_length": 100, "output_length": 7, "hash_ids": [2]}\n'
)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "m.jsonl"
    path.write_text(TRACE)
    return str(path)


def test_a_rate_of_the_study_comes_before_that_of_the_question_and_of_the_line() -> None:
    line, question = open_source(f"{MADE_UP},rate=2"), open_source(f"{MADE_UP},rate=2", rate=4.0)
    assert own_rate(line.requests(0)) == pytest.approx(2.0, rel=0.05)
    assert own_rate(question.requests(0)) == pytest.approx(4.0, rel=0.05)
    assert own_rate(question.requests(0, Variation(rate=8.0))) == pytest.approx(8.0, rel=0.05)
    assert own_rate(open_source(MADE_UP).requests(0)) is None


def test_one_seed_has_the_same_pattern_at_every_rate() -> None:
    slow, fast = (open_source(MADE_UP).requests(3, Variation(rate=rate)) for rate in (1.0, 5.0))
    assert fast.arrival_s * 5.0 == pytest.approx(slow.arrival_s)
    assert (fast.prompt_tokens == slow.prompt_tokens).all()
    assert not np.array_equal(open_source(MADE_UP).requests(4, Variation(rate=1.0)).arrival_s, slow.arrival_s)


def test_lengths_that_are_made_up_keep_how_they_vary() -> None:
    found = open_source(MADE_UP).requests(0, Variation(lengths=Lengths(output=200)))
    assert (found.output_tokens.min(), found.output_tokens.max()) == (180, 220)
    assert found.prompt_tokens.max() == 1100


def test_lengths_of_a_file_become_all_alike(trace: str) -> None:
    found = open_source(trace).requests(0, Variation(lengths=Lengths(output=9)))
    assert found.output_tokens.tolist() == [9] * 4
    assert (found.hash_block, found.prompt_tokens.tolist()) == (512, [600, 600, 600, 100])
    found = open_source(trace).requests(0, Variation(lengths=Lengths(prompt=32)))
    assert (found.hash_block, len(found.hashes), found.prompt_tokens.tolist()) == (0, 0, [32] * 4)
    assert found.output_tokens.tolist() == [5, 5, 5, 7]


def test_the_first_requests_only(trace: str) -> None:
    found = open_source(trace, limit=2).requests(0)
    assert (len(found), found.hash_start.tolist()) == (2, [0, 2, 4])
    assert len(open_source(trace, limit=9).requests(0)) == 4
    assert len(open_source(MADE_UP, limit=7).requests(0)) == 7


def test_a_file_s_own_times_are_the_same_for_every_seed(trace: str) -> None:
    assert not open_source(trace, rate=3.0).drawn
    assert open_source(trace, arrivals=Arrivals("poisson")).drawn and open_source(MADE_UP).drawn


def test_another_process_replaces_the_file_s_times(trace: str) -> None:
    found = open_source(trace, arrivals=Arrivals("uniform")).requests(0)
    assert found.arrival_s.tolist() == [2.0, 4.0, 6.0, 8.0]
    assert open_source(trace, rate=1.0).requests(0).arrival_s.tolist() == [0.0, 0.0, 0.0, 3.0]
