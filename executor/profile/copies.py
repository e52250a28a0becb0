"""A link: seconds of copies by size and direction, and traffic that keeps it busy."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Event, Thread

from helmsman.executor._kernels import CopyEngine
from helmsman.executor.devices.probe import COPY_BYTES, copy_buffers, link_sample
from helmsman.executor.profile.processor import PAIRS
from helmsman.executor.profile.samples import LinkSamples

SIZES = (64, 4096, 65536, 1 << 20, 4 << 20)
TIME_LIMIT_S = 1.0
"""Seconds of copies after which a link is known: a slow one would take minutes, and varies little."""
QUEUED = 8
"""Copies waiting at any time: while one is moved there is ample time to queue the next."""
COPY_S = 2e-3
"""About how long one of them takes: the queue of a slow link must run empty soon after the traffic ends."""


def measure_link(engine: CopyEngine) -> LinkSamples:
    """Copies of every size, and the probe that runs use, several times; fewer when that takes long."""
    source, target = copy_buffers()
    samples = LinkSamples()
    taken = 0.0
    while len(samples.rate) < PAIRS and taken < TIME_LIMIT_S:
        probe = link_sample(engine, source, target)
        samples.rate.append(probe.rate)
        samples.latency.append(probe.latency)
        for size in SIZES:
            start, end = engine.wait(engine.submit(target, 0, source, 0, size))
            samples.seconds.setdefault(size, []).append(end - start)
            taken += end - start
    return samples


@contextmanager
def feeding(feed: Callable[[Event], None]) -> Iterator[None]:
    """While inside, `feed` runs on a thread of its own; then it is told to stop, and awaited."""
    stop = Event()
    feeder = Thread(target=feed, args=(stop,))
    feeder.start()
    try:
        yield
    finally:
        stop.set()
        feeder.join()


class Traffic:
    """Copies over `engine`, of nominal `rate` bytes/s, as many as it can move; `rates` are bytes/s of each."""

    def __init__(self, engine: CopyEngine, rate: float) -> None:
        self.rates: list[float] = []
        self._engine = engine
        self._size = min(COPY_BYTES, max(4096, int(COPY_S * rate)))
        self._source, self._target = copy_buffers()

    def flowing(self) -> AbstractContextManager[None]:
        """While inside, the engine's queue never runs dry; the engine rests again afterwards."""
        return feeding(self._feed)

    def _feed(self, stop: Event) -> None:
        queue = deque(self._submit() for _ in range(QUEUED))
        before = None
        while queue:
            _, end = self._engine.wait(queue.popleft())
            if before is not None and end > before:  # the clock may stand still
                self.rates.append(self._size / (end - before))
            before = end
            if not stop.is_set():
                queue.append(self._submit())

    def _submit(self) -> int:
        return self._engine.submit(self._target, 0, self._source, 0, self._size)
