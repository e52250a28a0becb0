"""Where a Hugging Face checkpoint, or a GGUF file, keeps each of our tensors."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from helmsman.lowering.tensors import Tensor, tensors
from helmsman.schemas.model import Family, Model


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of the file: its `name` and the tensors of ours whose rows it holds, in order."""

    name: str
    parts: tuple[Tensor, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return rows of all parts together, then the columns they share."""
        return (sum(part.shape[0] for part in self.parts), *self.parts[0].shape[1:])

    def first_row(self, tensor: Tensor) -> int:
        """Return the row of the file's tensor at which `tensor` begins."""
        before = self.parts[: self.parts.index(tensor)]
        return sum(part.shape[0] for part in before)


_ATTENTION = {name: f"self_attn.{name}_proj" for name in ("q", "k", "v")}
_LLAMA_BLOCK = {
    **_ATTENTION,
    "o": "self_attn.o_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
    "norm1": "input_layernorm",
    "norm2": "post_attention_layernorm",
}
_PHI3_BLOCK = {
    **_LLAMA_BLOCK,
    **dict.fromkeys(("q", "k", "v"), "self_attn.qkv_proj"),
    **dict.fromkeys(("gate", "up"), "mlp.gate_up_proj"),
}
_OPT_BLOCK = {
    **_ATTENTION,
    "o": "self_attn.out_proj",
    "up": "fc1",
    "down": "fc2",
    "norm1": "self_attn_layer_norm",
    "norm2": "final_layer_norm",
}
_LLAMA_ENDS = {"embedding": "model.embed_tokens", "final_norm": "model.norm", "head": "lm_head"}
_OPT_ENDS = {
    "embedding": "model.decoder.embed_tokens",
    "positions": "model.decoder.embed_positions",
    "final_norm": "model.decoder.final_layer_norm",
    "head": "lm_head",
}

_GGUF_BLOCK = {
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
    "norm1": "attn_norm",
    "norm2": "ffn_norm",
}
_GGUF_PHI3_BLOCK = {**_GGUF_BLOCK, **dict.fromkeys(("q", "k", "v"), "attn_qkv"), "gate": "ffn_up"}
_GGUF_ENDS = {"embedding": "token_embd", "final_norm": "output_norm", "head": "output"}


def gguf_name(family: Family, tensor: Tensor) -> str:
    """Return the name under which a GGUF file stores `tensor`; such files have no family with learned positions."""
    op, part = tensor.name.split(".")
    if tensor.layer is None:
        return f"{_GGUF_ENDS[op]}.{part}"
    return f"blk.{tensor.layer}.{(_GGUF_PHI3_BLOCK if family == 'phi3' else _GGUF_BLOCK)[op]}.{part}"


def file_name(family: Family, tensor: Tensor) -> str:
    """Return the name under which a checkpoint of `family` stores `tensor` (for phi3: the fused tensor it is part
    of)."""
    op, part = tensor.name.split(".")
    if tensor.layer is None:
        return f"{(_OPT_ENDS if family == 'opt' else _LLAMA_ENDS)[op]}.{part}"
    block = {"opt": _OPT_BLOCK, "phi3": _PHI3_BLOCK}.get(family, _LLAMA_BLOCK)
    root = "model.decoder.layers" if family == "opt" else "model.layers"
    return f"{root}.{tensor.layer}.{block[op]}.{part}"


@lru_cache(maxsize=8)
def stored_tensors(model: Model, name_of: Callable[[Family, Tensor], str] = file_name) -> tuple[StoredTensor, ...]:
    """Return all tensors of the model's files in order of use, called as `name_of` says; a tied head is not stored."""
    parts: dict[str, list[Tensor]] = {}
    for tensor in tensors(model):
        if tensor.tied_to is None:
            parts.setdefault(name_of(model.family, tensor), []).append(tensor)
    return tuple(StoredTensor(name, tuple(part)) for name, part in parts.items())
