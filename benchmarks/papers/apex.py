"""APEX: operator latencies, throughput, load-latency curves, and gains over output length."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks.papers import operators
from benchmarks.papers.chart import Chart
from benchmarks.papers.curves import curves, relative
from benchmarks.papers.figure import Axis, Drawing, Figure, Found, Series, Traces
from benchmarks.papers.loads import CONVERSATION, OSC, Load, with_output
from benchmarks.papers.published import APEX as FACTS
from benchmarks.papers.serving import APEX, NEO, NEO_BY_APEX, SWIFT, VLLM, System, throughput
from benchmarks.papers.sites import APEX_A10, APEX_T4, Site, host_share
from helmsman.schemas.requests import Requests

SYSTEMS = (VLLM, SWIFT, NEO_BY_APEX, APEX)
OUTPUTS = (50, 100, 150, 200, 300, 400, 500, 600, 800, 1000, 2000, 4000)
PROMPT = 1000
"""Fig 7's."""
LONGER = (50, 100, 200, 500, 1000, 2000, 4000)
SHARES = (0.17, 0.13, 0.11, 0.09, 0.07)
"""Speeds of attention on the host as parts of the GPU's."""
KERNELS = (1.0, 1.5, 2.0)
"""How much longer NEO's takes than APEX's."""
OSC_OUTPUTS = (45, 100, 200, 400)
"""Fig 5a varies OSC's outputs; by how much is not in the copy at hand."""


def figures() -> Iterator[Figure]:
    """In the order of the paper."""
    tokens = Axis("tokens in the pass", base=2)
    linear = "APEX Fig 1a: linear layers"
    yield Chart("apex-1a", linear, tokens, Axis("ms a layer"), FACTS, operators.linear).figure
    batch, attention = Axis("batch", base=2), "APEX Fig 1b: decode attention"
    yield Chart("apex-1b", attention, batch, Axis("us a layer", base=10), FACTS, operators.attention).figure
    speed, group = Axis("output tokens/s"), Axis("")
    osc, talk = (OSC.file,), (CONVERSATION.file,)
    yield Chart("apex-5a", "APEX Fig 5a: throughput, T4", group, speed, FACTS, on_t4, "bars", osc).figure
    yield Chart("apex-5b", "APEX Fig 5b: throughput, A10", group, speed, FACTS, on_a10, "bars", talk).figure
    load, token = Axis("requests/s"), Axis("s an output token", high=1.5)
    yield Chart("apex-6", "APEX Fig 6: load and latency", load, token, FACTS, latency, traces=osc + talk).figure
    output, gain = Axis("output tokens", base=2), Axis("throughput, % of GPU-only", low=90.0)
    yield Chart("apex-7", "APEX Fig 7: gain over output length", output, gain, FACTS, sweep).figure
    longer, over = Axis("output tokens", base=2), Axis("throughput, % of NEO", low=95.0)
    title = "APEX over NEO, by how fast hosts attend"
    yield Chart("apex-hosts", title, longer, over, FACTS, hosts).figure


def on_t4(traces: Traces) -> Drawing:
    """OSC with its own and with longer outputs."""
    requests = OSC.requests(traces)
    shapes = {f"{output} tokens": with_output(requests, output) for output in OSC_OUTPUTS}
    made = _bars(APEX_T4, shapes)
    found = (
        Found("APEX-F024", _most(made, "APEX", "NEO")),
        Found("APEX-F025", _most(made, "APEX", "vLLM")),
    )
    note = "E-X-01: another CPU than NEO's T4 has. OSC's outputs are stretched to these means."
    return Drawing(f"{APEX_T4.name}, {OSC.told(traces)}, all at once", _series(made), found, (note,))


