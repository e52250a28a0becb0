"""Seconds of a row as a sum of terms, each a known amount times constants that devices of a kind have in common.

A decode step: operations x overhead + bytes of weights / (share x bandwidth) + bytes of caches / (share x bandwidth).
A prompt: operations x overhead + FLOPs of products / (share x rate) + FLOPs of products / (FLOPs of a joule x watts)
+ attention, overheads for every chunk of its tokens, the share times a power of the model's size. Products of quantised
weights are by the int8 rate of the device; where CUDA builds of before June 2024 met units that multiply matrices, by
the FP16 rate, once weights were expanded."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import log
from typing import Protocol

from benchmarks.engine_rows.devices import RowDevice, device_named
from benchmarks.engine_rows.models import model_named
from benchmarks.engine_rows.rows import EngineRow
from benchmarks.engine_rows.work import PassWork, work_of
from helmsman.hwdb.engine_classes import HALF_ENERGY, SCORE_BYTES, expands_weights, score_padding
from helmsman.hwdb.engine_constants import family_of
from helmsman.planner.cost.task_amounts import OVERHEAD_ROWS
from helmsman.planner.strategies.engines.engine_model import engine_model

UBATCH = 512
"""Tokens of a micro-batch by default, and of all rows."""


@dataclass(frozen=True, slots=True)
class Effect:
    """A part of the logarithm of a constant, shared by rows that name it; `mean`, `sd`: before any row is seen; `by`:
    how much of it a row has."""

    name: str
    mean: float
    sd: float
    by: float = 1.0


@dataclass(frozen=True, slots=True)
class Term:
    """`amount` times, or over, a constant whose logarithm is the sum of `effects`; `rate`: over it."""

    amount: float
    rate: bool
    effects: tuple[Effect, ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """Standard deviations of logarithms: of the backend's constant before any row, of kinds, classes, devices and of
    one session from another; of families of formats beside, by backend, kind and class, of builds' years and of
    attention's form."""

    backend: float
    kind: float
    device_class: float
    device: float
    session: float
    families: tuple[float, float, float] = (0.0, 0.0, 0.0)
    era: float = 0.0
    flash: float = 0.0


_SPREADS = {
    "share": Spread(0.12, 0.16, 0.08, 0.08, 0.04, (0.06, 0.06, 0.02), era=0.03),
    "overhead": Spread(0.45, 0.24, 0.13, 0.09, 0.09, era=0.5, flash=0.13),
    "prompt": Spread(0.55, 0.24, 0.1, 0.17, 0.05, (0.31, 0.19, 0.09), era=0.16),
    "prompt_overhead": Spread(1.1, 0.3, 0.2, 0.5, 0.15, era=0.45, flash=0.16),
    "attending": Spread(0.9, 0.3, 0.3, 0.1, 0.1),
    "scores": Spread(0.3, 0.19, 0.15, 0.06, 0.06),
    "expanding": Spread(0.19, 0.19, 0.12, 0.0, 0.0),
    "power": Spread(0.6, 0.9, 0.34, 0.0, 0.0),
    "size": Spread(0.05, 0.0, 0.0, 0.1, 0.0),
}
"""Of CUDA and Metal, by constant: those with which all rows of a phase together are most likely, found by coordinate
search over the evidence of the fit (`Hierarchy.evidence`) from assumed ones, which count as known within a factor of
two. Left-out figures had no part in that."""

_ELSEWHERE = {
    "share": Spread(0.15, 0.2, 0.12, 0.08, 0.15, (0.1, 0.06, 0.05), era=0.08),
    "overhead": Spread(0.7, 0.3, 0.2, 0.15, 0.15, era=0.5, flash=0.2),
    "prompt": Spread(0.7, 0.3, 0.25, 0.12, 0.3, (0.5, 0.3, 0.15), era=0.4),
    "prompt_overhead": Spread(0.7, 0.3, 0.2, 0.15, 0.15, era=0.5, flash=0.2),
    "attending": Spread(0.8, 0.3, 0.3, 0.1, 0.1),
    "scores": Spread(0.5, 0.3, 0.3, 0.1, 0.1),
    "power": Spread(0.6, 0.4, 0.3, 0.0, 0.0),
    "size": Spread(0.05, 0.0, 0.0, 0.1, 0.0),
}
"""Of ROCm, Vulkan and OpenCL, whose few rows say nothing of them: assumed, drivers differing more."""

_SESSIONS = {
    ("share", "rocm"): 0.08,
    ("share", "opencl"): 0.3,
    ("prompt", "opencl"): 0.6,
}
"""Of one session from another where these differ from other backends'."""


