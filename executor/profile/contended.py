"""The contended pair: the host's processors read its memory while a link copies from it or to it. Each is measured
alone and beside the other, in turns, since both take from one memory and neither loses what the other gains."""

from collections.abc import Callable
from statistics import harmonic_mean
from threading import Event

from helmsman.executor.profile.copies import feeding
from helmsman.executor.profile.samples import ContendedSamples

ROUNDS = 5
READS = 3
"""Reads beside copies of a round, which are one sample."""


def measure_contended(read: Callable[[], float], copy: Callable[[], float]) -> ContendedSamples:
    """Return bytes/s of `read` and of `copy`, which both say how fast one was: each alone, and while the other goes
    on."""
    samples = ContendedSamples()
    for _ in range(ROUNDS):
        samples.read.append(read())
        samples.link.append(copy())
        copies, going = list[float](), Event()

        def feed(stop: Event, copies: list[float] = copies, going: Event = going) -> None:
            try:
                while not stop.is_set():
                    copies.append(copy())
                    going.set()
            finally:
                going.set()

        with feeding(feed):
            going.wait()
            reads = [read() for _ in range(READS)]
        samples.read_beside.append(harmonic_mean(reads))
        samples.link_beside.append(harmonic_mean(copies))
    return samples
