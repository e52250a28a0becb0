"""Constants that lean on each other, by part of a pass: robust maximum a posteriori fits of logarithms of seconds.

A constant's logarithm is a mean and effects of kind, class, device and profile, with normal priors (as in
`benchmarks.engine_rows`). Each part has few constants of its own, so that parts are fitted apart; slopes are
differences."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Any

import numpy as np

from benchmarks.engine_passes.questions import MeasuredPass
from helmsman.hwdb.pass_constants import PROMPTS, RATES, ROWS, WIDTHS, weighted
from helmsman.planner.cost.task_amounts import OVERHEAD_ROWS

Array = np.ndarray[Any, np.dtype[np.float64]]

_NONE = 1e-12
"""The amount of what a pass does not have, of which logarithms are taken."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant's logarithm before any row, its standard deviation, and those of its effects: of the kind, the class,
    the device, the profile."""

    mean: float
    sd: float
    effects: tuple[float, float, float, float]


@dataclass(frozen=True)
class PassPart:
    """A part of passes: its constants, and the logarithm of seconds by features (a row each) and constants."""

    constants: Mapping[str, Constant]
    features: Callable[[MeasuredPass], Array | None]
    model: Callable[[Array, Array], Array]
    measured: str
    kernel: str | None = None

    def of(self, row: MeasuredPass) -> bool:
        """Whether a pass tells of it."""
        return self.measured in row.parts and self.kernel in (None, row.kernel)


def _row_weights(rows: float, points: Sequence[float]) -> list[float]:
    made = [0.0] * len(points)
    for place, weight in weighted(rows, points):
        made[place] += weight
    return made


def _joined(known: Array, reading: Array, computing: Array) -> Array:
    """Return the seconds of products: reading and arithmetic in seconds at full rates."""
    read, compute, q = (np.exp(known[:, place]) for place in range(3))
    a, b = np.log(reading / read), np.log(computing / compute)
    return np.asarray(np.logaddexp(q * a, q * b) / q)


def _products(kernel: str) -> Callable[[MeasuredPass], Array]:
    def features(row: MeasuredPass) -> Array:
        tasks, rows = row.tasks, float(row.shape.rows)
        plain = tasks.bytes("products")
        reading = plain * WIDTHS[kernel] / WIDTHS["16"] / row.bandwidth
        computing = rows * plain / (RATES[kernel] * row.flops)
        count, step = float(tasks.count("products")), row.shape.phase == "decode"
        fixed = [count, _NONE if step else count * -(-row.shape.rows // OVERHEAD_ROWS)]
        amounts = [*fixed, reading, computing, float(row.halved)]
        return np.array([*amounts, *_row_weights(rows, ROWS)])

    return features


def _experts(row: MeasuredPass) -> Array:
    tasks = row.tasks
    count, step = float(tasks.count("experts")), row.shape.phase == "decode"
    fixed = [count, _NONE if step else count * -(-row.shape.rows // OVERHEAD_ROWS)]
    reading, computing = tasks.bytes("experts") / row.bandwidth, tasks.flops("experts") / row.flops
    one, _ = tasks.parts["experts"][0]
    return np.array([*fixed, reading, computing, float(row.halved), *_row_weights(one.tokens / one.sequences, ROWS)])


def _product_seconds(features: Array, known: Array) -> Array:
    shares = known[:, 2:5].copy()
    shares[:, 1] += features[:, 4] * known[:, 5]
    work = _joined(shares, features[:, 2], features[:, 3]) + np.sum(features[:, 5:] * known[:, 6:], axis=1)
    fixed = np.logaddexp(np.log(features[:, 0]) + known[:, 0], np.log(features[:, 1]) + known[:, 1])
    return np.asarray(np.logaddexp(fixed, work))


def _attention(row: MeasuredPass) -> Array:
    tasks, step = row.tasks, row.shape.phase == "decode"
    amounts = [tasks.count("attention"), tasks.bytes("attention") / row.bandwidth if step else _NONE]
    score = _NONE if step else tasks.flops("attention") / row.flops
    weights = [0.0] * len(PROMPTS) if step else _row_weights(float(row.shape.tokens), PROMPTS)
    return np.array([*amounts, score, *weights])


def _attention_seconds(features: Array, known: Array) -> Array:
    fixed = np.log(features[:, 0]) + known[:, 0]
    reading = np.log(features[:, 1]) - known[:, 1]
    scoring = np.log(features[:, 2]) - np.sum(features[:, 3:] * known[:, 2:], axis=1)
    return np.asarray(np.logaddexp(np.logaddexp(fixed, reading), scoring))


def _other(row: MeasuredPass) -> Array:
    tasks = row.tasks
    once = sum(times for task, times in tasks.parts["other"] if task.kind == "lookup")
    return np.array([tasks.count("other") - once, tasks.moved("other") / row.bandwidth, once])


def _other_seconds(features: Array, known: Array) -> Array:
    fixed, moving = np.log(features[:, 0]) + known[:, 0], np.log(features[:, 1]) - known[:, 1]
    return np.asarray(np.logaddexp(np.logaddexp(fixed, moving), np.log(features[:, 2]) + known[:, 2]))


_SHARE = (0.08, 0.08, 0.10, 0.01)
_FACTOR = Constant(0.0, 0.1, (0.04, 0.05, 0.10, 0.01))

MEASURED = ("16", "fp8", "fp4")
"""Kernels that profiles have."""

_KERNELS: Mapping[str, Constant] = {
    "operation": Constant(log(3e-6), 0.7, (0.2, 0.2, 0.3, 0.1)),
    "chunk": Constant(log(0.5e-6), 0.7, (0.3, 0.3, 0.8, 0.02)),
    "read": Constant(log(0.85), 0.1, _SHARE),
    "compute": Constant(log(0.85), 0.2, _SHARE),
    "joined": Constant(log(3.0), 0.5, (0.2, 0.2, 0.3, 0.0)),
    "halved": Constant(log(1.2), 0.1, (0.0, 0.0, 0.0, 0.0)),
    **{f"factor{rows:g}": _FACTOR for rows in ROWS},
}

PARTS: Mapping[str, PassPart] = {
    **{kernel: PassPart(_KERNELS, _products(kernel), _product_seconds, "products", kernel) for kernel in MEASURED},
    "experts": PassPart(_KERNELS, _experts, _product_seconds, "experts", "16"),
    "attention": PassPart(
        {
            "attending": Constant(log(8e-6), 0.7, (0.2, 0.2, 0.3, 0.1)),
            "cache": Constant(log(0.75), 0.2, (0.1, 0.1, 0.15, 0.05)),
            **{f"prompt{tokens:g}": Constant(log(0.3), 1.0, (0.2, 0.2, 0.6, 0.02)) for tokens in PROMPTS},
        },
        _attention,
        _attention_seconds,
        "attention",
    ),
    "other": PassPart(
        {
            "other": Constant(log(3e-6), 0.5, (0.1, 0.1, 0.2, 0.05)),
            "moving": Constant(log(0.3), 0.5, (0.2, 0.2, 0.3, 0.05)),
            "choosing": Constant(log(40e-6), 0.7, (0.1, 0.1, 0.2, 0.05)),
        },
        _other,
        _other_seconds,
        "other",
    ),
}


class PartFit:
    """The rows of one part, and fits to any of them."""

    def __init__(self, part: PassPart, rows: Sequence[MeasuredPass]) -> None:
        self.part, self.rows = part, distinct([row for row in rows if part.of(row)], part)
        self.features = np.array([part.features(row) for row in self.rows])
        self.seconds = np.log([row.parts[part.measured] for row in self.rows])
        self.noise = np.array([row.noise for row in self.rows])
        self.places: dict[tuple[str, str], int] = {}
        self.sd: list[float] = []
        self.mean: list[float] = []
        self.index = np.array([[self._effects(name, row) for name in part.constants] for row in self.rows])

    def _effects(self, name: str, row: MeasuredPass) -> list[int]:
        """Return the places of a constant's effects: of the backend, the kind, the class, the device, the profile."""
        device, group, kind, backend = row.nodes
        known = self.part.constants[name]
        nodes = (backend, kind, group, device, f"{device}|{row.source}")
        made = []
        for node, sd in zip(nodes, (known.sd, *known.effects), strict=True):
            place = self.places.setdefault((name, node), len(self.places))
            if place == len(self.sd):
                self.sd.append(max(sd, 1e-6))
                self.mean.append(known.mean if node == backend else 0.0)
            made.append(place)
        return made

    def fit(self, chosen: Array) -> Array:
        """Return the effects fitted to the rows where `chosen` is true."""
        if not self.rows:
            return np.array(self.mean)
        at, prior, sd = np.array(self.mean), np.array(self.mean), np.array(self.sd)
        features, seconds, index = self.features[chosen], self.seconds[chosen], self.index[chosen]
        noise = self.noise[chosen]
        for _ in range(30):
            known = at[index].sum(axis=2)
            said = self.part.model(features, known)
            slopes = np.zeros((len(seconds), len(at)))
            for place in range(known.shape[1]):
                moved = known.copy()
                moved[:, place] += 1e-4
                slope = (self.part.model(features, moved) - said) / 1e-4
                for level in range(index.shape[2]):
                    slopes[np.arange(len(seconds)), index[:, place, level]] += slope
            residual = (said - seconds) / noise
            weight = 1.0 / np.sqrt(1.0 + residual * residual / 4.0)
            slopes /= noise[:, None]
            normal = (slopes * weight[:, None]).T @ slopes + np.diag(1.0 / sd**2)
            step = np.linalg.solve(normal, slopes.T @ (weight * residual) + (at - prior) / sd**2)
            at = at - np.clip(step, -0.5, 0.5)
            if np.abs(step).max() < 1e-3:
                break
        return at

    def constants(self, effects: Array, nodes: Sequence[str]) -> dict[str, float]:
        """Return the constants of a lineage, the nearest node first; what no row has is as its parent is."""
        made = {}
        for name, known in self.part.constants.items():
            total = 0.0 if (name, nodes[-1]) in self.places else known.mean
            total += sum(effects[self.places[name, node]] for node in nodes if (name, node) in self.places)
            made[name] = exp(total)
        return made