def spread_of(constant: str, backend: str) -> Spread:
    """Return the spreads of a constant on a backend."""
    known = (_SPREADS if backend in ("cuda", "metal") else _ELSEWHERE)[constant]
    return replace(known, session=_SESSIONS.get((constant, backend), known.session))


_KNOWN = {
    "share|cuda/hbm": log(0.78),
    "share|cuda/older/pascal-hbm": log(0.7),
}
"""Means of effects that are known before any row of the table: cards with HBM decode at a smaller share of their
bandwidth than others do, of which P100 has no int8 products either."""


class RowOrigin(Protocol):
    """Identifies a row of any table for folds: its number and its source."""

    @property
    def number(self) -> int:
        """Return its number in the table."""

    @property
    def source(self) -> str:
        """Return where it is from."""

    @property
    def era(self) -> str:
        """Return the year of the build."""


@dataclass(frozen=True, slots=True)
class Question:
    """A row that is answered: on which device, in which phase, its terms, and the seconds that were measured. `doubt`:
    the standard deviation of the logarithm of what the terms leave out."""

    row: RowOrigin
    device: RowDevice
    terms: tuple[Term, ...]
    seconds: float
    doubt: float = 0.0


def decode_question(row: EngineRow) -> Question | None:
    """Return the question of a row's decode steps; None for a model, format or device that is not known."""
    return decode_question_on(row, device_named(row.gpu, row.backend))


def decode_question_on(row: EngineRow, device: RowDevice | None) -> Question | None:
    """Return the same, of a device that is known."""
    context = row.depth + (row.output or 128) // 2
    work = work_of(row.model, row.quant, "decode", 1, max(1, context))
    if device is None or work is None or row.decode is None:
        return None
    families: dict[str, float] = {}
    for fmt, size in work.weights.items():
        families[family_of(fmt)] = families.get(family_of(fmt), 0.0) + size
    terms = [Term(work.operations, False, tuple(overhead_effects(row, device)))]
    terms += [Term(size / device.bandwidth, True, tuple(share_effects(row, device, f))) for f, size in families.items()]
    terms.append(Term(work.cache / device.bandwidth, True, tuple(cache_effects(row, device))))
    return Question(row, device, tuple(terms), 1.0 / row.decode)


def prompt_question(row: EngineRow) -> Question | None:
    """Return the question of a row's prompt, in the same cases."""
    return prompt_question_on(row, device_named(row.gpu, row.backend))


