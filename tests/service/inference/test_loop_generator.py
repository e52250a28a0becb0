"""The executor's serving loop behind the service: ends that are a job's own, faults, cancellations."""

from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue

import pytest
from benchmarks.virtual_engine import ROOM
from test_serving_loop import Counting, Turns

from helmsman.executor.serving.loop import ServingLoop
from helmsman.schemas.errors import HardwareUnavailableError, UsageError
from helmsman.service.inference.generation import Ended, Job
from helmsman.service.inference.loop_generator import LoopGenerator


class Told:
    """What a job is told; `end` waits for it."""

    def __init__(self, generator: LoopGenerator, job: Job) -> None:
        self.tokens: list[int] = []
        self.seen: SimpleQueue[int] = SimpleQueue()
        self._ends: SimpleQueue[Ended] = SimpleQueue()
        self.cancel = generator.submit(job, self._token, self._ends.put).cancel

    def _token(self, token: int) -> None:
        self.tokens.append(token)
        self.seen.put(token)

    @property
    def end(self) -> Ended:
        return self._ends.get(timeout=60)


@contextmanager
def generating(engine: Counting) -> Iterator[LoopGenerator]:
    found = LoopGenerator(ServingLoop(engine, Turns()), ROOM, lambda: 0.25)
    try:
        yield found
    finally:
        found.close()


def test_a_job_ends_at_its_own_ends_only() -> None:
    """The engine counts from the prompt's sum, 10."""
    ends = frozenset({12, 14})
    with generating(Counting()) as generator:
        first = Told(generator, Job((10,), 5, ends=ends))
        later = Told(generator, Job((10,), 5, ends=ends, min_tokens=2, barred=ends))
        never = Told(generator, Job((10,), 5))
        assert [first.end, later.end, never.end] == ["stop", "stop", "length"]
        assert [first.tokens, later.tokens, never.tokens] == [[11, 12], [11, 13, 14], [11, 12, 13, 14, 15]]
        assert generator.load().kv_share == 0.25


def test_cancellations_and_refusals() -> None:
    with generating(Counting()) as generator:
        long = Told(generator, Job((10,), 10**9))
        long.seen.get(timeout=60)
        long.cancel()
        assert long.end == "cancelled"
        long.cancel()
        with pytest.raises(UsageError, match="too long"):
            Told(generator, Job((1,) * 11, 1))


def test_a_fault_lasts_until_the_canary_passes() -> None:
    engine = Counting()
    with generating(engine) as generator:
        long = Told(generator, Job((10,), 10**9))
        long.seen.get(timeout=60)
        engine.broken = RuntimeError("out of memory")
        assert long.end == "failed" and generator.fault is not None
        with pytest.raises(HardwareUnavailableError):
            Told(generator, Job((10,), 1))
        with pytest.raises(HardwareUnavailableError, match="the canary did not pass"):
            generator.check()
        engine.broken = None
        generator.check()
        assert generator.fault is None and Told(generator, Job((10,), 1)).end == "length"
