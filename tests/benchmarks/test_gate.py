"""What the gate's benchmark makes of verdicts, and how it plants a slow link."""

import pytest
from benchmarks.gate import WRONG, exit_code, slower_link
from plans import make_hardware

from helmsman.gate.record_changes import record_changes


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([("ok", "ok"), ("slower", "slower"), ("drift", "drift")], 0),
        ([("ok", "ok"), ("slower", "undecided")], 6),
        ([("ok", "slower"), ("slower", "undecided")], 4),
        ([("drift", "slower")], 4),
        ([("slower", "ok")], 4),
    ],
)
def test_no_answer_is_not_a_wrong_one(verdicts: list[tuple[str, str]], code: int) -> None:
    assert exit_code(verdicts) == code


def test_only_the_link_to_the_accelerator_changes() -> None:
    record = make_hardware()
    (line,) = record_changes(record, slower_link(record, WRONG))
    assert "links.h2d.bandwidth" in line and "(-40.0%)" in line
