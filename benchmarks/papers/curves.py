"""Lines that several figures share: latency over load, throughput relative to a baseline over output length."""

from collections.abc import Iterator, Sequence
from functools import lru_cache

from benchmarks.papers.figure import Series
from benchmarks.papers.loads import COUNT, lengths
from benchmarks.papers.serving import System, latency, steady, throughput
from benchmarks.papers.sites import Site
from helmsman.schemas.requests import Requests

STEPS = 14
"""Points of a load-latency curve."""


def curves(site: Site, systems: Sequence[System], requests: Requests, most: float) -> Iterator[Series]:
    """Per-token latency up to a little more than `most` requests a second."""
    rates = tuple(1.15 * most * (step + 1) / STEPS for step in range(STEPS))
    for system in systems:
        yield Series(system.name, rates, tuple(latency(site, system, requests, rate) for rate in rates))


def relative(
    site: Site, system: System, base: System, prompt: int, outputs: Sequence[int], name: str = "", panel: str = ""
) -> Series:
    """Output tokens/s of `system` in per cent of `base`'s, all requests at once."""
    values = tuple(100 * made(site, system, prompt, each) / made(site, base, prompt, each) for each in outputs)
    return Series(name or system.name, tuple(float(each) for each in outputs), values, panel)


def within(site: Site, system: System, base: System, prompt: int, outputs: Sequence[int], panel: str = "") -> Series:
    """The same of what ends in the middle of a run (`steady`), as NEO's evaluation has it; named after the site."""
    values = tuple(
        100 * steady(site, system, lengths(prompt, each)) / steady(site, base, lengths(prompt, each))
        for each in outputs
    )
    return Series(site.name, tuple(float(each) for each in outputs), values, panel)


@lru_cache(maxsize=1024)
def made(site: Site, system: System, prompt: int, output: int) -> float:
    """Output tokens/s of requests of about these lengths."""
    return throughput(site, system, lengths(prompt, output, site.machines * COUNT))
