"""Where a Hugging Face checkpoint keeps each of our tensors."""

from dataclasses import dataclass
from functools import lru_cache

from helmsman.lowering.tensors import Tensor, tensors
from helmsman.schemas.model import Family, Model


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor of the file: its `name` and the tensors of ours whose rows it holds, in order."""

    name: str
    parts: tuple[Tensor, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows of all parts together, then the columns they share."""
        return (sum(part.shape[0] for part in self.parts), *self.parts[0].shape[1:])

    def first_row(self, tensor: Tensor) -> int:
        """The row of the file's tensor at which `tensor` begins."""
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


def file_name(family: Family, tensor: Tensor) -> str:
    """The name under which a checkpoint of `family` stores `tensor` (for phi3: the fused tensor it is part of)."""
    op, part = tensor.name.split(".")
    if tensor.layer is None:
        return f"{(_OPT_ENDS if family == 'opt' else _LLAMA_ENDS)[op]}.{part}"
    block = {"opt": _OPT_BLOCK, "phi3": _PHI3_BLOCK}.get(family, _LLAMA_BLOCK)
    root = "model.decoder.layers" if family == "opt" else "model.layers"
    return f"{root}.{tensor.layer}.{block[op]}.{part}"


@lru_cache(maxsize=8)
def stored_tensors(model: Model) -> tuple[Stored, ...]:
    """All tensors of the model's files in order of use; a tied head is not stored."""
    parts: dict[str, list[Tensor]] = {}
    for tensor in tensors(model):
        if tensor.tied_to is None:
            parts.setdefault(file_name(model.family, tensor), []).append(tensor)
    return tuple(Stored(name, tuple(found)) for name, found in parts.items())
