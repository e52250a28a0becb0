"""NEO: load-latency curves, FastDecode+, gains over lengths, CPU capacity, SwiftLLM beside vLLM."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from benchmarks.papers.chart import Chart
from benchmarks.papers.curves import curves, made, relative, within
from benchmarks.papers.figure import Axis, Drawing, Figure, Found, Series, Traces
from benchmarks.papers.loads import AC, OSC, Load, lengths
from benchmarks.papers.published import NEO as FACTS
from benchmarks.papers.serving import FASTDECODE, NEO, SWIFT, VLLM, latencies, load_at, throughput
from benchmarks.papers.sites import A10G, G5, G5_RUN, H100, T4, T4_RUN, Site, replica

OUTPUTS = (10, 25, 50, 60, 75, 100, 150, 200, 300, 400, 600, 800, 1200, 1600)
SWEEPS: dict[Site, tuple[int, ...]] = {H100: (1000, 2000), A10G: (500, 1000, 2000), T4: (100, 300, 500)}
"""Prompts of Fig 9; its lengths are not in the copy at hand (E-NEO-04)."""
PEAKS = {H100: "NEO-F020", A10G: "NEO-F021", T4: "NEO-F022"}
A10G_NAME = G5[1].name
"""NEO's A10G by its other name."""
CAPACITY_PROMPT, CAPACITY_OUTPUTS = 1000, (50, 100, 200, 300, 400)
"""Of Fig 10a (NEO's reproduce-fig10a.py)."""
HOSTS = (0.5, 1.0, 2.0, 4.0, 8.0)
RATE = 1.6
"""Requests a second in Fig 7."""


def figures() -> Iterator[Figure]:
    """In the order of the paper."""
    load, token = Axis("requests/s"), Axis("s an output token")
    for letter, site, what, limit in (("a", H100, AC, 2.0), ("b", A10G, AC, 1.0), ("c", T4_RUN, OSC, 1.0)):
        title = f"NEO Fig 6{letter}: load and latency, {site.name}"
        capped = Axis(token.label, high=3 * limit)
        data = load_latency(site, what, limit)
        yield Chart(f"neo-6{letter}", title, load, capped, FACTS, data, traces=(what.file,)).figure
    share = Axis("% of requests")
    yield Chart(
        "neo-7", "NEO Fig 7: latencies at 1.6 requests/s", token, share, FACTS, spread, traces=(AC.file,)
    ).figure
    title = "NEO Fig 8a: FastDecode+, load and latency"
    capped = Axis(token.label, high=3.0)
    yield Chart("neo-8a", title, load, capped, FACTS, fastdecode_latency, traces=(AC.file,)).figure
    output = Axis("output tokens", base=2)
    gain = Axis("throughput, % of GPU-only", low=80.0)
    yield Chart("neo-8b", "NEO Fig 8b: FastDecode+, throughput", output, gain, FACTS, fastdecode_throughput).figure
    yield Chart("neo-9", "NEO Fig 9: gain over lengths", output, gain, FACTS, sweep).figure
    yield Chart("neo-10a", "NEO Fig 10a: CPU capacity", output, gain, FACTS, capacity).figure
    times = Axis("times the host's speed in the record", base=2)
    yield Chart("neo-hosts", "NEO on the T4, by how fast its host attends", times, gain, FACTS, hosts).figure
    yield Chart("neo-caches", "NEO with the caches of its own configuration", output, gain, FACTS, caches).figure
    percent = Axis("SwiftLLM, % of vLLM")
    yield Chart("neo-10b", "NEO Fig 10b: SwiftLLM and vLLM", Axis(""), percent, FACTS, bases, "bars").figure


def load_latency(site: Site, what: Load, limit: float) -> Callable[[Traces], Drawing]:
    """Fig 6: three systems, and the load that NEO carries at the same latency."""
    fact = {H100: "NEO-F013", T4_RUN: "NEO-F015"}.get(site)

    def draw(traces: Traces) -> Drawing:
        requests = what.requests(traces)
        carried = {system.name: load_at(site, system, requests, limit) for system in (VLLM, SWIFT, NEO)}
        gain = 100 * (carried["NEO"] / carried["vLLM"] - 1)
        found = (Found(fact, gain),) if fact else ()
        rates = ", ".join(f"{name} {rate:.3g}" for name, rate in carried.items())
        note = f"requests/s at {limit:g} s an output token: {rates}; NEO {gain:+.1f} % over vLLM."
        series = curves(site, (VLLM, SWIFT, NEO), requests, max(carried.values()))
        return Drawing(f"{what.told(traces)}, Poisson", tuple(series), found, (note,))

    return draw


