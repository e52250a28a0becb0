"""Submissions: nothing waits in vain, nothing runs before what it depends on, and joined tasks follow each other."""

from random import Random

import pytest

from helmsman.executor.programs.submissions import JointTasks, hazards, returning, steps_of, submissions


def together(lanes, deps, groups=()):
    return submissions(steps_of(lanes, deps, groups), lambda one, other: True)


def test_tasks_of_a_lane_without_others_are_one_submission():
    (found,) = together(["cpu"] * 4, [(), (0,), (1,), (0, 2)])
    assert found.tasks == [0, 1, 2, 3] and found.waits == [] and not found.signals


def test_a_submission_ends_where_another_lane_waits_for_it():
    found = together(["cpu", "cpu", "link", "cpu", "gpu"], [(), (0,), (0,), (1,), (2, 3)])
    assert [(each.lane, each.tasks, each.waits) for each in found] == [
        ("cpu", [0], []),
        ("cpu", [1, 3], []),
        ("link", [2], [0]),
        ("gpu", [4], [1, 2]),
    ]


def test_what_is_known_to_be_done_is_not_waited_for():
    found = together(["a", "b", "c", "b", "c"], [(), (0,), (1, 0), (), (3, 1, 0)])
    assert [each.waits for each in found] == [[], [0], [1], [], [3]]


def test_tasks_that_belong_together_wait_for_all_that_one_of_them_needs():
    lanes = ["gpu", "link", "gpu", "link", "gpu", "back"]
    found = together(lanes, [(), (), (0, 1), (), (2, 3), (2,)], [JointTasks((0, 2, 4))])
    by_lane = [(each.lane, each.tasks) for each in found]
    assert by_lane == [("link", [1, 3]), ("gpu", [0, 2, 4]), ("back", [5])] or by_lane[-2:] == [
        ("gpu", [0, 2, 4]),
        ("back", [5]),
    ]


def test_chunks_go_through_all_tasks_one_after_the_other():
    """What comes for them comes before the first, what they leave is there after the last."""
    lanes = ["weights", "gpu", "link", "cpu", "back"]
    found = together(lanes, [(), (), (1,), (2, 0), (3,)], [JointTasks((1, 2, 3), chunks=3)])
    turn = [("gpu", [1]), ("link", [2]), ("cpu", [3])]
    assert [(each.lane, each.tasks) for each in found] == [("weights", [0]), *turn * 3, ("back", [4])]
    assert [each.chunk for each in found] == [None, *(chunk for chunk in range(3) for _ in turn), None]
    assert [each.waits for each in found] == [[], [], [1], [0, 2], [3], [4], [5], [6], [7], [8], [9]]


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_run_in_an_order_that_respects_them(seed):
    """Lanes that take turns at random, each in its own order, never overtake a dependency and never block."""
    rng = Random(seed)
    lanes = [rng.choice("abcd") for _ in range(60)]
    deps = [{rng.randrange(task) for _ in range(rng.randrange(4))} if task else set() for task in range(60)]
    found = together(lanes, deps)
    queues = {lane: [i for i, each in enumerate(found) if each.lane == lane] for lane in set(lanes)}
    done, order = set(), []
    while any(queues.values()):
        ready = [lane for lane, queue in queues.items() if queue and done.issuperset(found[queue[0]].waits)]
        chosen = queues[rng.choice(ready)].pop(0)
        done.add(chosen)
        order += found[chosen].tasks
    place = {task: number for number, task in enumerate(order)}
    assert sorted(order) == list(range(60))
    assert all(place[dep] < place[task] for task in range(60) for dep in deps[task])
    for number, each in enumerate(found):
        assert all(found[wait].signals and wait < number for wait in each.waits)


def test_a_buffer_is_used_owner_after_owner():
    accesses = [[("set", 1)], [("set", 1)], [("set", 2)], [("other", 2)], [("set", 2)], [("set", 3)]]
    assert hazards(accesses) == [set(), set(), {0, 1}, set(), {0, 1}, {2, 4}]


def test_owners_that_come_back_find_nothing():
    accesses = [[("set", 1)], [("set", 2), ("other", 1)], [("set", 2)], [("other", 1)], [("set", 1)], [("set", 3)]]
    assert list(returning(accesses)) == [4]
