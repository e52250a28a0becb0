"""The work of a layer that busy links delay, over arrays of candidates: the closed form of `timing.interference`.

Work w of a lane that takes w + e while a link is busy takes w + e min(1, S / (w + e)) beside S busy seconds: it loses
e / (w + e) of every one of them, or e when it is done before. In a steady state the seconds of S can all fall on the
lane that the period waits for, so this is an upper bound, and exact where that lane never rests (of several batches,
one's chain is taken to lose its mean share). What a flow shop
loses is taken as that part of what it loses beside a link that never rests (its length is convex in the work).

Links of one kind are busy together: those that weights and caches are streamed over, and those from storage. Delays
of both add up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from helmsman.lowering.graph import Task
from helmsman.planner.cost.model import CostModel
from helmsman.planner.strategies.op_split.layer_table import LayerTable
from helmsman.planner.strategies.op_split.pipeline import Seconds, Section
from helmsman.planner.strategies.streaming.work import LayerWork
from helmsman.schemas.hardware import lane_owner
from helmsman.timing.interference import streaming

DELAYED = ("host", "accelerator", "decompress_weights", "decompress_cache")
"""Columns of a layer's table that are work of a device."""


@dataclass(frozen=True, slots=True)
class Delays:
    """A layer's table as it is beside a link that never rests: the one that things are streamed over, and storage's."""

    link: LayerTable
    storage: LayerTable


@dataclass(frozen=True, slots=True, eq=False)
class BesideLinks:
    """Candidates beside links of one kind that never rest, what those are really `busy` for, and the seconds that all
    `unpacking` takes beside them; per layer, of all batches."""

    worst: Section
    busy: Seconds
    unpacking: Seconds


def layer_delays(costs: CostModel, table: LayerTable, work: LayerWork) -> Delays | None:
    """Return what busy links make of `table`; None where no link of the machine delays anything."""
    slowed = costs.slowed()
    if slowed is None or all(link.slows is None and link.interrupts is None for link in costs.hardware.links):
        return None

    def worst(moving: Sequence[Task]) -> LayerTable:
        links = {lane_owner(task.resource) for task in moving if task.kind == "transfer"}

        def added(task: Task) -> float:
            return costs.price(task).mid * sum(extra for link, extra in slowed(task) if streaming(link) in links)

        return _with(table, work.columns(added), work.columns(lambda task: costs.price(task).mid))

    streamed = [task for task in [*work.there, *work.packed, *work.staged] if task.memories[-1] == work.accelerator]
    return Delays(worst(streamed), worst(work.read))


def _with(
    table: LayerTable, added: Mapping[str, Mapping[str, float]], alone: Mapping[str, Mapping[str, float]]
) -> LayerTable:
    """Every unit longer by the part that its operation is."""
    longer = {}
    for name in DELAYED:
        parts = {op: added[name][op] / seconds if seconds else 0.0 for op, seconds in alone[name].items()}
        column = getattr(table, name)
        longer[name] = tuple(value * (1.0 + parts[unit.op]) for unit, value in zip(table.units, column, strict=True))
    return replace(table, **longer)


def delayed(plain: Section, beside: Sequence[BesideLinks], batches: int) -> Section:
    """`plain` with what the links cost it."""
    host, accelerator = plain.host, plain.accelerator
    ready, weights_ready, caches_ready = plain.ready, plain.weights_ready, plain.caches_ready
    weights_work, caches_work = plain.weights_work, plain.caches_work
    for links in beside:
        worst, unpacked = links.worst, part(links.busy, links.unpacking)
        host = host + part(links.busy, batches * worst.host) * (worst.host - plain.host)
        computed = part(links.busy, batches * worst.accelerator)
        accelerator = accelerator + computed * (worst.accelerator - plain.accelerator)
        ready = ready + unpacked * (worst.ready - plain.ready)
        weights_ready = weights_ready + unpacked * (worst.weights_ready - plain.weights_ready)
        caches_ready = caches_ready + unpacked * (worst.caches_ready - plain.caches_ready)
        weights_work = weights_work + unpacked * (worst.weights_work - plain.weights_work)
        caches_work = caches_work + unpacked * (worst.caches_work - plain.caches_work)
    return replace(
        plain,
        host=host,
        accelerator=accelerator,
        chain=plain.chain + (host - plain.host) + (accelerator - plain.accelerator),
        ready=ready,
        weights_ready=weights_ready,
        caches_ready=caches_ready,
        weights_work=weights_work,
        caches_work=caches_work,
    )


def part(busy: Seconds, work: Seconds) -> Seconds:
    """How much of `work` a link that is busy so long can run beside, 0 to 1."""
    return np.minimum(1.0, np.divide(busy, work, out=np.zeros_like(work), where=work > 0))
