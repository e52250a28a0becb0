"""The benchmark of models with experts: what it takes from an engine's process."""

import sys

from benchmarks.expert_speed import answers_of

from helmsman.executor.measuring import bench

COUNTS = """import json, sys
print(json.dumps({"peak": 7}), flush=True)
for number, line in enumerate(sys.stdin): print(json.dumps({"seconds": number, "done": True}), flush=True)
"""


def test_the_first_run_of_every_test_is_dropped() -> None:
    """A process answers every test twice, after what it says of its memory."""
    tests = bench.tests_of((8,), (4, 5), (0,))
    assert answers_of([sys.executable, "-c", COUNTS], tests) == (7, (1.0, 3.0, 5.0))
