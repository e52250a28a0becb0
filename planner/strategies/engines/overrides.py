"""`--override-tensor`: patterns over llama.cpp's names of tensors say on which side a weight lives, and its operation
runs there."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import tensors
from helmsman.planner.machine import Roles
from helmsman.planner.strategies.engines.tensor_pattern import PatternError, tensor_pattern
from helmsman.schemas.errors import UsageError
from helmsman.schemas.model import Model

Side = Literal["host", "accelerator"]
SIDES: tuple[Side, ...] = ("host", "accelerator")

FIELD = "override_tensor"
_LONGEST = 200
_MOST = 64
"""Rules: each is tried at every tensor."""
_BUFFERS: dict[str, Side] = {"CPU": "host", **dict.fromkeys(("CUDA0", "ROCM0", "VULKAN0", "METAL"), "accelerator")}
"""llama.cpp's buffer types; names of the machine's memories do as well."""

_NAMES = {
    "embedding": "token_embd",
    "positions": "position_embd",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "o": "attn_output",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
    "norm1": "attn_norm",
    "norm2": "ffn_norm",
    "final_norm": "output_norm",
    "head": "output",
}


@dataclass(frozen=True, slots=True)
class Override:
    """Tensors in whose name `pattern` is found, those with `names`, live on `side`."""

    pattern: str
    side: Side
    names: frozenset[str]

    def covers(self, tensor: Tensor, layer: int | None) -> bool:
        """Whether it is about `tensor` of block `layer`."""
        return gguf_name(tensor, layer) in self.names


def gguf_name(tensor: Tensor, layer: int | None) -> str:
    """Return what llama.cpp calls a tensor: `blk.3.attn_q.weight`, `output.weight`."""
    op, _, part = tensor.name.partition(".")
    name = f"{_NAMES[op]}.{part}"
    return name if layer is None else f"blk.{layer}.{name}"


def overrides_of(text: str, model: Model, machine: Roles) -> tuple[Override, ...]:
    """`PATTERN=MEMORY,PATTERN=MEMORY`, the first that matches decides. Raises UsageError for a pattern that is none, or
    that no tensor of `model` matches, and for an unknown memory."""
    if not model.is_dense:
        problem, remedy = f"{model.name} is not made of equal dense blocks", "leave it out, or use expert-split"
        raise UsageError(problem, field=FIELD, value=text, remedy=remedy)
    items = text.split(",")
    if len(items) > _MOST:
        remedy = "write one pattern for several tensors"
        raise UsageError(f"{len(items)} rules, and {_MOST} are taken", field=FIELD, value=text, remedy=remedy)
    names = {gguf_name(tensor, tensor.layer) for tensor in tensors(model)}
    overrides = tuple(_override(item, names, machine) for item in items)
    for override in overrides:
        if not override.names:
            remedy = "write a pattern such as blk\\.[0-9]\\.ffn_.*=CPU"
            raise UsageError(f"no tensor of {model.name} matches", field=FIELD, value=override.pattern, remedy=remedy)
    return overrides


def _override(item: str, names: set[str], machine: Roles) -> Override:
    pattern, equals, memory = item.partition("=")
    if not (pattern and equals and memory) or len(pattern) > _LONGEST:
        remedy = f"write PATTERN=MEMORY, a pattern of at most {_LONGEST} characters"
        raise UsageError("not a rule for tensors", field=FIELD, value=item, remedy=remedy)
    try:
        written = tensor_pattern(pattern)
    except PatternError as error:
        remedy = "write a regular expression of letters, classes, groups, | and * + ? {m,n}, as llama.cpp takes it"
        raise UsageError(f"not a pattern: {error}", field=FIELD, value=pattern, remedy=remedy) from None
    side = _side(memory, machine)
    return Override(pattern, side, frozenset(name for name in names if written.is_in(name)))


def _side(memory: str, machine: Roles) -> Side:
    names = dict(_known(machine))
    if memory.upper() not in names:
        remedy = f"use one of {', '.join(names)}"
        raise UsageError("no memory of this machine", field=FIELD, value=memory, remedy=remedy)
    return names[memory.upper()]


def _known(machine: Roles) -> Iterator[tuple[str, Side]]:
    """Names and their sides; of a unified memory, that of the accelerator."""
    yield machine.host.memory.upper(), "host"
    for name, side in _BUFFERS.items():
        if side == "host" or machine.accelerator is not None:
            yield name, side
    if machine.accelerator is not None:
        yield machine.accelerator.memory.upper(), "accelerator"


def side_of(overrides: tuple[Override, ...], tensor: Tensor, layer: int | None) -> Side | None:
    """Where the first override that is about a tensor puts it; None: where its block is."""
    return next((override.side for override in overrides if override.covers(tensor, layer)), None)
