"""The questions of a study, one for every combination of its lists, in order."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from math import prod
from typing import TypeVar

from helmsman.hwdb.edits import AS_IT_IS, check_edit
from helmsman.planner.registry import engine_strategies
from helmsman.schemas.errors import UsageError
from helmsman.schemas.plan_question import ComposedMachine, Value
from helmsman.schemas.ranges import MOST_VALUES, is_range, values_of
from helmsman.schemas.study import Study, StudyServing
from helmsman.schemas.units import parse_bytes, parse_capacity

_UNITS = (("TB", 10**12), ("TiB", 2**40), ("GB", 10**9), ("GiB", 2**30), ("MB", 10**6), ("MiB", 2**20), ("KB", 10**3))
_CAPACITIES = (("TB", 2**40), ("GB", 2**30), ("MB", 2**20), ("KB", 2**10))
"""Units of capacities of memories, as `parse_capacity` reads them."""
_BINARY = tuple((f"{unit[0]}iB", size) for unit, size in _CAPACITIES)
"""The names of the same units where a range is written in them."""
_MOST_DIGITS = 12
"""Digits of a whole number in a range."""

Machine = str | ComposedMachine
EntryT = TypeVar("EntryT")


@dataclass(frozen=True, slots=True)
class ServedPoint:
    """Describes the load that a question serves, under a `policy`; None: nobody, no target, or nobody who thinks."""

    policy: str | None = None
    requests: str | None = None
    target_rate: float | None = None
    target_users: int | None = None
    think: str | None = None


@dataclass(frozen=True, slots=True)
class StudyPoint:
    """One question: `change` of the machine, `method`: a strategy and its options; None: the default of the format or
    the context, or no SLO; `prices`: the name of those by which its answer is judged."""

    model: str
    machine: Machine
    change: str
    format: str | None
    kv_format: str
    method: "StudyMethod"
    objective: str
    prompt_tokens: int
    output_tokens: int
    context: int | None
    batch: int
    slo: str | None
    served: ServedPoint
    prices: str

    @property
    def planned(self) -> "StudyPoint":
        """Return the same question for its plan alone."""
        return replace(self, slo=None, served=ServedPoint(), prices="")

    @property
    def stated(self) -> dict[str, object]:
        """Return what `planned` states by field, as JSON has it, but for the machine."""
        entries = {name: getattr(self, name) for name in _PLAIN_FIELDS}
        return {**entries, **_UNSERVED, "method": {"strategy": self.method.strategy, "options": self.method.options}}


_UNSERVED: dict[str, object] = {"slo": None, "served": asdict(ServedPoint()), "prices": ""}
"""The fields of a question for its plan alone that say nothing."""

_PLAIN_FIELDS = tuple(field.name for field in fields(StudyPoint) if field.name not in {*_UNSERVED, "method", "machine"})


@dataclass(frozen=True, slots=True)
class StudyMethod:
    """A strategy and some of its options, by name; `engine`: whose speed is predicted, None: our own."""

    strategy: str
    options: tuple[tuple[str, Value], ...] = ()
    engine: str | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """The lists of a study with their ranges filled in, in the order of the fields of a point."""

    models: tuple[str, ...]
    machines: tuple[Machine, ...]
    changes: tuple[str, ...]
    formats: tuple[str | None, ...]
    kv_formats: tuple[str, ...]
    methods: tuple[StudyMethod, ...]
    objectives: tuple[str, ...]
    prompt_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]
    contexts: tuple[int | None, ...]
    batches: tuple[int, ...]
    slos: tuple[str | None, ...]
    served: tuple[ServedPoint, ...]
    prices: tuple[str, ...]

    def __len__(self) -> int:
        return prod(len(getattr(self, field.name)) for field in fields(self))

    @property
    def scenarios(self) -> int:
        """Return the number of combinations of circumstances."""
        served = {replace(point, policy=None) for point in self.served}
        lists = (self.prompt_tokens, self.output_tokens, self.contexts, self.slos, served, self.prices)
        return prod(map(len, lists))

    def points(self) -> Iterator[StudyPoint]:
        """Yield every question; neighbours share what comes first in a point."""
        lists = (getattr(self, field.name) for field in fields(self))
        yield from (StudyPoint(*entries) for entries in product(*lists))


def grid_of(study: Study) -> Grid:
    """Return the lists of a study, each entry once; machines are always asked as they are, too. Raises UsageError for
    ranges and changes that are none."""
    return Grid(
        models=_once(study.models),
        machines=_once(study.machines),
        changes=_once((AS_IT_IS, *(change for text in study.changes for change in _changes(text)))),
        formats=_once(study.formats) or (None,),
        kv_formats=_once(study.kv_formats),
        methods=_once(
            method
            for engine in study.engines or (None,)
            for strategy in engine_strategies(engine, study.strategies)
            for method in _methods(study, strategy, engine)
        ),
        objectives=_once(study.objectives),
        prompt_tokens=_counts(study.prompt_tokens, "prompt_tokens"),
        output_tokens=_counts(study.output_tokens, "output_tokens"),
        contexts=_counts(study.contexts, "contexts") or (None,),
        batches=_counts(study.batches, "batches"),
        slos=_once(study.slo) or (None,),
        served=(ServedPoint(),) if study.serving is None else _served(study.serving),
        prices=_once(prices.name for prices in study.prices),
    )


def _methods(study: Study, strategy: str, engine: str | None) -> Iterator[StudyMethod]:
    """Yield a strategy with every combination of its options."""
    options = study.options.get(strategy, {})
    values = [entry if isinstance(entry, tuple) else (entry,) for entry in options.values()]
    for chosen in product(*map(_once, values)):
        yield StudyMethod(strategy, tuple(zip(options, chosen, strict=True)), engine)


def _served(serving: StudyServing) -> tuple[ServedPoint, ...]:
    rates = [value for entry in serving.rate for value in _rates(entry)]
    users = _counts(serving.users, "serving.users")
    lists = (
        _once(serving.policies),
        _once(serving.requests),
        _once(rates) or (None,),
        users or (None,),
        _once(serving.think) or (None,),
    )
    return tuple(ServedPoint(*entries) for entries in product(*lists))


def _rates(entry: float | str) -> tuple[float, ...]:
    return values_of(entry, float, "serving.rate") if isinstance(entry, str) else (entry,)


def _once(entries: Iterable[EntryT]) -> tuple[EntryT, ...]:
    return tuple(dict.fromkeys(entries))


def _counts(entries: tuple[int | str, ...], field: str) -> tuple[int, ...]:
    """Return whole numbers and those that ranges stand for."""
    listed: list[int] = []
    for entry in entries:
        listed += [entry] if isinstance(entry, int) else values_of(entry, lambda text: _whole(text, field), field)
    return _once(listed)


def _whole(text: str, field: str) -> int:
    if not text.strip().isdecimal():
        raise UsageError("not a whole number", field=field, value=text, remedy="write for example 512..4096/512")
    if len(text) > _MOST_DIGITS:
        raise UsageError(f"more than {_MOST_DIGITS} digits", field=field, value=text, remedy="use a smaller number")
    return int(text)


def _changes(text: str) -> Iterator[str]:
    """Yield the changes that a text with ranges stands for. Raises UsageError."""
    choices = [tuple(_values(item.strip())) for item in text.split(",")]
    if prod(map(len, choices)) > MOST_VALUES:
        raise UsageError(f"more than {MOST_VALUES} changes", field="changes", value=text, remedy="use larger steps")
    for items in product(*choices):
        change = ",".join(items)
        check_edit(change)
        yield change


def _values(item: str) -> Iterator[str]:
    """Yield the edits that one with a range stands for. Raises UsageError."""
    name, _, value = (part.strip() for part in item.partition("="))
    if not is_range(value):
        yield f"{name}={value}" if value else item
        return
    try:
        if value[:1] in "xX":
            yield from (f"{name}=x{factor:g}" for factor in values_of(value.replace("x", ""), float, "changes"))
        else:
            unit = "/s" if value.endswith("/s") else ""
            capacities = _BINARY if "ib" in value.lower() else _CAPACITIES
            parse, units = (parse_bytes, _UNITS) if unit else (parse_capacity, capacities)
            sizes = values_of(value, lambda text: float(parse(text.removesuffix("/s"), "changes")), "changes")
            yield from (f"{name}={_size_text(size, units)}{unit}" for size in sizes)
    except UsageError as error:
        error.value = item
        raise


def _size_text(size: float, units: Sequence[tuple[str, int]]) -> str:
    """Return bytes in the largest unit of which they are a whole number."""
    for unit, step in units:
        if size % step == 0:
            return f"{size / step:.0f}{unit}"
    return f"{size:.0f}B"
