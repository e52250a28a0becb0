"""Rows with part of a model on the processor: what their plans leave to it, as questions about its constants.

What accelerators and links take is predicted by the constants that the package has of them; only the processor's are
fitted: an overhead of every operation, shares of the rate of plain reads at which weights of a format are multiplied,
how many times longer than by class attention takes there, and shares of the FP32 rate for prompts."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path

from benchmarks.engine_rows.devices import RowDevice
from benchmarks.engine_rows.models import format_named, model_named
from benchmarks.engine_rows.rows import EngineRow
from benchmarks.engine_rows.terms import Effect, Question, Spread, Term
from benchmarks.engine_rows.work import work_of
from benchmarks.strangers.answers import planned
from benchmarks.strangers.rows import UnansweredError, read_rows
from helmsman.hwdb.compose import GIB, compose
from helmsman.hwdb.engine_classes import lineage
from helmsman.hwdb.engine_constants import Family, constants_of, family_of
from helmsman.schemas.hardware import Device
from helmsman.schemas.plan import Plan
from helmsman.schemas.predicted import PhasePrediction

_ARM = "cpu/arm"
"""Processors that have nothing in common with the others but being some: the fork's kernels differ most on them."""

_ATTENTION = ("attention", "append", "index", "scores", "wv")
_SHARES = Spread(0.15, 0.15, 0.1, 0.2)
_OVERHEADS = Spread(0.5, 0.4, 0.2, 0.3)
_PROMPTS = Spread(0.3, 0.4, 0.3, 0.3)
"""Sources leave out what all their rows have in common: memory that is not read evenly, NUMA, pages."""

HOST_DOUBT = 0.1
"""The standard deviation of the logarithm of what differs between rows of one source beside."""

_ELSEWHERE = 0.15
"""The standard deviation of the logarithm of what accelerators and links take."""


@dataclass(frozen=True, slots=True)
class HostRow:
    """A row of any table as folds look at it; `fork`: of ik_llama.cpp, whose products on processors are its own, and
    faster where rows are interleaved (`repacked`); `sockets` that share the work; `alone`: without an accelerator;
    `machine`: the processor and accelerators."""

    number: int
    source: str
    era: str
    fork: bool
    sockets: int
    alone: bool = False
    repacked: bool = False
    machine: str = ""


def host_questions(path: Path) -> tuple[list[Question], list[Question]]:
    """Return the questions of decode steps and of prompts of llama.cpp's rows that can be planned."""
    decode, prompts = list[Question](), list[Question]()
    for row in read_rows(path):
        if "llama.cpp" not in row.engine:
            continue
        try:
            plan = planned(row)
        except UnansweredError:
            continue
        host = next(device for device in plan.hardware.devices if device.kind == "cpu")
        family = family_of(plan.residence[-1].format)
        fork = row.engine.startswith("ik_")
        repacked = (
            fork
            and bool(re.search(r"-rtr\b(?! not)|_R4|_R8", f"{row.settings} {row.quant}"))
            and "no rtr" not in row.settings
        )
        of = HostRow(row.number, row.source, "2025", fork, _sockets(host), False, repacked, f"{row.gpu} {row.cpu}")
        device = host_device(host)
        decode += _decode(of, row.speed("decode_tps"), plan, device, family)
        if row.count("prompt_tokens") is not None:
            prompts += _prompt(of, row.speed("prefill_tps"), plan, device)
    return decode, prompts


def alone_questions(rows: Sequence[EngineRow]) -> tuple[list[Question], list[Question]]:
    """Return the questions of rows of a processor alone; of prompts those of Arm processors, whose others have none."""
    decode, prompts = list[Question](), list[Question]()
    for row in rows:
        named = re.search(r"(?:(\d)x )?((?:Apple|Intel|AMD) [\w +-]+\w)", row.cpu)
        model, fmt = model_named(row.model), format_named(row.quant)
        if row.split != "cpu_only" or named is None or model is None or fmt is None:
            continue
        machine = compose(None, f"{named[1] or 1}x {named[2]}", 4096 * GIB, None)
        host = machine.devices[0]
        of = HostRow(
            row.number,
            row.source,
            row.era,
            row.engine.startswith("ik_"),
            int(named[1] or 1),
            True,
            "-rtr" in row.engine,
            row.cpu,
        )
        device, context = host_device(host), row.depth + (row.output or 128) // 2
        step, first = work_of(row.model, row.quant, "decode", 1, context), None
        if row.prompt:
            first = work_of(row.model, row.quant, "prefill", row.prompt, row.depth + row.prompt)
        if step is not None and row.decode:
            share = host_share_effects(device, family_of(fmt), of)
            reading = Term(sum(step.weights.values()) / device.bandwidth, True, tuple(share))
            kept = Term(step.cache / (0.6 * device.bandwidth), False, tuple(host_cache_effects(device)))
            overhead = Term(step.operations, False, tuple(host_overhead_effects(device, of)))
            decode.append(Question(of, device, (reading, kept, overhead), 1.0 / row.decode, HOST_DOUBT))
        if first is not None and row.prompt and row.prefill and device.nodes[2] == _ARM:
            product = Term(sum(first.flops.values()) / device.flops, True, tuple(host_prompt_effects(device, of)))
            prompts.append(Question(of, device, (product,), row.prompt / row.prefill, HOST_DOUBT))
    return decode, prompts


