"""Rows with part of a model on the processor: what their plans leave to it, as questions about its constants.

What accelerators and links take is predicted by the constants that the package has of them; only the processor's are
fitted: an overhead of every operation, shares of the rate of plain reads at which weights of a format are multiplied,
how many times longer than by class attention takes there, and shares of the FP32 rate for prompts."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot, log

from benchmarks.engine_rows.devices import RowDevice
from benchmarks.engine_rows.models import format_named, model_named
from benchmarks.engine_rows.rows import EngineRow
from benchmarks.engine_rows.terms import Effect, Question, Spread, Term
from benchmarks.engine_rows.work import work_of
from benchmarks.strangers.answers import planned
from benchmarks.strangers.rows import OpenRow, UnansweredError
from helmsman.hwdb.compose import GIB, MEMORY_SPEED, Parts, assemble
from helmsman.hwdb.engine_classes import lineage
from helmsman.hwdb.engine_constants import (
    Unpacking,
    constants_digest,
    constants_of,
    latent_times,
    unpacked_values,
    unpacking_of,
)
from helmsman.hwdb.fit import Z90
from helmsman.planner.strategies.engines.calibration import HOST_DOUBT
from helmsman.planner.strategies.engines.threads import with_threads
from helmsman.schemas.blocks.attention import LatentAttention
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.hardware import Device
from helmsman.schemas.plan import Plan
from helmsman.schemas.predicted import PhasePrediction

_ARM = "cpu/arm"

_ATTENTION = ("attention", "append", "index", "scores", "wv")
_SHARES = Spread(0.2, 0.15, 0.15, 0.1, 0.2)
_OVERHEADS = Spread(0.8, 0.5, 0.4, 0.2, 0.3)
_PROMPTS = Spread(0.7, 0.3, 0.4, 0.3, 0.3)
"""Sources leave out what all their rows have in common: memory that is not read evenly, NUMA, pages."""

_ELSEWHERE = 0.15
"""The standard deviation of the logarithm of what accelerators and links take."""


@dataclass(frozen=True, slots=True)
class HostRow:
    """A row of any table as folds look at it; `fork`: of ik_llama.cpp, whose products on processors are its own, and
    faster where rows are interleaved (`repacked`); `sockets` that share the work; `alone`: without an accelerator;
    `machine`: the processor and accelerators; `routed`: of a model with experts; `unknown`: the standard deviation of
    the logarithm of its memory's speed, where that is a guess."""

    number: int
    source: str
    era: str
    fork: bool
    sockets: int
    alone: bool = False
    repacked: bool = False
    machine: str = ""
    routed: bool = True
    unknown: float = 0.0

    @property
    def doubt(self) -> float:
        """Return the standard deviation of the logarithm of what its questions leave out."""
        return hypot(HOST_DOUBT, self.unknown)


def host_questions(
    rows: Iterable[OpenRow], pattern: str, engine: str = "llama.cpp"
) -> tuple[list[Question], list[Question]]:
    """Return the questions of decode steps and of prompts of rows that can be planned, of engines whose names have the
    pattern; `engine`: whose constants are to be fitted."""
    decode, prompts = list[Question](), list[Question]()
    for row in rows:
        if not re.search(pattern, row.engine):
            continue
        try:
            plan = planned(row)
        except UnansweredError:
            continue
        host = next(device for device in plan.hardware.devices if device.kind == "cpu")
        of, device = _of_row(row, plan, host), host_device(host)
        decode += _decode(of, row.speed("decode_tps"), plan, device, engine)
        if row.count("prompt_tokens") is not None:
            prompts += _prompt(of, row.speed("prefill_tps"), plan, device)
    return decode, prompts


