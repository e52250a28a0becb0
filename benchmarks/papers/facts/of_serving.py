"""NEO and APEX: inequalities, operators, and gains of serving, with made-up lengths (NEO-35)."""

from dataclasses import replace
from math import sqrt

from benchmarks.papers import apex, neo, operators
from benchmarks.papers.facts.answer import EXACT, Answer, Answers, of_figure
from benchmarks.papers.figure import Found, Traces
from benchmarks.papers.loads import AC, OSC
from benchmarks.papers.published import APEX, NEO
from benchmarks.papers.sites import A10G, H100, T4_RUN, replica
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.scheduler import _scheduling

_DRAWN = (
    operators.attention,
    apex.on_t4,
    apex.on_a10,
    apex.sweep,
    neo.fastdecode_throughput,
    neo.sweep,
    neo.capacity,
    neo.bases,
)


def answers() -> Answers:
    """Everything that is computed or given."""
    traces, published = Traces(), {**APEX, **NEO}
    found: list[Found] = [each for draw in _DRAWN for each in draw(traces).found]
    for site, load, limit in ((H100, AC, 2.0), (T4_RUN, OSC, 1.0)):
        found += neo.load_latency(site, load, limit)(traces).found
    shares = [each.fact for each in found if published[each.fact].unit == "%"]
    answered = of_figure(found, points=shares)
    answered = {fact: replace(each, doubt=published[fact].doubt) for fact, each in answered.items()}
    return {**answered, **_inequality(), **_catalogue(), "NEO-F011": _linear_share()}


def _inequality() -> dict[str, Answer]:
    """The largest N_G / N_C at which two sub-batches pay (3.2), by bisection on inequality (5)."""
    return {
        "APEX-F012": Answer(_most(0.5), EXACT),
        "APEX-F013": Answer(100 / _most(0.5), 0.5, points=True),
        "APEX-F015": Answer(_most(sqrt(2)), EXACT),
    }


def _most(attention: float) -> float:
    low, high = 0.0, 100.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if _scheduling.pipelining_pays(1.0, attention, middle, 1.0) else (low, middle)
    return low


def _catalogue() -> dict[str, Answer]:
    """Data sheets and the bandwidths of the machines' sizes."""
    sizes = {"F024": 2, "F026": 4, "F028": 8, "F030": 16}
    reads = {n: load_hardware(f"a10g-g5.{n}xlarge", None).device("cpu").read.value for n in sizes.values()}
    found = {f"NEO-{fact}": Answer(reads[n] / reads[4], EXACT, "given") for fact, n in sizes.items()}
    card = load_hardware("a10g-g5.4xlarge", None).device("cuda")
    found["NEO-F005"] = Answer(card.compute[0].flops.value / 1e12, EXACT, "given")
    return found


def _linear_share() -> Answer:
    """The layers' part of a pass of 512 tokens over what embedding and head add, per cent."""
    cost = replica(A10G).cost
    layers = cost.layers * (cost.linear(512) + cost.gpu_attention(512 * 1000))
    return Answer(100 * layers / (layers + cost.ends(512)), 0.0, "at least", points=True)
