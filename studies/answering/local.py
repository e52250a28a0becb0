"""Shards answered by processes of this machine."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_all_start_methods, get_context, parent_process
from threading import Thread

from helmsman.schemas.errors import HardwareUnavailableError
from helmsman.schemas.study import Study
from helmsman.studies.answering.shards import Rows, StudyShard, answered

_START = "forkserver" if "forkserver" in get_all_start_methods() else "spawn"
"""Processes begin without the threads that this one may have."""
_MOST_RESTARTS = 3
"""The number of times that a pool is made again after one of its processes was killed."""
_AHEAD = 2
"""The number of shards for each process that wait in its queue."""


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Answers shards in `jobs` processes; in this one where that is one."""

    jobs: int

    def __call__(self, study: Study, shards: Sequence[StudyShard]) -> Iterator[Rows]:
        """Yield the rows of every shard as they come. Raises HardwareUnavailableError where processes are killed again
        and again: for want of memory, most likely."""
        if self.jobs == 1:
            yield from (answered(study, shard) for shard in shards)
            return
        left = list(shards)
        for _ in range(1 + _MOST_RESTARTS):
            try:
                for shard, rows in self._pooled(study, tuple(left)):
                    left.remove(shard)
                    yield rows
            except BrokenProcessPool:
                continue
            return
        remedy = "use fewer processes (jobs), or find out who ends them"
        raise HardwareUnavailableError("processes that answer are killed, perhaps for want of memory", remedy=remedy)

    def _pooled(self, study: Study, shards: Sequence[StudyShard]) -> Iterator[tuple[StudyShard, Rows]]:
        """Yield every shard with its rows; few wait at a time, so that little is lost when this ends early."""
        waiting = iter(shards)
        running: dict[Future[Rows], StudyShard] = {}
        with ProcessPoolExecutor(self.jobs, get_context(_START), _end_with_parent) as pool:

            def submit(most: int) -> None:
                for shard in islice(waiting, most):
                    running[pool.submit(answered, study, shard)] = shard

            submit(_AHEAD * self.jobs)
            try:
                while running:
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        submit(1)
                        yield running.pop(future), future.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)


def _end_with_parent() -> None:
    """Let this process end as soon as the one that asked for it has, however that ended."""

    def watch() -> None:
        parent = parent_process()
        assert parent is not None, "was started by one"
        parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()
