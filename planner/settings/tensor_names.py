"""The names by which users of llama.cpp select a model's tensors, and the tensors that a pattern selects."""

from collections.abc import Mapping
from functools import lru_cache

from helmsman.hwdb.file_names.gguf import gguf_table
from helmsman.lowering.stored_names import TensorKey, gguf_name, names_by_tensor
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import tensors
from helmsman.planner.settings.tensor_pattern import TensorPattern
from helmsman.schemas.errors import UsageError
from helmsman.schemas.model import Model

FIELD = "override_tensor"
"""The option that holds patterns."""

_WITHOUT_FILES = {
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
"""Names of what families have of which there are no GGUF files, in the manner of the others."""


@lru_cache(maxsize=16)
def tensor_names(model: Model) -> Mapping[TensorKey, tuple[frozenset[str], ...]]:
    """Return by tensor the names of a file that hold it together (`blk.3.attn_q.weight`), first as released files have
    it, then as others may. Raises UsageError for a model whose tensors llama.cpp has no names for."""
    known = {} if gguf_table(model.family, model.routed) is None else names_by_tensor(model, gguf_name)
    return {(tensor.name, tensor.layer): known.get((tensor.name, tensor.layer)) or (_plain_name(model, tensor),)
            for tensor in tensors(model)}  # fmt: skip


def _plain_name(model: Model, tensor: Tensor) -> frozenset[str]:
    own, _, part = tensor.name.partition(".")
    if own not in _WITHOUT_FILES:
        problem = f"llama.cpp has no names for tensors of {model.name}"
        raise UsageError(problem, field=FIELD, remedy="use `n_cpu_moe`, or leave it out")
    name = f"{_WITHOUT_FILES[own]}.{part}"
    return frozenset({name if tensor.layer is None else f"blk.{tensor.layer}.{name}"})


def selected_tensors(pattern: TensorPattern, model: Model) -> frozenset[TensorKey]:
    """Return the tensors all of whose names a pattern is in, by the names of released files, or where it is in none of
    these by others. Raises UsageError where it selects a part of a tensor, which is one here."""
    names = tensor_names(model)
    released = _selected({key: ways[:1] for key, ways in names.items()}, pattern)
    return released or _selected({key: ways[1:] for key, ways in names.items()}, pattern)


def _selected(names: Mapping[TensorKey, tuple[frozenset[str], ...]], pattern: TensorPattern) -> frozenset[TensorKey]:
    selected = set[TensorKey]()
    for key, ways in names.items():
        for way in ways:
            matching = {name for name in way if pattern.is_in(name)}
            if matching == way:
                selected.add(key)
            elif matching:
                left = sorted(way - matching)[0]
                problem = f"selects {sorted(matching)[0]} without {left}, which is one tensor with it here"
                raise UsageError(problem, field=FIELD, remedy="select both, or neither")
    return frozenset(selected)