def distinct(rows: Sequence[MeasuredPass], part: PassPart) -> list[MeasuredPass]:
    """Return rows of which each has another amount of the part's work: passes of other contexts have the same
    products."""
    known: dict[tuple[object, ...], MeasuredPass] = {}
    for row in rows:
        same = row.shape.rows if part.kernel is not None else row.shape
        known.setdefault((row.source, row.model, same), row)
    return list(known.values())


class PassFit:
    """Fits of all parts."""

    def __init__(self, rows: Sequence[MeasuredPass]) -> None:
        self.parts = {name: PartFit(part, rows) for name, part in PARTS.items()}
        self._fitted: dict[str | None, dict[str, Array]] = {}

    def fitted(self, without: str | None = None) -> dict[str, Array]:
        """Return the effects of all parts fitted to all rows but those of a GPU."""
        if without not in self._fitted:
            self._fitted[without] = {
                name: fit.fit(np.array([row.gpu != without for row in fit.rows], bool))
                for name, fit in self.parts.items()
            }
        return self._fitted[without]

    def constants(self, fitted: Mapping[str, Array], nodes: Sequence[str]) -> dict[str, dict[str, float]]:
        """Return the constants of all parts of a lineage."""
        return {name: fit.constants(fitted[name], nodes) for name, fit in self.parts.items()}

    def kernels(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """Return the kernels of which some profile tells, of a device, its class or its kind."""
        inner = nodes[:-1] or nodes
        return tuple(
            kernel for kernel in MEASURED if any(("read", node) in self.parts[kernel].places for node in inner)
        )
