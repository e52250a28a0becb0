"""Comparison: what strategies would do with one question, side by side; for larger batches, which are never worse."""

from typing import Literal

from pydantic import Field

from helmsman.schemas.base import Count, Derived, Document, Frozen, Name, Sha256, Total, Words, version
from helmsman.schemas.formats import KvFormat, StoredFormat
from helmsman.schemas.objective import Objective
from helmsman.schemas.predicted import Interval, MemoryUse
from helmsman.schemas.workload import Workload

Verdict = Literal["fits", "does-not-fit", "does-not-apply"]

Limit = Literal["ttft", "tpot"]
"""The metric that a plan may be limited in: `ttft` and `step` of its speed."""


class Speed(Frozen):
    """What a plan is predicted to take, in seconds of the whole workload: batches that take turns and batches that
    advance together compare.

    `ttft`: until every sequence has its first token; `step`: one token more for each; `request`: until all tokens are
    there; `decode_rate`: tokens/s of decode steps, `rate`: all output tokens over `request`."""

    ttft: Interval
    step: Interval
    request: Interval
    decode_rate: Interval
    rate: Interval


class Planned(Frozen):
    """A strategy's plan: its label, speed, and bytes in each memory."""

    label: Name
    speed: Speed
    memory: tuple[MemoryUse, ...]


class Row(Frozen):
    """What one strategy has to say. `relative`: its objective over the best one's, of those that keep all limits if any
    does; `misses`: limits (--slo) over which its plan is; `ignored`: options of the comparison that it does not have;
    `unused`: devices of the machine that its plans cannot use, and why.

    Where there is no plan: why, the remedy, and bytes that are missing by memory."""

    strategy: Name
    verdict: Verdict
    planned: Planned | None = None
    relative: Derived | None = None
    misses: tuple[Limit, ...] = ()
    reason: Words | None = None
    remedy: Words | None = None
    lacks: dict[Name, Total] = Field(default_factory=dict)
    ignored: tuple[Name, ...] = ()
    unused: dict[Name, Words] = Field(default_factory=dict)


class Point(Frozen):
    """A strategy's plan for `batch` sequences together; `misses`: limits (--slo) over which it is; `front`: of those
    that keep all limits, no other has a shorter request and a higher rate."""

    strategy: Name
    batch: Count
    planned: Planned
    front: bool
    misses: tuple[Limit, ...] = ()


class Comparison(Document):
    """Strategies asked one question, the best first; the same question gives the same text.

    `memory_names`: what people call the machine's memories, by their names in its record; `weights`, `kv`: the formats
    that were asked for; `options`: of strategies, for all that have them; `same_software`: whether placements alone are
    compared, engines with the launch times of the machine's record; `points`: the plans for larger and larger batches,
    by strategy."""

    schema_id: Literal["helm.comparison/1"] = version("helm.comparison/1")
    model: Name
    model_sha256: Sha256
    hardware: Name
    hardware_sha256: Sha256
    memory_names: dict[Name, Words] = Field(default_factory=dict)
    workload: Workload
    weights: StoredFormat
    kv: KvFormat
    objective: Objective
    options: dict[Name, str | int | float | bool] = Field(default_factory=dict)
    same_software: bool
    rows: tuple[Row, ...]
    points: tuple[Point, ...] = ()
