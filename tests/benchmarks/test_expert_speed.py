"""The benchmark of models with experts: what it takes from an engine's process."""

import sys

from benchmarks.expert_speed import answers_of

from helmsman.executor.measuring import bench

COUNTS = "import sys\nprint(7)\nfor number, line in enumerate(sys.stdin): print(number)"


def test_the_first_run_of_every_test_is_dropped() -> None:
    """A process answers every test twice, after what it says of its memory."""
    tests = bench.tests_of((8,), (4, 5), (0,))
    assert answers_of([sys.executable, "-c", COUNTS], tests, leading=1) == [7, 1, 3, 5]
    without = COUNTS.replace("print(7)\n", "")
    assert answers_of([sys.executable, "-c", without], tests) == [1, 3, 5]
