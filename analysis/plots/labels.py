"""Which labels of a Gantt chart have room, and where: in their block, upright in it, or in the gap beside it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

from helmsman.analysis.plots.blocks import ChartSpan

SIZE = 7.5
"""Points."""
SPACING = 1.05
_PAD = 5.0
"""Pixels between a label and what is around it, 150 to the inch."""
_SLACK = 1.04
"""Letters drawn as outlines are a little wider than those drawn in pixels."""
_NEAR = 12.0
"""Pixels between blocks that are named together."""

Size = Callable[[str, int], tuple[float, float]]
"""(text, degrees) -> pixels wide and high."""


@dataclass(frozen=True, slots=True)
class LabelRoom:
    """The room that labels of a track may fill: pixels per second, pixels high, seconds of the chart."""

    scale: float
    height: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Label:
    """A text centred at `at` seconds, turned by so many degrees; `block` is what it is written on, None for a gap."""

    text: str
    at: float
    turned: int
    block: ChartSpan | None


def placed(track: Sequence[ChartSpan], room: LabelRoom, size: Size) -> Iterator[Label]:
    """Yield the labels of one track that fit; no two of them overlap, and none leaves its block or its gap."""
    inner = [_inside(block, room, size) for block in track]
    free, labels = _gaps(track, room), list[Label]()
    waiting: int | None = None
    for first, last in list(_runs(track, inner, room)):
        joins = waiting is not None and all(
            label is None and block.layer == track[last].layer
            for label, block in zip(inner[waiting:last], track[waiting:last], strict=True)
        )
        begin = waiting if joins and waiting is not None else first
        label = _named(track, begin, last, free, room, size) or _named(track, first, last, free, room, size)
        label = label or _with_neighbours(track, (first, last), inner, free, room, size)
        waiting = begin if label is None else None
        labels += [] if label is None else [label]
    yield from (label for label in inner if label is not None)
    yield from labels


def _with_neighbours(
    track: Sequence[ChartSpan],
    run: tuple[int, int],
    inner: list[Label | None],
    free: list[tuple[float, float]],
    room: LabelRoom,
    size: Size,
) -> Label | None:
    """Return the names of a run that has no gap beside it, together with those of blocks next to it that are named
    upright: these give up their own labels."""
    first, last = run
    for begin, end in ((first, last + 1), (first - 1, last), (first - 1, last + 1)):
        joined = [place for place in (begin, end) if not first <= place <= last]
        if begin < 0 or end == len(track) or not all(_joins(track, place, run, inner[place], room) for place in joined):
            continue
        if label := _named(track, begin, end, free, room, size):
            inner[begin : end + 1] = [None] * (end + 1 - begin)
            return label
    return None


def _joins(track: Sequence[ChartSpan], place: int, run: tuple[int, int], label: Label | None, room: LabelRoom) -> bool:
    """Whether the block at `place`, just before or after a run, is named upright, near and of the same layer."""
    near = (track[place], track[run[0]]) if place < run[0] else (track[run[1]], track[place])
    return label is not None and label.turned == 90 and not _apart(*near, room)


def _named(
    track: Sequence[ChartSpan], first: int, last: int, free: list[tuple[float, float]], room: LabelRoom, size: Size
) -> Label | None:
    """Return the names of a run of narrow blocks behind it or before it; takes the gap from `free`."""
    for text in _names(track[first : last + 1]):
        for gap, side in ((last + 1, "right"), (first, "left")):
            if beside := _beside(text, free[gap], side, room, size):
                label, free[gap] = beside
                return label
    return None


def _inside(block: ChartSpan, room: LabelRoom, size: Size) -> Label | None:
    left, right = max(block.start, 0.0), min(block.end, room.seconds)
    for text, turned in _wordings(block):
        width, height = size(text, turned)
        if width * _SLACK + _PAD <= (right - left) * room.scale and height + _PAD <= room.height:
            return Label(text, (left + right) / 2, turned, block)
    return None


def _wordings(block: ChartSpan) -> Iterator[tuple[str, int]]:
    """(text, degrees) that would do for a block, best first; what is of another layer always says of which."""
    chunk = f"{block.chunk[0]}–{block.chunk[1]}" if block.chunk else ""
    batch = "" if block.batch is None else f"b{block.batch}"
    layer = "" if block.inside or block.layer < 0 else f"layer {block.layer}"
    for extras in ((chunk, batch, layer), (batch, layer), (layer,)):
        if below := " ".join(extra for extra in extras if extra):
            yield f"{block.name}\n{below}", 0
            yield f"{block.name}\n{below.replace('layer ', 'L')}", 0
    if layer:
        yield f"{block.name}\nL{block.layer}", 90
        yield f"{block.name} L{block.layer}", 90
    else:
        yield block.name, 0
        yield block.name, 90


def _gaps(track: Sequence[ChartSpan], room: LabelRoom) -> list[tuple[float, float]]:
    """Where nothing is in the chart: before every block, and behind the last."""
    ends = [0.0, *(max(0.0, block.end) for block in track)]
    starts = [*(min(block.start, room.seconds) for block in track), room.seconds]
    return [(end, max(end, start)) for end, start in zip(ends, starts, strict=True)]


def _runs(track: Sequence[ChartSpan], inner: Sequence[Label | None], room: LabelRoom) -> Iterator[tuple[int, int]]:
    """(first, last) of blocks of one layer, close together, that have no label."""
    start = None
    for index, label in enumerate(inner):
        if label is not None:
            continue
        start = index if start is None else start
        if index + 1 == len(track) or inner[index + 1] is not None or _apart(track[index], track[index + 1], room):
            yield start, index
            start = None


def _apart(block: ChartSpan, after: ChartSpan, room: LabelRoom) -> bool:
    return block.layer != after.layer or (after.start - block.end) * room.scale > _NEAR


def _names(run: Sequence[ChartSpan]) -> Iterator[str]:
    """Return what a run of narrow blocks of one layer is, in their order, and of which batch if of one; then in
    short."""
    names = list(dict.fromkeys(block.name for block in run))
    batches = {block.batch for block in run}
    extras = [f"b{batch}" for batch in batches if batch is not None and len(batches) == 1]
    extras += [] if run[0].inside or run[0].layer < 0 else [f"L{run[0].layer}"]
    after = f" ({' '.join(extras)})" if extras else ""
    yield ", ".join(names) + after
    if len(names) > 2:
        yield f"{names[0]} … {names[-1]}{after}"


def _beside(
    text: str, gap: tuple[float, float], side: str, room: LabelRoom, size: Size
) -> tuple[Label, tuple[float, float]] | None:
    """Return the text at the near end of the gap that is on the `side` of its blocks, in one line or two; what is
    left."""
    for lines in ([text], wrap(text, max(8, len(text) // 2 + 4))):
        shown = "\n".join(lines)
        width, height = size(shown, 0)
        wide = (width * _SLACK + 2 * _PAD) / room.scale
        if len(lines) <= 2 and wide <= gap[1] - gap[0] and height + _PAD <= room.height:
            if side == "right":
                return Label(shown, gap[0] + wide / 2, 0, None), (gap[0] + wide, gap[1])
            return Label(shown, gap[1] - wide / 2, 0, None), (gap[0], gap[1] - wide)
    return None
