"""Flags of llama.cpp that say on which side weights live, by patterns over its names of tensors (`--override-tensor`),
or for all experts of the first blocks (`--n-cpu-moe`); their operations run there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from helmsman.lowering.stored_names import TensorKey
from helmsman.lowering.tensors import tensors
from helmsman.planner.machine import Roles
from helmsman.planner.settings.tensor_names import FIELD, selected_tensors
from helmsman.planner.settings.tensor_pattern import PatternError, TensorPattern, tensor_pattern
from helmsman.schemas.errors import UsageError
from helmsman.schemas.model import Model

Side = str
"""Either `HOST`, or the name of an accelerator."""

HOST: Side = "host"
"""The side of the processors."""

_LONGEST = 200
_MOST = 64
"""Rules: each is tried at every tensor."""

_BUFFERS = ("CUDA", "ROCM", "VULKAN", "SYCL", "METAL")
"""llama.cpp's buffers by their backend, before the number of a device."""


_BACKENDS = {"cuda": "CUDA", "rocm": "ROCm", "metal": "Metal", "xpu": "SYCL"}
"""llama.cpp's backends by kinds of devices."""


@dataclass(frozen=True, slots=True)
class Override:
    """The tensors that the flag `text` is about, by name and block, live on `side`."""

    text: str
    side: Side
    tensors: frozenset[TensorKey]


def overrides_of(text: str, model: Model, machine: Roles) -> tuple[Override, ...]:
    """`PATTERN=MEMORY,PATTERN=MEMORY`, the first that matches decides. Raises UsageError for a pattern that is none, or
    that no tensor of `model` matches, and for an unknown memory."""
    items = text.split(",")
    if len(items) > _MOST:
        remedy = "write one pattern for several tensors"
        raise UsageError(f"{len(items)} rules, and {_MOST} are taken", field=FIELD, value=text, remedy=remedy)
    return tuple(_override(item, model, machine) for item in items)


def experts_override(count: int, model: Model, flag: str) -> Override:
    """Return the rule that keeps the experts of the first `count` blocks on the host; `flag`: the option that says so.

    Blocks count whether or not they have experts, as llama.cpp counts. Raises UsageError for a model without experts,
    and for more blocks than it has."""
    if not model.routed:
        raise UsageError(f"{model.name} has no routed experts", field=flag, remedy="leave it out")
    if not 0 <= count <= model.layers:
        remedy = f"use 0 to {model.layers}, the blocks of {model.name}"
        raise UsageError("not a number of its blocks", field=flag, value=count, remedy=remedy)
    return Override(flag, HOST, experts_of(model, range(count)))


def experts_of(model: Model, layers: range) -> frozenset[TensorKey]:
    """Return the tensors of experts of some blocks."""
    return frozenset((t.name, t.layer) for t in tensors(model) if t.stacked and t.layer in layers)


def _override(item: str, model: Model, machine: Roles) -> Override:
    pattern, equals, memory = item.partition("=")
    if not (pattern and equals and memory) or len(pattern) > _LONGEST:
        remedy = f"write PATTERN=MEMORY, a pattern of at most {_LONGEST} characters"
        raise UsageError("not a rule for tensors", field=FIELD, value=item, remedy=remedy)
    side, chosen = _side(memory, machine), selected_tensors(_read(pattern), model)
    if not chosen:
        remedy = "write a pattern such as blk\\.[0-9]\\.ffn_.*=CPU"
        raise UsageError(f"no tensor of {model.name} matches", field=FIELD, value=pattern, remedy=remedy)
    return Override(item, side, chosen)


def _read(pattern: str) -> TensorPattern:
    try:
        return tensor_pattern(pattern)
    except PatternError as error:
        remedy = "write a regular expression of letters, classes, groups, | and * + ? {m,n}, as llama.cpp takes it"
        raise UsageError(f"not a pattern: {error}", field=FIELD, value=pattern, remedy=remedy) from None


def _side(memory: str, machine: Roles) -> Side:
    names = dict(_known(machine))
    if memory.upper() not in names:
        remedy = f"use one of {', '.join(names)}"
        raise UsageError("no memory of this machine", field=FIELD, value=memory, remedy=remedy)
    return names[memory.upper()]


def _known(machine: Roles) -> Iterator[tuple[str, Side]]:
    """Names of buffers and memories, and their sides; of a unified memory, that of the accelerator."""
    yield machine.host.memory.upper(), HOST
    yield "CPU", HOST
    for number, device in enumerate(machine.accelerators):
        for backend in _BUFFERS:
            yield f"{backend}{number}", device.name
        if number == 0:
            yield "METAL", device.name
        yield device.memory.upper(), device.name


def buffer_name(machine: Roles, side: Side) -> str:
    """Return what llama.cpp calls the buffer of a side: `CPU`, `CUDA0`."""
    if side == HOST:
        return "CPU"
    names = [device.name for device in machine.accelerators]
    backend = _BACKENDS.get(machine.hardware.device(side).kind, "CUDA")
    return backend if backend == "Metal" else f"{backend}{names.index(side)}"


@lru_cache(maxsize=64)
def overridden_sides(overrides: tuple[Override, ...]) -> Mapping[TensorKey, Side]:
    """Return where the first override that is about a tensor puts it; others are where their block is."""
    sides: dict[TensorKey, Side] = {}
    for override in reversed(overrides):
        sides |= dict.fromkeys(override.tensors, override.side)
    return sides
