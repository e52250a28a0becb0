"""Times of tasks that were done chunk by chunk: one span each, of the seconds that it took."""

import numpy as np
import pytest
from together import together

from helmsman.executor.passes.stamps import TaskStamps


def test_a_task_done_once_has_its_own_stamps():
    taken = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]])
    starts, ends = TaskStamps([[(0, 1)], [(1, 2)]], ()).times(taken)
    np.testing.assert_array_equal(starts, [[1, 2], [4, 5]])
    np.testing.assert_array_equal(ends, [[2, 3], [5, 7]])


def test_chunks_add_up_and_waits_stay_where_they_were():
    """Two devices in turns, one chunk from 10 to 14, the next to 20: the second waits 1, then 2 seconds."""
    first, second = [(0, 1), (4, 5)], [(2, 3), (6, 7)]
    taken = np.array([[10.0, 12.0, 13.0, 14.0, 14.5, 15.5, 17.5, 20.0]])
    starts, ends = TaskStamps([first, second], [(0, 1)]).times(taken)
    np.testing.assert_allclose(starts, [[10.5, 16.5]])
    np.testing.assert_allclose(ends, [[13.5, 20.0]])
    assert (ends - starts)[0] == pytest.approx([2 + 1, 1 + 2.5])


@together("seed", range(20))
def test_spans_keep_their_order_and_lie_within_the_work_of_their_lane(seed):
    """Random tasks on two lanes, each chunk after the one before: what ended before something began still does."""
    rng = np.random.default_rng(seed)
    lanes, moment, times = rng.integers(0, 2, 6), 5.0, np.zeros((4, 6, 2))
    for chunk in times:
        free, made = [moment, moment], moment
        for task, lane in enumerate(lanes):
            start = max(free[lane], made if rng.random() < 0.5 else moment) + rng.random() * rng.integers(0, 2)
            free[lane] = made = start + rng.random()
            chunk[task] = start, made
        moment = max(free)
    places = [[(2 * (6 * chunk + task), 2 * (6 * chunk + task) + 1) for chunk in range(4)] for task in range(6)]
    starts, ends = (each[0] for each in TaskStamps(places, [tuple(range(6))]).times(times.reshape(1, -1)))
    np.testing.assert_allclose(ends - starts, (times[..., 1] - times[..., 0]).sum(0))
    before = (times[:, :, None, 1] <= times[:, None, :, 0]).all(0)
    assert before.any() and (ends[:, None] <= starts[None, :] + 1e-12)[before].all()
    for lane in set(lanes):
        own = times[:, lanes == lane]
        assert own[0, :, 0].min() - 1e-12 <= starts[lanes == lane].min()
        assert ends[lanes == lane].max() <= own[-1, :, 1].max() + 1e-12
    assert times[0].min() - 1e-12 <= starts.min() and ends.max() <= times.max() + 1e-12