def _of_row(row: OpenRow, plan: Plan, host: Device) -> HostRow:
    """Return what a row says of its processor's part."""
    fork, said = row.engine.startswith("ik_"), f"{row.settings} {row.quant}"
    repacked = fork and bool(re.search(r"-rtr\b(?! not)|_R4|_R8", said)) and "no rtr" not in said
    routed = any(body.op.kind == "experts" for block in plan.model.blocks for body in block.bodies)
    return HostRow(
        number=row.number, source=row.source, era="2025", fork=fork, sockets=_sockets(host), alone=not row.gpu or
        row.gpu.startswith("none"), repacked=repacked, machine=f"{row.gpu} {row.cpu}", routed=routed,
        unknown=_unknown(host),
    )  # fmt: skip


def _unknown(host: Device) -> float:
    """Return the standard deviation of the logarithm of a memory's speed that nobody stated; 0 where somebody did."""
    if host.read.source != MEMORY_SPEED:
        return 0.0
    return log(host.read.p90 / host.read.p10) / (2.0 * Z90)


def alone_questions(rows: Sequence[EngineRow]) -> tuple[list[Question], list[Question]]:
    """Return the questions of rows of a processor alone; of prompts those of Arm processors, whose others have none."""
    decode, prompts = list[Question](), list[Question]()
    for row in rows:
        named = re.search(r"(?:(\d)x )?((?:Apple|Intel|AMD) [\w +-]+\w)", row.cpu)
        model, fmt = model_named(row.model), format_named(row.quant)
        if row.split != "cpu_only" or named is None or model is None or fmt is None:
            continue
        kind, sockets = re.search(r"DDR\d-\d{4}", row.ram), int(named[1] or 1)
        fixed = named[2].startswith("Apple")  # memory that chips come with
        parts = Parts("alone", named[2], 4096 * GIB, sockets=sockets, memory=kind[0] if kind else None)
        machine = assemble(replace(parts, memory_known=fixed or kind is not None))
        host = with_threads(machine, row.threads).devices[0]
        fork, repacked = row.engine.startswith("ik_"), "-rtr" in row.engine
        of = HostRow(
            row.number, row.source, row.era, fork, sockets, True, repacked, row.cpu, False, unknown=_unknown(host)
        )
        device, context = host_device(host), row.depth + (row.output or 128) // 2
        step, first = work_of(row.model, row.quant, "decode", 1, context), None
        if row.prompt:
            first = work_of(row.model, row.quant, "prefill", row.prompt, row.depth + row.prompt)
        if step is not None and row.decode:
            kept = Term(step.cache / (0.6 * device.bandwidth), False, tuple(host_cache_effects(device)))
            overhead = Term(step.operations, False, tuple(host_overhead_effects(device, of)))
            terms = (*weights_terms(step.weights, device, of), kept, overhead)
            decode.append(Question(of, device, terms, 1.0 / row.decode, of.doubt))
        if first is not None and row.prompt and row.prefill and device.nodes[2] == _ARM:
            device = host_device(with_threads(machine, row.prompt_threads).devices[0])
            terms = tuple(product_terms(first.flops, device, of))
            prompts.append(Question(of, device, terms, row.prompt / row.prefill, of.doubt))
    return decode, prompts


def host_device(host: Device) -> RowDevice:
    """Return a processor as rows have devices."""
    product = re.sub(r"^\dx ", "", host.product or "")
    nodes = lineage(product, host.device_class, "cpu")
    return RowDevice(product, "cpu", host.read.value, host.compute[0].flops.value, 0.0, True, nodes)


def _sockets(host: Device) -> int:
    counted = re.match(r"(\d)x ", host.product or "")
    return int(counted[1]) if counted else 1


