"""A plan drawn in letters: a strip of its blocks by where they compute, and a bar for each memory by what fills it."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from string import ascii_lowercase, ascii_uppercase, digits

from helmsman.lowering.placement import shaped
from helmsman.planner.memory.names import memory_name
from helmsman.planner.words.block_places import BlockPlace, block_places, experts_apart
from helmsman.planner.words.expert_lines import expert_lines
from helmsman.planner.words.plan_words import device_name
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import Plan
from helmsman.schemas.predicted import MemoryUse
from helmsman.schemas.units import format_number

Paint = Callable[[str, str], str]
"""(what, text) -> the text in the colour of what it shows."""

WIDTH = 100
"""Columns of what is printed."""
INDENT = 13
"""Columns before what a line says."""
_ROW = 80
"""Blocks of a model in one row of a strip."""
_CELLS = 20
"""Letters of a bar."""
_PARTS = {"weights": "#", "kv": "=", "buffers": "+", "pinned": "%", "drafter": "?"}
"""Parts of what a memory holds, each with its letter in a bar."""
_PART_NAMES = {"kv": "KV", "pinned": "locked"}
_FREE = "-"
_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1))

_SHARED = "x"
_STREAMED = "~"
_APART = "e"
_TAKEN = {ord(letter): None for letter in (_SHARED, _APART, "C")}
_NUMBERS = (digits + ascii_lowercase + ascii_uppercase).translate(_TAKEN) + "@&$%"
"""A letter for each of as many devices of a kind as a machine may have."""
_ON_ITS_WAY = "streamed to where they compute"
_ELSEWHERE = "with experts elsewhere"
_COLOURS = {"C": "cpu", _SHARED: "shared", _APART: "shared", _STREAMED: "streamed"}
"""By letter, what is painted; others are GPUs or accelerators."""


def plain(_: str, text: str) -> str:
    """The text without colours."""
    return text


def picture(plan: Plan, paint: Paint = plain) -> Iterator[str]:
    """Yield the lines of the strip and of the bars, WIDTH columns wide at most."""
    yield from _strips(plan, paint)
    uses = [use for use in plan.predicted.memory if use.used]
    names = [memory_name(plan.hardware, use.memory) for use in uses]
    wide = max(map(len, names), default=0)
    for first, name, use in zip(_first("memory", len(uses)), names, uses, strict=True):
        yield f"{first:<{INDENT}}{name:<{wide}} {_bar(use, paint)}"


def _first(title: str, count: int) -> Sequence[str]:
    return [title, *[""] * (count - 1)][:count]


def _strips(plan: Plan, paint: Paint) -> Iterator[str]:
    """A strip for decode steps, one for prompts where it is another, and what their letters mean."""
    placed, own = shaped(plan), _letters(plan.hardware)
    phases: tuple[Phase, ...] = ("decode", "prefill")
    of_steps, of_prompts = (block_places(placed, phase) for phase in phases)
    steps, prompts = ([_letter(place, own) for place in of_phase] for of_phase in (of_steps, of_prompts))
    shown = {"blocks": steps} if steps == prompts else {"in steps": steps, "in prompts": prompts}
    for title, letters in shown.items():
        rows = ["".join(letters[start : start + _ROW]) for start in range(0, len(letters), _ROW)]
        for first, row in zip(_first(title, len(rows)), rows, strict=True):
            yield f"{first:<{INDENT}}{_painted(row, paint)}"
    legend, counted = _legend(plan), Counter(steps)
    counts = {letter: f"{counted[letter]} " if len(shown) == 1 else "" for letter in (*steps, *prompts)}
    words = (f"{_painted(letter, paint)} {count}{legend[letter]}" for letter, count in counts.items())
    yield f"{'':<{INDENT}}{', '.join(words)}"
    yield from expert_lines(plan.hardware, of_steps, of_prompts)


def _painted(row: str, paint: Paint) -> str:
    """A row of letters, neighbours that are alike in one colour."""
    return "".join(paint(_COLOURS.get(letter, "gpu"), "".join(alike)) for letter, alike in groupby(row))


def _letter(place: BlockPlace, letters: Mapping[str, str]) -> str:
    """The letter of a block: of the device that computes it, or of how devices or memories share it."""
    if experts_apart(place):
        return _APART
    if len(place.devices) > 1:
        return _SHARED
    return _STREAMED if place.streamed else letters[place.devices[0]]


def _letters(hardware: Hardware) -> Mapping[str, str]:
    """By device, the first letter of its name, or one for its number among several of a kind."""
    kinds = [device.kind for device in hardware.devices]
    return {
        device.name: device_name(hardware, device.name)[0].upper()
        if device.kind == "cpu" or kinds.count(device.kind) == 1
        else _NUMBERS[kinds[:place].count(device.kind)]
        for place, device in enumerate(hardware.devices)
    }


def _legend(plan: Plan) -> Mapping[str, str]:
    """Return the legend of letters."""
    named = {device.name: device_name(plan.hardware, device.name) for device in plan.hardware.devices}
    used = dict.fromkeys(named[rule.device] for rule in plan.compute)
    of = {letter: f"on the {named[device]}" for device, letter in _letters(plan.hardware).items()}
    return {**of, _SHARED: f"shared by {' and '.join(sorted(used))}", _STREAMED: _ON_ITS_WAY, _APART: _ELSEWHERE}


def _bar(use: MemoryUse, paint: Paint) -> str:
    """`[######==----]  6.1 of 8.0 GB: weights 4.9, KV 1.0, buffers 0.2`."""
    sizes = {name: getattr(use, name) for name in _PARTS}
    ends = [min(_CELLS, round(_CELLS * end / max(1, use.available))) for end in accumulate(sizes.values())]
    filled = (
        paint(name, letter * (end - start))
        for (name, letter), start, end in zip(_PARTS.items(), [0, *ends], ends, strict=False)
    )
    unit, scale = next((unit, scale) for unit, scale in _UNITS if max(1, use.available) >= scale)
    parts = ", ".join(
        f"{paint(name, _PART_NAMES.get(name, name))} {format_number(size / scale, 2)}"
        for name, size in sizes.items()
        if size
    )
    free = _FREE * (_CELLS - ends[-1])
    used, available = format_number(use.used / scale, 3), format_number(use.available / scale, 3)
    return f"[{''.join(filled)}{free}] {used} of {available} {unit}: {parts}"