def host_device(host: Device) -> RowDevice:
    """Return a processor as rows have devices."""
    product = re.sub(r"^\dx ", "", host.product or "")
    nodes = lineage(product, host.device_class, "cpu")
    return RowDevice(product, "cpu", host.read.value, host.compute[0].flops.value, 0.0, True, nodes)


def _sockets(host: Device) -> int:
    counted = re.match(r"(\d)x ", host.product or "")
    return int(counted[1]) if counted else 1


def _decode(of: HostRow, speed: float | None, plan: Plan, device: RowDevice, family: Family) -> Iterator[Question]:
    step = plan.predicted.decode
    read = sum(t.bytes for t in step.terms if t.resource == "cpu" and t.op not in _ATTENTION)
    if not speed or not read:
        return
    own = plan.hardware.device("cpu").overhead
    added = own.value if own else 0.0
    kept = [t for t in step.terms if t.resource == "cpu" and t.op in _ATTENTION]
    attending = sum(max(0.0, t.seconds.mid - t.tasks * added) for t in kept)
    said = constants_of("llama.cpp", *_named(device), "cpu")
    attending *= 1.0 if said is None else said.cache  # as by class, whatever the package's table says of it
    operations = sum(t.tasks for t in step.terms if t.resource == "cpu")
    terms = [
        Term(_elsewhere(step), False, (Effect(f"elsewhere|{of.source}", 0.0, _ELSEWHERE),)),
        Term(operations, False, tuple(host_overhead_effects(device, of))),
        Term(read / device.bandwidth, True, tuple(host_share_effects(device, family, of))),
    ]
    if attending:
        terms.append(Term(attending, False, tuple(host_cache_effects(device))))
    yield Question(of, device, tuple(terms), 1.0 / speed, HOST_DOUBT)


def _prompt(of: HostRow, speed: float | None, plan: Plan, device: RowDevice) -> Iterator[Question]:
    first = plan.predicted.prefill
    flops = sum(t.flops for t in first.terms if t.resource == "cpu")
    if not speed or not flops:
        return
    terms = (
        Term(_elsewhere(first), False, (Effect(f"elsewhere|{of.source}", 0.0, 2 * _ELSEWHERE),)),
        Term(flops / device.flops, True, tuple(host_prompt_effects(device, of))),
    )
    yield Question(of, device, terms, plan.workload.new_tokens / speed, HOST_DOUBT)


def _named(device: RowDevice) -> tuple[str, str]:
    return device.name, device.nodes[1].rpartition("/")[2]


def _elsewhere(phase: PhasePrediction) -> float:
    return max(1e-6, sum(term.seconds.mid for term in phase.terms if term.resource != "cpu"))


_FORK = 0.7
"""The standard deviation of the logarithm of what the fork's products of many tokens are beside llama.cpp's, and of
what interleaved rows are; steps read the same bytes as fast, but for kernels of Arm processors."""


def _chain(of: str, device: RowDevice, row: HostRow, mean: float, sd: float, spread: Spread) -> Iterator[Effect]:
    own, group, kind, backend = device.nodes
    root = kind if kind == _ARM else backend
    yield Effect(f"{of}|{root}+", mean, sd)
    yield Effect(f"{of}|{kind}", 0.0, spread.kind)
    yield Effect(f"{of}|{group}", 0.0, spread.device_class)
    yield Effect(f"{of}|{own}", 0.0, spread.device)
    yield Effect(f"{of}|{own}|{row.source}", 0.0, spread.session)
    if row.fork and (of == "prompt" or kind == _ARM):
        yield Effect(f"{of}|{root}!fork", 0.0, _FORK)
        if row.repacked and of == "prompt":
            yield Effect(f"{of}|{root}!repacked", 0.0, _FORK)


def host_share_effects(device: RowDevice, family: Family, row: HostRow) -> Iterator[Effect]:
    """Yield the effects of the share of plain reads at which products read weights."""
    yield from _chain("share", device, row, log(0.75), 0.2, _SHARES)
    yield Effect(f"share|{device.nodes[2]}#{family}", 0.0, 0.2 if device.nodes[2] != _ARM else 0.6)
    if row.sockets > 1:
        yield Effect("share|cpu!2", log(0.6), 0.3)


def host_overhead_effects(device: RowDevice, row: HostRow) -> Iterator[Effect]:
    """Yield the effects of the seconds of every operation."""
    yield from _chain("overhead", device, row, log(2e-5), 0.8, _OVERHEADS)


def host_cache_effects(device: RowDevice) -> Iterator[Effect]:
    """Yield the effects of the times that attention takes longer than by class."""
    yield Effect("cache|cpu", log(1.5), 0.4)
    yield Effect(f"cache|{device.nodes[1]}", 0.0, 0.2)


def host_prompt_effects(device: RowDevice, row: HostRow) -> Iterator[Effect]:
    """Yield the effects of the share of the FP32 rate at which prompts are multiplied."""
    yield from _chain("prompt", device, row, log(1.0), 0.7, _PROMPTS)