def spread(traces: Traces) -> Drawing:
    """Fig 7: the distribution of per-token latencies."""
    requests = AC.requests(traces)
    shares = tuple(float(share) for share in range(0, 101, 2))
    series = []
    for system in (VLLM, SWIFT, NEO):
        values = np.percentile(latencies(A10G, system, requests, RATE), shares)
        series.append(Series(system.name, tuple(float(value) for value in values), shares))
    return Drawing(f"{A10G.name}, {AC.told(traces)}, Poisson", tuple(series))


def fastdecode_latency(traces: Traces) -> Drawing:
    """Fig 8a: all decode attention on the host, whatever waits."""
    requests = AC.requests(traces)
    systems = (SWIFT, NEO, FASTDECODE)
    most = max(load_at(A10G, system, requests, 1.0) for system in systems)
    return Drawing(f"{A10G.name}, {AC.told(traces)}, Poisson", tuple(curves(A10G, systems, requests, most)))


def fastdecode_throughput(traces: Traces) -> Drawing:
    """Fig 8b: prompts of 2000 tokens (NEO-38); NEO is never below the baseline (F019)."""
    series = tuple(relative(A10G, system, SWIFT, 2000, OUTPUTS) for system in (NEO, FASTDECODE))
    found = (Found("NEO-F019", min(y for y in series[0].y if y is not None)),)
    return Drawing(f"{A10G.name}, prompts of 2000 tokens, all requests at once", series, found)


def sweep(traces: Traces) -> Drawing:
    """Fig 9: relative throughput over output length, a panel a GPU."""
    series, found = [], []
    for site, prompts in SWEEPS.items():
        mine = [relative(site, NEO, SWIFT, prompt, OUTPUTS, f"prompts of {prompt}", site.name) for prompt in prompts]
        found.append(Found(PEAKS[site], max(y for each in mine for y in each.y if y is not None) - 100))
        series += mine
    note = (
        "Prompts of the paper's curves are not in the copy at hand (E-NEO-04); T4 is 6.6 to 8.5 times there (E-NEO-03)."
    )
    return Drawing("NEO beside GPU-only, all requests at once", tuple(series), tuple(found), (note,))


def capacity(traces: Traces) -> Drawing:
    """Fig 10a: the same GPU with more of the same CPU, as NEO ran it, and with the caches that fit."""
    panels = {"1,650 blocks, as NEO ran it": G5_RUN, "what fits": G5}
    series = [
        within(site, NEO, SWIFT, CAPACITY_PROMPT, CAPACITY_OUTPUTS, panel)
        for panel, sites in panels.items()
        for site in sites
    ]
    ran = next(each for each in series if each.name == A10G_NAME)
    found = (Found("NEO-F025", max(y for y in ran.y if y is not None) - 100),)
    about = f"Llama-3.1-8B, prompts of {CAPACITY_PROMPT} tokens, the middle of a run with all requests at once"
    return Drawing(about, tuple(series), found)


def hosts(traces: Traces) -> Drawing:
    """What a gain of several times would take (E-NEO-03)."""
    series = tuple(_by_host(prompt, output) for prompt, output in ((100, 100), (300, 100), (500, 200)))
    rate = replica(T4).limits.gpu_tokens
    note = (
        f"A pass of the GPU alone reads {rate} tokens of keys and values at most; hosts add what they read meanwhile."
    )
    return Drawing(f"{T4.name}, all requests at once", series, notes=(note,))


def _by_host(prompt: int, output: int) -> Series:
    sites = [replace(T4, host_time=1 / each) for each in HOSTS]
    gains = tuple(100 * made(site, NEO, prompt, output) / made(T4, SWIFT, prompt, output) for site in sites)
    return Series(f"{prompt} + {output} tokens", HOSTS, gains)


def caches(traces: Traces) -> Drawing:
    """Gains with the caches that NEO's configuration files give its GPUs, and with what fits (E-NEO-03)."""
    shown = {T4: (T4_RUN, 300), A10G: (G5_RUN[1], 1000)}
    short = OUTPUTS[: OUTPUTS.index(400) + 1]
    series = tuple(
        relative(site, NEO, SWIFT, prompt, short, f"{replica(site).limits.gpu_tokens} tokens", fits.name)
        for fits, (run, prompt) in shown.items()
        for site in (fits, run)
    )
    return Drawing("prompts of 300 (T4) and 1000 tokens, all requests at once", series)


def bases(traces: Traces) -> Drawing:
    """Fig 10b: the system that NEO is built on."""
    values = tuple(
        100 * throughput(site, SWIFT, what) / throughput(site, VLLM, what)
        for site, what in ((site, lengths(1000, 100) if site is not T4 else lengths(300, 50)) for site in SWEEPS)
    )
    groups = tuple(site.name for site in SWEEPS)
    found = (Found("NEO-F031", values[0] - 100),)
    note = "Both run by one cost model here: what differs is chunks of prompts; SwiftLLM's slower collectives are not."
    return Drawing("throughput, all requests at once", (Series("SwiftLLM", groups, values),), found, (note,))
