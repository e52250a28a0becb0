"""Lists what may be named, each with a line about it."""

from collections.abc import Callable, Iterable, Iterator

from helmsman.analysis.comparison_table import cut
from helmsman.hwdb.catalogue import read_catalogue
from helmsman.hwdb.load_hardware import load_hardware, system_names
from helmsman.hwdb.load_model import catalogue_names, load_model
from helmsman.lowering.mix_rules import MIXES
from helmsman.lowering.tensors import active_parameters, parameters
from helmsman.planner.registry import ENGINES, OURS, RECOMMENDED, method, names
from helmsman.scheduler.policies import policy_names, policy_options
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import NAMED_MIXES, STORED_FORMATS, is_plain, size_of
from helmsman.schemas.listing import Entry, Kind, Listing
from helmsman.schemas.units import format_bytes, format_rate

_VALUES = 1 << 16
"""Of a matrix whose size tells the bits of a value."""
_MOST_LETTERS = 1000
"""Of what is said of a name."""


def listing(kind: Kind) -> Listing:
    """Return all names of a kind. Raises UsageError for a kind that there is not."""
    if kind not in KINDS:
        raise UsageError("no such kind", field="kind", value=kind, remedy=f"use {', '.join(KINDS)}")
    entries = tuple(Entry(name=name, about=about) for name, about in KINDS[kind]())
    return Listing(kind=kind, entries=entries)


def _models() -> Iterator[tuple[str, str]]:
    for name in catalogue_names():
        model = load_model(name)
        count = parameters(model)
        active = f" ({active_parameters(model) / count:.0%} active)" if model.routed else ""
        size = format_bytes(size_of(count, "f16"))
        yield name, f"{model.layers} layers, {size} in f16{active}, context {model.max_context}"


def _machines() -> Iterator[tuple[str, str]]:
    for name in system_names():
        machine = load_hardware(name, None)
        parts = [f"{device.product or device.kind}" for device in machine.devices]
        memories = [f"{memory.name} {format_bytes(memory.capacity)}" for memory in machine.memories]
        yield name, f"{', '.join(parts)}; {', '.join(memories)}"


def _gpus() -> Iterator[tuple[str, str]]:
    for row in read_catalogue("gpus")["gpus"]:
        yield row["name"], f"{format_bytes(row['capacity'])} at {format_rate(row['bandwidth'])}"


def _cpus() -> Iterator[tuple[str, str]]:
    for row in read_catalogue("cpus")["cpus"]:
        cores = sum(count for count, _ in row["pipes"])
        yield row["name"], f"{cores} cores, {row['channels']} channels of {row['memory']}"


def _engines() -> Iterator[tuple[str, str]]:
    yield OURS, "Helm's own executor, or whatever engine can carry out the plan that is fastest there"
    for name, strategy in ENGINES.items():
        if name != OURS:
            yield name, cut(f"plans of {strategy}: {method(strategy).summary}", _MOST_LETTERS)


def _strategies() -> Iterator[tuple[str, str]]:
    return _told((RECOMMENDED, *names()), lambda name: method(name).summary)


def _policies() -> Iterator[tuple[str, str]]:
    return _told(policy_names(), lambda name: policy_options(name).help)


def _told(known: Iterable[str], about: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """Yield names with what is said of each: of one whose package is broken, what is wrong with it."""
    for name in known:
        try:
            told = str(about(name))
        except UsageError as error:
            told = f"of no use: {error}"
        yield name, cut(told, _MOST_LETTERS)


def _formats() -> Iterator[tuple[str, str]]:
    for fmt in STORED_FORMATS:
        kind = "values" if is_plain(fmt) else "codes with scales"
        yield fmt, f"{8 * size_of(_VALUES, fmt) / _VALUES:.4g} bits a weight, {kind}"
    for mix in NAMED_MIXES:
        base = MIXES[mix].base
        least = 8 * size_of(_VALUES, base) / _VALUES
        yield (
            mix,
            f"{least:.4g} bits a weight and more: {base}, and what llama.cpp's files have beside",
        )


KINDS: dict[Kind, Callable[[], Iterator[tuple[str, str]]]] = {
    "models": _models,
    "machines": _machines,
    "gpus": _gpus,
    "cpus": _cpus,
    "engines": _engines,
    "strategies": _strategies,
    "policies": _policies,
    "formats": _formats,
}
