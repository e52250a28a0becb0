"""Blocks that are streamed between others: what comes waits for its buffers, and for nothing else."""

import pytest
from questions import asked

from helmsman.lowering.lower import lower
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.strategies.streaming.whole_blocks import place


def waits(order: str) -> dict[int, set[int]]:
    """By streamed block, the blocks whose operations its first transfer waits for."""
    roles = tuple({"p": "pinned", "s": "streamed", "h": "host"}[letter] for letter in order)
    question = asked("Qwen3-0.6B", layers=len(roles))
    tasks = lower(place(question.frame, roles, "accelerator"), mean_step(question.frame.workload)).tasks
    found: dict[int, set[int]] = {}
    for task in tasks:
        if task.payload == "weights":
            found.setdefault(task.layer, {tasks[dep].layer for dep in task.deps if tasks[dep].kind != "transfer"})
    return found


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("ssss", {0: set(), 1: set(), 2: {0}, 3: {1}}),
        ("pppspppsppps", {3: set(), 7: set(), 11: {3}}),
        ("sphsphspps", {0: set(), 3: set(), 6: {0}, 9: {3}}),
        ("hhsphpshppspps", {2: set(), 6: set(), 10: {2}, 13: {6}}),
    ],
)
def test_a_set_of_buffers_is_free_when_the_last_block_that_used_it_is_done(order, expected):
    """Two sets, used in turns by the blocks that bring something: as many as memory is counted for (E-PARK-04)."""
    assert waits(order) == expected
