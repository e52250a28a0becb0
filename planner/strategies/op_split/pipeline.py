"""Closed forms of a layer's steady state: how long each lane takes when the accelerator computes units [i, j).

Three readings of "seconds per layer", all over arrays of candidates:

`printed` is L of Park & Egger eq. 5-14 as far as it can be run: half-open ranges (E-PARK-02), decompression as an
exact flow shop (E-PARK-03), host time of all batches and caches of [i, j) only (E-PARK-04). It assumes that the lanes
are independent, so accelerator time is free (E-PARK-05).

`chained` is L': the period of the dependent chain host prefix -> accelerator -> host suffix -> next layer. What it
assumes: weights (and with one batch also KV) of a layer start moving when the accelerator starts the layer before; a
batch's section runs as one block, once its data and its host prefix are there; with several batches one batch's KV is
resident, so it moves after the accelerator is done with the batch before; the host takes batches in turn, suffix of
this layer and prefix of the next together. Then every cycle of the event graph is a mix of those below, and a mean of
ratios is at most the largest of them, so the period is their maximum (C, G: one batch; n batches):

- host nC; one batch's chain of operations and of what crosses between them (`steady.crossings`; C + G where nothing is
  known to cross); the busier lane of activations, n times; accelerator nG; storage S;
- one batch: link W + K, and the flow shop of weights and KV together;
- n batches with KV in [i, j): n - 1 times (KV, section), then KV, then the longer of the next weights and the last
  section: nK + (n-1)G + max(W, G). That is eq. 14 for W >= G. Without KV in [i, j): W.

Where transfers overlap nothing, `apart` is what no lane beats; what follows what is then `steady.period`. So it is for
several batches that overlap, too (`follow`): the order in which they take turns decides how lanes wait for each other,
and `chained` only chooses the configuration of a range.
"""

from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Seconds = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """The seconds in which candidates move and compute; one entry per candidate, host and accelerator for one batch.

    `chain`: one batch's operations with what crosses between them, `crossing`: its busier lane of activations.
    `ready`, `weights_ready` and `caches_ready` are when the last unpacking ends in a flow shop of all items of a
    batch, of the weights alone, of the caches alone, started at 0 on idle lanes; 0 where nothing is compressed. The
    first is not used by L' of several batches, where KV moves behind all weights; the second only by that.
    """

    host: Seconds
    accelerator: Seconds
    chain: Seconds
    crossing: Seconds
    weights: Seconds
    caches: Seconds
    ready: Seconds
    weights_ready: Seconds
    caches_ready: Seconds
    weights_work: Seconds
    caches_work: Seconds
    storage: Seconds
    caches_move: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class LaneSeconds:
    """Seconds per layer by lane, of all batches, and of the layer (`total`); one entry per candidate."""

    cpu: Seconds
    h2d: Seconds
    decompress: Seconds
    s2d: Seconds
    gpu: Seconds
    total: Seconds


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """The seconds per unit in which it moves over the link and is unpacked."""

    weights: Seconds
    caches: Seconds
    unpack_weights: Seconds
    unpack_caches: Seconds


def printed(section: Section, batches: int) -> LaneSeconds:
    """L = max(CPU, H2D, DC, S2D), eq. 10, with H2D by eq. 14 for several batches."""
    cpu = batches * section.host
    h2d = section.weights + batches * section.caches + (batches - 1) * section.accelerator
    unpack = section.ready if batches == 1 else _unpack_batches(section, batches)
    total = _longest(cpu, h2d, unpack, section.storage)
    return LaneSeconds(cpu, h2d, unpack, section.storage, batches * section.accelerator, total)


def chained(section: Section, batches: int) -> LaneSeconds:
    """L', the period of the dependent chain (E-PARK-05)."""
    cpu, gpu = batches * section.host, batches * section.accelerator
    if batches == 1:
        h2d, unpack = section.weights + section.caches, section.ready
    else:
        h2d, unpack = _link_period(section, batches), _unpack_period(section, batches)
    total = _longest(cpu, section.chain, gpu, batches * section.crossing, h2d, unpack, section.storage)
    return LaneSeconds(cpu, h2d, unpack, section.storage, gpu, total)