def _decode(of: HostRow, speed: float | None, plan: Plan, device: RowDevice, engine: str) -> Iterator[Question]:
    step = plan.predicted.decode
    read = sum(t.bytes for t in step.terms if t.resource == "cpu" and t.op not in _ATTENTION)
    if not speed or not read:
        return
    own = plan.hardware.device("cpu").overhead
    added = own.value if own else 0.0
    kept = [t for t in step.terms if t.resource == "cpu" and t.op in _ATTENTION]
    attending = sum(max(0.0, t.seconds.mid - t.tasks * added) for t in kept)
    said = constants_of(engine, *_named(device), "cpu", flash=False) if constants_digest(engine) else None
    attending *= 1.0 if said is None else said.cache  # by class and form, whatever the package's table says of it
    operations = sum(t.tasks for t in step.terms if t.resource == "cpu")
    latent = _latent(plan, engine)
    terms = [
        Term(max(1e-6, _elsewhere(step) - latent), False, (Effect(f"elsewhere|{of.source}", 0.0, _ELSEWHERE),)),
        Term(operations, False, tuple(host_overhead_effects(device, of))),
        *weights_terms({plan.residence[-1].format: read}, device, of),
    ]
    if attending:
        terms.append(Term(attending, False, tuple(host_cache_effects(device))))
    if latent:
        known = latent_times(engine)
        terms.append(Term(latent / (known[0] if known else 1.0), False, tuple(latent_effects(of))))
    yield Question(of, device, tuple(terms), 1.0 / speed, of.doubt)


def _latent(plan: Plan, engine: str) -> float:
    """Return the seconds that attention over latent vectors takes on accelerators in a step; 0 for any other, and for
    an engine without constants."""
    ops = (body.op for block in plan.model.blocks for body in block.bodies)
    if constants_digest(engine) is None or not any(isinstance(op, LatentAttention) for op in ops):
        return 0.0
    return sum(t.seconds.mid for t in plan.predicted.decode.terms if t.resource != "cpu" and t.op == "attention")


def latent_effects(of: HostRow) -> Iterator[Effect]:
    """Yield the effects of the times that attention of one token over latent vectors takes on accelerators beside what
    arithmetic of prompts would make of it."""
    yield Effect(LATENT, 0.0, 0.8)
    yield Effect(f"{LATENT}|{of.source}", 0.0, LATENT_SOURCE)


LATENT, LATENT_SOURCE = "latent|gpu", 0.2
"""The effect, and how far sources are apart of it: a standard deviation of the logarithm."""


def _prompt(of: HostRow, speed: float | None, plan: Plan, device: RowDevice) -> Iterator[Question]:
    first = plan.predicted.prefill
    flops = sum(t.flops for t in first.terms if t.resource == "cpu")
    if not speed or not flops:
        return
    terms = (
        Term(_elsewhere(first), False, (Effect(f"elsewhere|{of.source}", 0.0, 2 * _ELSEWHERE),)),
        *product_terms({plan.residence[-1].format: flops}, device, of),
    )
    yield Question(of, device, terms, plan.workload.new_tokens / speed, of.doubt)


def weights_terms(sizes: Mapping[StoredFormat, float], device: RowDevice, of: HostRow) -> Iterator[Term]:
    """Yield what products with one token take: bytes over a share of plain reads, values that are unpacked over what is
    unpacked for a FLOP that the processor could do (llama.cpp's kernels unpack a row for every token)."""
    yield Term(sum(sizes.values()) / device.bandwidth, True, tuple(host_share_effects(device, of)))
    values: dict[Unpacking, float] = {}
    for fmt, size in sizes.items():
        form = unpacking_of(fmt)
        values[form] = values.get(form, 0.0) + size * unpacked_values(fmt)
    for form, count in values.items():
        if count:
            yield Term(count / device.flops, True, tuple(host_unpacking_effects(device, form, of)))


def product_terms(flops: Mapping[StoredFormat, float], device: RowDevice, of: HostRow) -> Iterator[Term]:
    """Yield what products with many tokens take, by how their weights are unpacked."""
    known: dict[Unpacking, float] = {}
    for fmt, count in flops.items():
        known[unpacking_of(fmt)] = known.get(unpacking_of(fmt), 0.0) + count
    for form, count in known.items():
        yield Term(count / device.flops, True, tuple(host_prompt_effects(device, form, of)))


