"""Tensor names, shapes and counts of every catalogue model against transformers on the meta device."""

from collections.abc import Callable
from typing import Any

import pytest

from helmsman.hwdb.load_model import catalogue_names, load_model
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import parameters, tensors
from helmsman.schemas.model import Model

Shape = tuple[int, ...]

ROTARY = {
    "embedding": "model.embed_tokens",
    "final_norm": "model.norm",
    "head": "lm_head",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "norm1": "input_layernorm",
    "norm2": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
FUSED = {
    **ROTARY,
    **dict.fromkeys("qkv", "self_attn.qkv_proj"),
    **dict.fromkeys(("gate", "up"), "mlp.gate_up_proj"),
}
OPT = {
    **ROTARY,
    "embedding": "model.decoder.embed_tokens",
    "positions": "model.decoder.embed_positions",
    "final_norm": "model.decoder.final_layer_norm",
    "o": "self_attn.out_proj",
    "norm1": "self_attn_layer_norm",
    "norm2": "final_layer_norm",
    "up": "fc1",
    "down": "fc2",
}


def hugging_face_shapes(model: Model) -> dict[str, Shape]:
    """What transformers calls our tensors; the rows of fused tensors add up."""
    names = {"opt": OPT, "phi3": FUSED}.get(model.family, ROTARY)
    blocks = "model.decoder.layers" if model.family == "opt" else "model.layers"
    found: dict[str, Shape] = {}
    for tensor in tensors(model):
        name = _renamed(tensor, names, blocks)
        rows = found.get(name, (0,))[0]
        found[name] = (rows + tensor.shape[0], *tensor.shape[1:])
    return found


def _renamed(tensor: Tensor, names: dict[str, str], blocks: str) -> str:
    stem, part = tensor.name.rsplit(".", 1)
    prefix = "" if tensor.layer is None else f"{blocks}.{tensor.layer}."
    return f"{prefix}{names[stem]}.{part}"


def _is_dense(name: str) -> bool:
    """Whether all blocks are alike, each attention and one network, with norms before them."""
    return load_model(name).pattern == "A" * load_model(name).layers and load_model(name).final is not None


@pytest.mark.parametrize("name", [name for name in catalogue_names() if _is_dense(name)])
def test_dense_catalogue_models_have_the_tensors_of_transformers(
    name: str, on_meta: Callable[[dict[str, Any]], Any], entry: Callable[[str], dict[str, Any]]
) -> None:
    """In two of their blocks, which are all alike, and in as many blocks as the model has; models of other structures
    have tests of their files' names."""
    config, model = entry(name), load_model(name)
    assert config["num_hidden_layers"] == model.layers
    model, oracle = model.with_layers(2), on_meta({**config, "num_hidden_layers": 2})
    shapes = {key: tuple(value.shape) for key, value in oracle.state_dict().items()}
    assert hugging_face_shapes(model) == shapes
    assert parameters(model) == sum(parameter.numel() for parameter in oracle.parameters())


def test_small_models_of_every_structure_too(
    small: tuple[dict[str, Any], Model], on_meta: Callable[[dict[str, Any]], Any]
) -> None:
    config, model = small
    oracle = on_meta(config)
    assert hugging_face_shapes(model) == {key: tuple(value.shape) for key, value in oracle.state_dict().items()}
    assert parameters(model) == sum(parameter.numel() for parameter in oracle.parameters())


@pytest.mark.parametrize(
    ("name", "count"),
    [  # published sizes, to the last parameter
        ("Qwen3-8B", 8_190_735_360),
        ("Llama-3.1-405B", 405_853_388_800),
        ("Llama-2-7b-hf", 6_738_415_616),
        ("opt-2.7b", 2_651_596_800),
        ("Qwen2.5-32B", 32_763_876_352),
    ],
)
def test_published_parameter_counts(name: str, count: int) -> None:
    assert parameters(load_model(name)) == count


def test_names_are_unique_within_a_block_and_ops_cover_them(small: tuple[dict[str, Any], Model]) -> None:
    model = small[1]
    keys = [(tensor.layer, tensor.name) for tensor in tensors(model)]
    assert len(keys) == len(set(keys))
    assert {tensor.layer for tensor in tensors(model)} == {None, *range(model.layers)}


def test_a_tied_head_has_a_size_but_counts_once(small: tuple[dict[str, Any], Model]) -> None:
    model = small[1]
    every = sum(tensor.elements for tensor in tensors(model))
    shared = model.vocab * model.hidden * model.head.tied
    assert parameters(model) == every - shared