def apart(section: Section, batches: int) -> LaneSeconds:
    """Each lane by itself, whatever waits for what: no schedule is faster."""
    cpu, gpu = batches * section.host, batches * section.accelerator
    h2d = section.weights + batches * section.caches
    unpack = section.weights_work + batches * section.caches_work
    return LaneSeconds(cpu, h2d, unpack, section.storage, gpu, _longest(cpu, gpu, h2d, unpack, section.storage))


class SlottedArrays(Protocol):
    """Arrays with an entry per candidate, by name."""

    __slots__: tuple[str, ...]


Columns = TypeVar("Columns", bound=SlottedArrays)


def taken(columns: Columns, rows: Indices | NDArray[np.bool_]) -> Columns:
    """The lanes, sections or streams of some of the candidates."""
    return type(columns)(*(getattr(columns, name)[rows] for name in columns.__slots__))


def flow_shop(items: Items, start: Indices, stop: Indices) -> Seconds:
    """When the last unpacking of units [start, stop) ends, 0 where there is none; O(n^2), no loop.

    Items move in the order of units, weights before cache, and unpack in that order: finish_k = max(arrive_k,
    finish_{k-1}) + D_k (E-PARK-03). Unrolled over the items that have D > 0: the largest of arrive_k + D_k + ... +
    D_last, and with prefix sums A of transfers and U of unpacking (A_{k+1} - A_start) + (U_stop - U_k): a running
    maximum of A_{k+1} - U_k along the row of each start.
    """
    arrived, unpacked = prefix(items.weights + items.caches), prefix(items.unpack_weights + items.unpack_caches)
    behind_weights = np.where(items.unpack_weights > 0, arrived[:-1] + items.weights - unpacked[:-1], -np.inf)
    waited = unpacked[:-1] + items.unpack_weights
    behind_caches = np.where(items.unpack_caches > 0, arrived[1:] - waited, -np.inf)
    latest = _range_max(np.maximum(behind_weights, behind_caches))[start, stop]
    return np.where(np.isinf(latest), 0.0, unpacked[stop] - arrived[start] + latest)


def prefix(values: Seconds) -> Seconds:
    """Sums of the first 0..n values."""
    sums = np.zeros(len(values) + 1)
    np.cumsum(values, out=sums[1:])
    return sums


def _range_max(values: Seconds) -> Seconds:
    """The largest of values[i:j] for every i and j; -inf for an empty range."""
    n = len(values)
    rows = np.full((n + 1, n + 1), -np.inf)
    np.copyto(rows[:n, 1:], values, where=~np.tri(n, k=-1, dtype=np.bool_))
    np.maximum.accumulate(rows, axis=1, out=rows)
    return rows


def _unpack_batches(section: Section, batches: int) -> Seconds:
    """When the last batch is unpacked: each later batch's KV starts to move when the section before it has ended."""
    first = np.maximum(section.weights + section.caches, section.ready)
    transfer = np.maximum(section.caches, section.caches_ready)
    later = first + (batches - 1) * section.accelerator + (batches - 2) * transfer + section.caches_ready
    return np.where(section.caches_ready > 0, later, section.ready)


def _link_period(section: Section, batches: int) -> Seconds:
    """nK + (n-1)G + max(W, G), or W where no KV moves."""
    last = np.maximum(section.weights, section.accelerator)
    resident = batches * section.caches + (batches - 1) * section.accelerator + last
    return np.where(section.caches_move, resident, section.weights)


def _unpack_period(section: Section, batches: int) -> Seconds:
    """Return the period of the cycle with unpacking, 0 where nothing is compressed.

    From the moment the last batch's KV starts to move (both lanes idle then): the next weights follow on the link
    and unpack behind that KV; the next layer's first KV follows both the weights and the last section, and its
    section waits for everything to be unpacked; n - 2 more batches close the cycle.
    """
    transfer = np.maximum(section.caches, section.caches_ready)
    moving = np.maximum(section.caches + section.weights, transfer + section.accelerator)
    unpacked = np.maximum(section.caches + section.weights_ready, section.caches_ready + section.weights_work)
    first = np.maximum(moving + transfer, unpacked + section.caches_work)
    resident = first + section.accelerator + (batches - 2) * (transfer + section.accelerator)
    period = np.where(section.caches_move, resident, section.weights_ready)
    return np.where(section.weights_ready + section.caches_ready > 0, period, 0.0)


def _longest(first: Seconds, *others: Seconds) -> Seconds:
    longest = first
    for lane in others:
        longest = np.maximum(longest, lane)
    return longest