def on_a10(traces: Traces) -> Drawing:
    """Azure's conversations, of the three workloads the one that is at hand; longer outputs beside them."""
    requests = CONVERSATION.requests(traces)
    longer = {f"outputs of {output}": with_output(requests, output) for output in (500, 1000)}
    made = _bars(APEX_A10, {CONVERSATION.name: requests, **longer})
    own = {system: values[0] for system, values in made[1].items()}
    found = (
        Found("APEX-F020", 100 * (own["APEX"] / own["NEO"] - 1)),
        Found("APEX-F021", 100 * (own["APEX"] / own["vLLM"] - 1)),
    )
    note = "LiveBench and Dolphin-r1 are not at hand; conversations with outputs stretched to longer means stand in."
    return Drawing(f"{APEX_A10.name}, {CONVERSATION.told(traces)}, all at once", _series(made), found, (note,))


Bars = tuple[tuple[str, ...], dict[str, tuple[float, ...]]]
"""Groups, and what each system makes in them."""


def _bars(site: Site, shapes: dict[str, Requests]) -> Bars:
    made = {s.name: tuple(throughput(site, s, requests) for requests in shapes.values()) for s in SYSTEMS}
    return tuple(shapes), made


def _series(made: Bars) -> tuple[Series, ...]:
    groups, values = made
    return tuple(Series(name, groups, mine) for name, mine in values.items())


def _most(made: Bars, ours: str, other: str) -> float:
    """The largest gain in per cent over all groups."""
    return max(100 * (mine / its - 1) for mine, its in zip(made[1][ours], made[1][other], strict=True))


def latency(traces: Traces) -> Drawing:
    """APEX-36, on both sites."""
    series: list[Series] = []
    for site, what in ((APEX_T4, OSC), (APEX_A10, CONVERSATION)):
        series += _panel(site, what, traces)
    note = "Requests on the host take a pass a layer for each token under APEX (E-APEX-05); means hide that."
    return Drawing(f"{OSC.told(traces)}; {CONVERSATION.told(traces)}; Poisson", tuple(series), notes=(note,))


def _panel(site: Site, what: Load, traces: Traces) -> list[Series]:
    requests = what.requests(traces)
    most = max(throughput(site, system, requests) for system in SYSTEMS) / float(requests.output_tokens.mean())
    return [Series(s.name, s.x, s.y, f"{site.name}, {what.name}") for s in curves(site, SYSTEMS, requests, most)]


def sweep(traces: Traces) -> Drawing:
    """Fig 7: prompts of 1000 tokens on the A10, relative to SwiftLLM."""
    systems: Sequence[System] = (NEO_BY_APEX, APEX)
    series = [relative(APEX_A10, system, SWIFT, PROMPT, OUTPUTS) for system in systems]
    neo, apex = ([y for y in each.y if y is not None] for each in series)
    gains = [100 * (b / a - 1) for a, b in zip(neo, apex, strict=True)]
    short = [gain for output, gain in zip(OUTPUTS, gains, strict=True) if output <= 200]
    found = (Found("APEX-F031", sum(short) / len(short)), Found("APEX-F035", max(gains)))
    told = ", ".join(f"{output}: {gain:+.1f}" for output, gain in zip(OUTPUTS, gains, strict=True))
    return Drawing(
        f"{APEX_A10.name}, prompts of {PROMPT} tokens, all at once",
        tuple(series),
        found,
        (f"APEX over NEO, % by output: {told}.",),
    )


def hosts(traces: Traces) -> Drawing:
    """What Fig 7 hangs on: N_C / N_G, which inequality (6) weighs (E-APEX-07), and how fast NEO's own kernel is."""
    own = host_share(APEX_A10)
    sites = {f"{100 * own:.0f} % (record)": APEX_A10}
    sites |= {f"{100 * share:g} %": replace(APEX_A10, host_time=own / share) for share in SHARES}
    bases = {f"NEO's kernel takes {times:g} times as long": replace(NEO, host_time=times) for times in KERNELS}
    series = tuple(
        relative(site, APEX, base, PROMPT, LONGER, name, panel)
        for panel, base in bases.items()
        for name, site in sites.items()
    )
    note = (
        "APEX states a host below a tenth of the GPU, and that 13 % would pay for two sub-batches; the record's two "
        "sockets reach more, so that with one kernel for both APEX does what NEO does."
    )
    return Drawing(f"{APEX_A10.name}, prompts of {PROMPT} tokens, all at once", series, notes=(note,))