def prompt_question_on(row: EngineRow, device: RowDevice | None) -> Question | None:
    """Return the same, of a device that is known."""
    if device is None or not row.prefill or not row.prompt:
        return None
    before = row.depth if row.depth != row.prompt and row.depth > 0 and "sweep" in row.metric else 0
    work = work_of(row.model, row.quant, "prefill", row.prompt, before + row.prompt)
    if work is None:
        return None
    chunks = -(-row.prompt // OVERHEAD_ROWS)
    terms = [Term(work.operations * chunks, False, tuple(overhead_effects(row, device, "prompt_overhead")))]
    terms += _products(row, device, work)
    terms.append(_attending(row, device, work, before))
    return Question(row, device, tuple(terms), row.prompt / row.prefill)


def _products(row: EngineRow, device: RowDevice, work: PassWork) -> Iterator[Term]:
    """Yield the products of a prompt: FLOPs over shares of rates, FLOPs over what a watt does, and bytes of weights
    that builds of before June 2024 expanded to FP16 for every micro-batch."""
    expands, energy, expanded = expands_weights(row.era, device.backend, _group(device)), 0.0, 0.0
    assert row.prompt is not None, "questions are of prompts"
    passes = -(-row.prompt // UBATCH)
    for fmt, flops in work.flops.items():
        family = "16" if family_of(fmt) == "16" or expands else "q"
        rate = device.flops if family == "16" else device.int8
        energy += flops * (HALF_ENERGY if family == "16" else 1.0)
        yield Term(flops / rate, True, (*prompt_effects(row, device, family), *size_effects(row, device)))
        if expands and family_of(fmt) != "16":
            packed = work.weights[fmt]
            expanded += passes * (packed + 2 * flops / (2.0 * row.prompt))
    if expanded:
        yield Term(expanded / device.bandwidth, True, tuple(expanding_effects(row, device)))
    if device.power:
        yield Term(energy / device.power, True, tuple(power_effects(row, device)))


def _group(device: RowDevice) -> str:
    return device.nodes[1].rpartition("/")[2]


def _attending(row: EngineRow, device: RowDevice, work: PassWork, before: int) -> Term:
    """Return what attention of a prompt takes: FLOPs over a share of the FP16 rate as a kernel of its own, else bytes
    of scores that are written and read again, of all that is cached for every micro-batch."""
    if row.flash:
        return Term(work.attending / device.flops, True, tuple(attending_effects(row, device)))
    assert row.prompt is not None, "questions are of prompts"
    scores = work.scores * score_padding(row.prompt, before)
    return Term(SCORE_BYTES * scores / device.bandwidth, True, tuple(attending_effects(row, device)))


def _chain(of: str, device: RowDevice, row: EngineRow, mean: float, spread: Spread) -> Iterator[Effect]:
    """Yield the effects of the backend, the kind, the class, the device and the session."""
    own, group, kind, backend = device.nodes
    yield Effect(f"{of}|{backend}", mean, spread.backend)
    yield Effect(f"{of}|{kind}", _KNOWN.get(f"{of}|{kind}", 0.0), spread.kind)
    yield Effect(f"{of}|{group}", _KNOWN.get(f"{of}|{group}", 0.0), spread.device_class)
    if spread.device:
        yield Effect(f"{of}|{own}", 0.0, spread.device)
        yield Effect(f"{of}|{own}|{row.source}", 0.0, spread.session)


def _of_family(of: str, device: RowDevice, row: EngineRow, family: str, spread: Spread) -> Iterator[Effect]:
    """Yield the effects of a family of formats on the backend, the kind and the class, and in builds of a year."""
    _, group, kind, backend = device.nodes
    for node, sd in zip((backend, kind, group), spread.families, strict=True):
        yield Effect(f"{of}|{node}#{family}", 0.0, sd)
    yield Effect(f"{of}|{backend}#{family}@{row.era}", 0.0, spread.era)


def share_effects(row: EngineRow, device: RowDevice, family: str) -> Iterator[Effect]:
    """Yield the effects of the share of the bandwidth at which weights of a family are read."""
    spread = spread_of("share", device.backend)
    yield from _chain("share", device, row, log(0.8), spread)
    yield from _of_family("share", device, row, family, spread)


def overhead_effects(row: EngineRow, device: RowDevice, constant: str = "overhead") -> Iterator[Effect]:
    """Yield the effects of the seconds of every operation of a step, or of a prompt (`prompt_overhead`)."""
    spread = spread_of(constant, device.backend)
    yield from _chain("overhead", device, row, log(5e-6), spread)
    yield Effect(f"overhead|{device.backend}@{row.era}", 0.0, spread.era)
    yield Effect(f"overhead|{device.backend}!{row.flash}", 0.0, spread.flash)


def cache_effects(row: EngineRow, device: RowDevice) -> Iterator[Effect]:
    """Yield the effects of the share of the bandwidth at which caches are read."""
    _, group, _, backend = device.nodes
    yield Effect(f"cache|{backend}", log(0.35), 0.5)
    yield Effect(f"cache|{group}", 0.0, 0.2)
    yield Effect(f"cache|{backend}!{row.flash}", log(2.0) if row.flash else 0.0, 0.2)


def prompt_effects(row: EngineRow, device: RowDevice, family: str) -> Iterator[Effect]:
    """Yield the effects of the share of a rate at which prompts are multiplied by weights of a family."""
    spread = spread_of("prompt", device.backend)
    yield from _chain("prompt", device, row, log(0.3), spread)
    yield Effect(f"prompt|{device.backend}~{device.matrices}", 0.0 if device.matrices else log(2.0), 0.3)
    yield from _of_family("prompt", device, row, family, spread)


def size_effects(row: EngineRow, device: RowDevice) -> Iterator[Effect]:
    """Yield the effects of how that share changes with a model's size: on some devices larger products reach more, on
    others longer ones heat the chip until it slows down."""
    own, _, _, backend = device.nodes
    spread, model = spread_of("size", device.backend), model_named(row.model)
    scale = engine_model(model).scale if model else 0.0
    yield Effect(f"size|{backend}", 0.0, spread.backend, scale)
    yield Effect(f"size|{own}", 0.0, spread.device, scale)


def attending_effects(row: EngineRow, device: RowDevice) -> Iterator[Effect]:
    """Yield the effects of what attention of a prompt reaches, as a kernel of its own or by scores that are written."""
    of, mean = ("attending", log(0.25)) if row.flash else ("scores", log(0.7))
    yield from _chain(of, device, row, mean, spread_of(of, device.backend))


def expanding_effects(row: EngineRow, device: RowDevice) -> Iterator[Effect]:
    """Yield the effects of the share of the bandwidth at which weights are expanded to FP16."""
    yield from _chain("expanding", device, row, log(0.7), _SPREADS["expanding"])


def power_effects(row: EngineRow, device: RowDevice) -> Iterator[Effect]:
    """Yield the effects of the operations that a joule does."""
    yield from _chain("power", device, row, log(7e11), spread_of("power", device.backend))