def _named(device: RowDevice) -> tuple[str, str]:
    return device.name, device.nodes[1].rpartition("/")[2]


def _elsewhere(phase: PhasePrediction) -> float:
    return max(1e-6, sum(term.seconds.mid for term in phase.terms if term.resource != "cpu"))


_FORK = 0.7
"""The standard deviation of the logarithm of what the fork's products of many tokens are beside llama.cpp's, and of
what interleaved rows are; steps read the same bytes as fast, but for kernels of Arm processors."""


def _chain(of: str, device: RowDevice, row: HostRow, mean: float, spread: Spread) -> Iterator[Effect]:
    own, group, kind, backend = device.nodes
    yield Effect(f"{of}|{backend}+", mean, spread.backend)
    yield Effect(f"{of}|{kind}", 0.0, spread.kind)
    yield Effect(f"{of}|{group}", 0.0, spread.device_class)
    yield Effect(f"{of}|{own}", 0.0, spread.device)
    yield Effect(f"{of}|{own}|{row.source}", 0.0, spread.session)


def host_share_effects(device: RowDevice, row: HostRow) -> Iterator[Effect]:
    """Yield the effects of the share of plain reads at which products read weights."""
    yield from _chain("share", device, row, log(0.75), _SHARES)
    if row.sockets > 1:
        yield Effect("share|cpu!2", log(0.6), 0.3)


def host_overhead_effects(device: RowDevice, row: HostRow) -> Iterator[Effect]:
    """Yield the effects of the seconds of every operation."""
    yield from _chain("overhead", device, row, log(2e-5), _OVERHEADS)


def host_cache_effects(device: RowDevice) -> Iterator[Effect]:
    """Yield the effects of the times that attention takes longer than by class."""
    yield Effect("cache|cpu", log(1.5), 0.4)
    yield Effect(f"cache|{device.nodes[1]}", 0.0, 0.2)


def host_unpacking_effects(device: RowDevice, form: Unpacking, row: HostRow) -> Iterator[Effect]:
    """Yield the effects of the values that are unpacked for a FLOP."""
    _, group, kind, backend = device.nodes
    yield Effect(f"unpacking|{backend}#{form}", log(_UNPACKED[form]), 0.5)
    yield Effect(f"unpacking|{kind}#{form}", 0.0, 0.2)
    yield Effect(f"unpacking|{group}", 0.0, 0.2)
    if row.fork:
        yield Effect(f"unpacking|{backend}#{form}!fork", log(1.5), 0.5)


_UNPACKED: Mapping[Unpacking, float] = {"16": 1.0, "8": 0.8, "4": 0.5, "k": 0.3, "iq": 0.1}
"""Values for a FLOP before any row is seen: 26, 16, 10 and 3 a cycle where 32 FLOPs are (counted in instructions)."""


_PRODUCTS: Mapping[Unpacking, float] = {"16": 0.5, **{form: 2.0 * _UNPACKED[form] for form in ("8", "4", "k", "iq")}}
"""Shares of the FP32 rate before any row is seen: as of a row that is unpacked for every token, two FLOPs a value."""


def host_prompt_effects(device: RowDevice, form: Unpacking, row: HostRow) -> Iterator[Effect]:
    """Yield the effects of the share of the FP32 rate at which prompts are multiplied."""
    kind, backend = device.nodes[2:]
    yield from _chain("prompt", device, row, log(1.0), _PROMPTS)
    yield Effect(f"prompt|{backend}#{form}", log(_PRODUCTS[form]), 0.4)
    yield Effect(f"prompt|{kind}#{form}", 0.0, 0.2)
    if row.fork:
        yield Effect(f"prompt|{backend}!fork", 0.0, _FORK)
        yield Effect(f"prompt|{backend}#{form}!fork", 0.0, _FORK)
        if row.repacked:
            yield Effect(f"prompt|{backend}!repacked", 0.0, _FORK)
