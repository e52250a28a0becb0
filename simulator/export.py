"""Chrome/Perfetto timeline of spans: one lane per resource; iteration > block > operation nest in each lane."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from helmsman.schemas.trace import Span
from helmsman.simulator.trace_events import (
    DEFAULT_LIMIT,
    RESERVED,
    Event,
    counter,
    document_text,
    event_text,
    nanoseconds,
    process_name,
)

_GIGA = 1e9


def timeline_json(spans: Iterable[Span], lanes: Sequence[str], title: str, limit: int = DEFAULT_LIMIT) -> str:
    """Return the timeline of `spans` as Trace Event JSON of at most `limit` bytes (it is ASCII), the same every time.

    Lanes appear in the order of `lanes`, others after them by name; those that move or read anything have a counter of
    GB/s. What does not fit is dropped by whole iterations from the end; `otherData` says how many were written and how
    many dropped."""
    ordered = sorted(spans, key=lambda span: (span.run, span.iteration, span.start_s, span.end_s))
    runs = sorted({span.run for span in ordered})
    names = [*lanes, *sorted({span.resource for span in ordered} - set(lanes))]
    threads = {lane: number for number, lane in enumerate(names, 1)}
    parts = [event_text(event) for run in runs for event in _naming(run, threads, title)]
    room = limit - RESERVED - len(event_text({title: 0})) - sum(len(part) + 2 for part in parts)
    written = dropped = 0
    for _, group in groupby(ordered, key=attrgetter("run", "iteration")):
        chunk = ",\n".join(map(event_text, _iteration(list(group), threads)))
        room -= len(chunk) + 2
        if dropped or room < 0:
            dropped += 1
        else:
            parts.append(chunk)
            written += 1
    head = {"title": title, "iterations_written": written, "iterations_dropped": dropped}
    return document_text(head, parts)


def _naming(run: int, threads: dict[str, int], title: str) -> Iterator[Event]:
    """Yield names and order of a run's process and lanes."""
    pid = run + 1
    yield process_name(pid, f"{title}, run {run}")
    for lane, tid in threads.items():
        yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": lane}}
        yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}


def _iteration(spans: list[Span], threads: dict[str, int]) -> Iterator[Event]:
    """Yield the events of one iteration, lane by lane, parents before children."""
    for lane, tid in threads.items():
        mine = [span for span in spans if span.resource == lane]
        if not mine:
            continue
        first = mine[0]
        name = first.phase if first.phase == "prefill" else f"{first.phase} {first.iteration}"
        yield _event(name, mine, tid, {"iteration": first.iteration})
        for layer, block in groupby(mine, key=attrgetter("layer")):
            yield from _block(layer, list(block), tid)
        yield from _rates(lane, mine)


def _block(layer: int, spans: list[Span], tid: int) -> Iterator[Event]:
    """Yield one visit to a block: an event around its operations; outside blocks the operations alone."""
    if layer >= 0:
        yield _event(f"block {layer}", spans, tid, {"layer": layer})
    for span in spans:
        yield _event(span.op, [span], tid, {"task": span.task, "bytes": span.bytes, "flops": span.flops})


def _rates(lane: str, spans: list[Span]) -> Iterator[Event]:
    """Yield how many GB/s a lane moves or reads while it does, and 0 where it rests."""
    until = None
    for span in spans:
        start, end = nanoseconds(span.start_s), nanoseconds(span.end_s)
        if not span.bytes or start == end:
            continue
        if until is not None and until < start:
            yield counter(span.run + 1, f"{lane} GB/s", until, {"GB/s": 0.0})
        rate = span.bytes / (span.end_s - span.start_s) / _GIGA
        yield counter(span.run + 1, f"{lane} GB/s", start, {"GB/s": float(f"{rate:.4g}")})
        until = end
    if until is not None:
        yield counter(spans[0].run + 1, f"{lane} GB/s", until, {"GB/s": 0.0})


def _event(name: str, spans: list[Span], tid: int, args: dict[str, Any]) -> Event:
    """Return a complete event from the first start to the last end, in microseconds with three decimals."""
    start = nanoseconds(min(span.start_s for span in spans))
    end = nanoseconds(max(span.end_s for span in spans))
    times = {"ts": start / 1000, "dur": (end - start) / 1000}
    return {"ph": "X", "pid": spans[0].run + 1, "tid": tid, "name": name, **times, "args": args}
