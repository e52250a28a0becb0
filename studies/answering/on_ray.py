"""Shards answered by the workers of a Ray cluster, each of which has Helm installed."""

import logging
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from helmsman.schemas.errors import HardwareUnavailableError, HelmError, UsageError
from helmsman.schemas.study import Study
from helmsman.studies.answering.shards import Rows, StudyShard, answered

_RETRIES = 5
"""The number of times that a shard is given to another worker after one was lost."""
_PATIENCE_S = 5.0
"""Seconds in which a cluster has to be reached."""
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
        _join(ray, self.address)
        try:
            yield from _answered_by(ray, study, shards)
        except ray.exceptions.RayError as error:
            if isinstance(cause := getattr(error, "cause", None), HelmError):
                raise cause from None
            told = str(error).splitlines()[0]
            raise HardwareUnavailableError(f"the Ray cluster failed: {told}", field="workers") from None
        finally:
            ray.shutdown()


def _join(ray: Any, address: str) -> None:
    """Connect to a cluster. Raises HardwareUnavailableError where none is, UsageError for an address that Ray does not
    take."""
    named = os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
    try:
        _check_listening(named)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except OSError:
        value = None if named == "auto" else named
        problem, remedy = (
            "no Ray cluster can be reached",
            "start one with `ray start --head`, or name it in RAY_ADDRESS",
        )
        raise HardwareUnavailableError(problem, field="workers", value=value, remedy=remedy) from None
    except ValueError as error:
        told = str(error).splitlines()[0]
        remedy = "name one in RAY_ADDRESS, as HOST:6379"
        raise UsageError(f"not a Ray cluster: {told}", field="workers", value=named, remedy=remedy) from None


def _check_listening(address: str) -> None:
    """Raise OSError where nobody listens at HOST:PORT: Ray itself tries for minutes, and says so in its own lines."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and port.isdecimal() and int(port) < 2**16:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE_S).close()


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
