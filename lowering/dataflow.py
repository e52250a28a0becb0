"""Which outputs every operation reads: the dataflow of a pass, for lowering and for the search of splits alike."""

from helmsman.lowering.variants import REORDERED

HIDDEN = "hidden"
"""As transfers call the input of a block, or of what follows the last."""

NEW_KV = "new_kv"
"""What a pass adds to a cache, as other operations read it before, or instead of, the cache."""

TOKEN = "token"
"""As transfers call the chosen tokens."""

_INPUTS: dict[str, tuple[str, ...]] = {
    "norm1": ("input",),
    "q": ("norm1",),
    "k": ("norm1",),
    "v": ("norm1",),
    "append": ("q", "k", "v"),
    "attention": ("append", NEW_KV),
    "scores": ("append", NEW_KV),
    "softmax": ("scores",),
    "wv": ("softmax", NEW_KV),
    "o": ("attention", "input"),
    "norm2": ("o",),
    "gate": ("norm2",),
    "up": ("norm2", "gate"),
    "down": ("up", "o"),
    "final_norm": ("input",),
    "head": ("final_norm",),
    "embedding": (),
}

_ALSO = {"wv": "attention", "embedding": "input", "down": "input"}
"""By which other name an output is read: what comes out of attention, and what goes into the next unit."""


def inputs_of(op: str, reordered: bool) -> tuple[str, ...]:
    """Return the outputs that `op` reads, where they exist; `reordered`: in a block on cached activations."""
    return REORDERED.get(op, _INPUTS[op]) if reordered else _INPUTS[op]


def reads_value(op: str, moved: str) -> bool:
    """Whether `op` reads the activation that transfers call `moved`, in any order of a block's operations."""
    name = "input" if moved == HIDDEN else moved
    return name in _INPUTS[op] or name in REORDERED.get(op, ())


def names_of(op: str) -> tuple[str, ...]:
    """Return the names under which the output of `op` is read."""
    return (op, _ALSO[op]) if op in _ALSO else (op,)
