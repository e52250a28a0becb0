"""An assignment in one line for people."""

from collections import Counter

from helmsman.planner.strategies.optimal.block_ways import BlockWay, decided
from helmsman.planner.strategies.optimal.rules import Assignment
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.model import Model

_MOST = 200
"""Characters that a plan's label may have."""


def label(frame: Frame, chosen: Assignment) -> str:
    """`optimal 20 cpu, 12 cuda, 4 cuda<-cpu`: how many blocks run in which way, most first, as far as there is room.

    `<-`: weights come from the other side; `+KV`: so do keys and values; in brackets what a side has of a block, where
    both work on it; `cpu|cuda` share the rows of an operation."""
    counts = Counter(named(frame, way) for way in chosen.blocks).most_common()
    shown = [f"{count} {name}" for name, count in counts]
    texts = (_text(shown[:many], sum(count for _, count in counts[many:])) for many in range(len(shown), -1, -1))
    return next(text for text in texts if len(text) <= _MOST)


def _text(shown: list[str], others: int) -> str:
    return f"optimal {', '.join([*shown, *([f'{others} others'] if others else [])])}"


def named(frame: Frame, way: BlockWay) -> str:
    """One way."""
    host = frame.roles.host.kind
    if set(way.parts) == {"host"}:
        return host if way.prompt == "alike" else f"{host} (prompts {_coming(frame, way)})"
    away = _accelerator(frame, way)
    names = {"host": host, "both": f"{host}|{away}", "accelerator": _coming(frame, way)}
    if set(way.parts) == {"accelerator"}:
        return names["accelerator"]
    sides = {part: f"{names[part]}[{_ops(frame.model, way, part)}]" for part in dict.fromkeys(way.parts)}
    return " ".join(sides.values())


def _coming(frame: Frame, way: BlockWay) -> str:
    """The accelerator, and what comes to it."""
    host, away = frame.roles.host.kind, _accelerator(frame, way)
    what = "" if not way.weights_come and way.prompt == "alike" else f"<-{host}"
    return f"{away}{what}{'+KV' if way.cache_comes else ''}"


def _accelerator(frame: Frame, way: BlockWay) -> str:
    """What an accelerator is called: by its name where there are several."""
    return frame.roles.accelerators[way.on].name if frame.roles.others else frame.accelerator.kind


def _ops(model: Model, way: BlockWay, part: str) -> str:
    return ",".join(op for op, mine in zip(decided(model), way.parts, strict=True) if mine == part)
