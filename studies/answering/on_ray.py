"""Shards answered by the workers of a Ray cluster, each of which has Helm installed."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from helmsman.schemas.errors import HardwareUnavailableError, HelmError, UsageError
from helmsman.schemas.study import Study
from helmsman.studies.answering.shards import Rows, StudyShard, answered

_RETRIES = 5
"""The number of times that a shard is given to another worker after one was lost."""
_AHEAD = 4
"""The number of shards for each CPU of the cluster that wait."""


@dataclass(frozen=True, slots=True)
class RayEngine:
    """Answers shards as plain tasks of the cluster at `address`; `auto`: the one that RAY_ADDRESS names, or this
    machine's."""

    address: str = "auto"

    def __call__(self, study: Study, shards: Sequence[StudyShard]) -> Iterator[Rows]:
        """Yield the rows of every shard as they come. Raises UsageError without Ray, HardwareUnavailableError without a
        cluster, or where one worker after the other is lost."""
        try:
            import ray
        except ImportError:
            raise UsageError(
                "Ray is not installed", field="workers", value="ray", remedy="install helmsman[ray]"
            ) from None
        try:
            ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionError:
            remedy = "start one with `ray start --head`, or name it in RAY_ADDRESS"
            raise HardwareUnavailableError("no Ray cluster can be reached", field="workers", remedy=remedy) from None
        try:
            yield from _answered_by(ray, study, shards)
        except ray.exceptions.RayError as error:
            if isinstance(cause := getattr(error, "cause", None), HelmError):
                raise cause from None
            told = str(error).splitlines()[0]
            raise HardwareUnavailableError(f"the Ray cluster failed: {told}", field="workers") from None
        finally:
            ray.shutdown()


def _answered_by(ray: Any, study: Study, shards: Sequence[StudyShard]) -> Iterator[Rows]:
    """Yield the rows of every shard; few wait at a time, so that little is lost when this ends early."""
    task = ray.remote(max_retries=_RETRIES)(answered)
    shared, waiting = ray.put(study), iter(shards)
    running: list[Any] = []
    most = _AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
    while True:
        running += [task.remote(shared, shard) for shard in islice(waiting, most - len(running))]
        if not running:
            return
        done, running = ray.wait(running)
        yield from ray.get(done)
