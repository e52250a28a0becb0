"""Chrome/Perfetto timeline of spans: one lane per resource; iteration > block > operation nest in each lane."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from helmsman.schemas.trace import Span

DEFAULT_LIMIT = 16 * 2**20
_NANOSECONDS = 1e9
_RESERVED = 1024


def timeline_json(spans: Iterable[Span], lanes: Sequence[str], title: str, limit: int = DEFAULT_LIMIT) -> str:
    """Return the timeline of `spans` as Trace Event JSON of at most `limit` bytes (it is ASCII), the same every time.

    Lanes appear in the order of `lanes`, others after them by name. What does not fit is dropped by whole
    iterations from the end; `otherData` says how many were written and how many dropped."""
    ordered = sorted(spans, key=lambda span: (span.run, span.iteration, span.start_s, span.end_s))
    runs = sorted({span.run for span in ordered})
    names = [*lanes, *sorted({span.resource for span in ordered} - set(lanes))]
    threads = {lane: number for number, lane in enumerate(names, 1)}
    parts = [_text(event) for run in runs for event in _naming(run, threads, title)]
    room = limit - _RESERVED - len(_text({title: 0})) - sum(len(part) + 2 for part in parts)
    written = dropped = 0
    for _, group in groupby(ordered, key=attrgetter("run", "iteration")):
        chunk = ",\n".join(_text(event) for event in _iteration(list(group), threads))
        room -= len(chunk) + 2
        if dropped or room < 0:
            dropped += 1
        else:
            parts.append(chunk)
            written += 1
    head = {"title": title, "iterations_written": written, "iterations_dropped": dropped}
    opening = f'{{"displayTimeUnit":"ms","otherData":{_text(head)},"traceEvents":[\n'
    return opening + ",\n".join(parts) + "\n]}\n"


def _naming(run: int, threads: dict[str, int], title: str) -> Iterator[dict[str, Any]]:
    """Yield names and order of a run's process and lanes."""
    pid = run + 1
    yield {"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": f"{title}, run {run}"}}
    for lane, tid in threads.items():
        yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": lane}}
        yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}


def _iteration(spans: list[Span], threads: dict[str, int]) -> Iterator[dict[str, Any]]:
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


def _block(layer: int, spans: list[Span], tid: int) -> Iterator[dict[str, Any]]:
    """Yield one visit to a block: an event around its operations; outside blocks the operations alone."""
    if layer >= 0:
        yield _event(f"block {layer}", spans, tid, {"layer": layer})
    for span in spans:
        yield _event(span.op, [span], tid, {"task": span.task, "bytes": span.bytes, "flops": span.flops})


def _event(name: str, spans: list[Span], tid: int, args: dict[str, Any]) -> dict[str, Any]:
    """Return a complete event from the first start to the last end, in microseconds with three decimals.

    Both ends are rounded to whole nanoseconds, which keeps what nested nested and what touched touching."""
    start = round(min(span.start_s for span in spans) * _NANOSECONDS)
    end = round(max(span.end_s for span in spans) * _NANOSECONDS)
    times = {"ts": start / 1000, "dur": (end - start) / 1000}
    return {"ph": "X", "pid": spans[0].run + 1, "tid": tid, "name": name, **times, "args": args}


def _text(content: dict[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"), allow_nan=False)
