"""An assignment in one line for people, and what tells it from others of the same label."""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from helmsman.planner.strategies.optimal.configurations.block_ways import BlockWay, decided
from helmsman.planner.strategies.optimal.configurations.rules import Assignment
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.model import Model

_GROUPS = ":q4"
"""After what is in 4-bit groups."""

_MOST = 200
"""Characters that a plan's label may have."""


def label(frame: Frame, chosen: Assignment) -> str:
    """`optimal 20 cpu, 12 cuda, 4 cuda<-cpu`: how many blocks run in which way, most first, as far as there is room.

    `<-`: weights come from the other side, or from another memory (in brackets which); `+KV`: so do keys and values;
    `:q4`: in 4-bit groups; in brackets what a side has of a block, where both work on it; `cpu|cuda` share the rows of
    an operation."""
    counts = Counter(named(frame, way) for way in chosen.blocks).most_common()
    shown = [f"{count} {name}" for name, count in counts]
    texts = (_text(shown[:many], sum(count for _, count in counts[many:])) for many in range(len(shown), -1, -1))
    return next(text for text in texts if len(text) <= _MOST)


FramedAssignment = tuple[Frame, Assignment]
"""An assignment, and the question that it is about."""


def contents(frame: Frame, chosen: Assignment) -> Hashable:
    """Return what is equal for assignments that differ in the order of their blocks alone."""
    return frozenset(Counter(chosen.blocks).items()), chosen.embedding, chosen.output, frame.roles.host.name


def told_apart(every: Sequence[FramedAssignment]) -> Iterator[str]:
    """Their labels, in parentheses what tells each from the first of the same label."""
    firsts: dict[str, FramedAssignment] = {}
    for question in every:
        text = label(*question)
        first = firsts.setdefault(text, question)
        yield text if question is first else f"{text} ({', '.join(_differences(first, question))})"


def _differences(first: FramedAssignment, other: FramedAssignment) -> Iterator[str]:
    (frame, one), (_, two) = first, other
    for what, mine, its in (("embedding", one.embedding, two.embedding), ("output", one.output, two.output)):
        if mine != its:
            yield f"{what} on the {its if isinstance(its, str) else frame.roles.accelerators[its].name}"
    here, there = Counter(one.blocks), Counter(two.blocks)
    yield from (f"{count} more {_exactly(frame, way)}" for way, count in (there - here).items())
    if other[0].roles.host != frame.roles.host:
        yield f"on {other[0].roles.host.name}"


def _exactly(frame: Frame, way: BlockWay) -> str:
    """One way, with the weights that come."""
    pairs = zip(decided(frame.model), way.parts, way.resident, strict=True)
    coming = [op for op, part, here in pairs if part != "host" and not here and op != "attention"]
    away = _accelerator(frame, way)
    prompts = {"alike": "", "accelerator": f", prompts on {away}", "divided": ", prompts divided"}[way.prompt]
    weights = f", {' '.join(coming)} coming" if coming else ""
    return f"{named(frame, way)}{weights}{prompts}"


def _text(shown: list[str], others: int) -> str:
    return f"optimal {', '.join([*shown, *([f'{others} others'] if others else [])])}"


def named(frame: Frame, way: BlockWay) -> str:
    """One way."""
    host = frame.roles.host.kind
    if way.alone:
        return host
    away = _accelerator(frame, way)
    if set(way.parts) == {"host"}:
        return f"{host} (prompts {f'{host}|{away}' if way.prompt == 'divided' else _coming(frame, way)})"
    groups = _GROUPS * ("coming" in way.q4 and way.rows_come)
    names = {"host": host, "both": f"{host}|{away}{groups}", "accelerator": _coming(frame, way)}
    if set(way.parts) == {"accelerator"}:
        return names["accelerator"]
    sides = {part: f"{names[part]}[{_ops(frame.model, way, part)}]" for part in dict.fromkeys(way.parts)}
    prompts = [] if way.prompt != "accelerator" or frame.roles.separate else [f"(prompts {away})"]
    return " ".join([*sides.values(), *prompts])


def _coming(frame: Frame, way: BlockWay) -> str:
    """The accelerator, and what comes to it."""
    host, away = frame.roles.host.kind, _accelerator(frame, way)
    prompts_come = way.prompt != "alike" and not way.stored and frame.roles.separate
    homes: list[str] = [host] if way.others_come or prompts_come else []
    homes += [_stored(frame, way)] if way.stored else []
    what = f"{'<-' if homes else ''}{'+'.join(homes)}{_GROUPS * ('coming' in way.q4)}"
    caches = f"{'+KV' if way.cache_comes else ''}{_GROUPS * ('cache' in way.q4)}"
    return f"{away}{_GROUPS * ('resident' in way.q4)}{what}{caches}"


def _stored(frame: Frame, way: BlockWay) -> str:
    """The kind of the store, and what comes from there where other weights of the accelerator come from host memory."""
    ops, store = decided(frame.model), frame.store
    assert store is not None
    kind = frame.roles.hardware.memory(store.memories[0]).kind
    return f"{kind}[{','.join(ops[k] for k in way.stored)}]" if way.others_come else kind


def _accelerator(frame: Frame, way: BlockWay) -> str:
    """Return what an accelerator is called: by its name where there are several."""
    return frame.roles.accelerators[way.on].name if frame.roles.others else frame.accelerator.kind


def _ops(model: Model, way: BlockWay, part: str) -> str:
    return ",".join(op for op, mine in zip(decided(model), way.parts, strict=True) if mine == part)
