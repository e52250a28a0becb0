"""Formats of quantised checkpoints of Hugging Face, by the bytes that values, scales and zero points take."""

import json
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path

import pytest
from tiny_configs import TINY

from helmsman.hwdb.model_config import model_from_config
from helmsman.hwdb.quantised_names import matrix_names
from helmsman.lowering.checkpoint_formats import checkpoint_bytes, checkpoint_formats
from helmsman.lowering.stored_names import StoredTensor, stored_tensors
from helmsman.lowering.tensors import tensors
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import size_of
from helmsman.schemas.model import Model

Entries = Mapping[str, tuple[str, tuple[int, ...]]]
"""Type and shape by name."""

_BYTES = {"F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "U8": 1, "I32": 4, "I64": 8}
WIDE = {**TINY["qwen3_moe"], "hidden_size": 256, "moe_intermediate_size": 256, "num_attention_heads": 8}


def described(config: Mapping[str, object]) -> Model:
    return model_from_config(config, "wide", "config.json")


def fp8_blocks(item: StoredTensor) -> Entries:
    rows, columns = item.shape
    scales = -(-rows // 128), -(-columns // 128)
    return {item.name: ("F8_E4M3", item.shape), f"{item.name}_scale_inv": ("F32", scales)}


def fp8(item: StoredTensor) -> Entries:
    return {
        item.name: ("F8_E4M3", item.shape),
        f"{item.name}_scale": ("F32", ()),
        item.name.removesuffix("weight") + "input_scale": ("F32", ()),
    }


def nvfp4(item: StoredTensor) -> Entries:
    rows, columns = item.shape
    return {
        item.name: ("U8", (rows, columns // 2)),
        f"{item.name}_scale": ("F8_E4M3", (rows, columns // 16)),
        f"{item.name}_scale_2": ("F32", ()),
    }


def gptq(item: StoredTensor) -> Entries:
    rows, columns = item.shape
    stem = item.name.removesuffix("weight")
    return {
        f"{stem}qweight": ("I32", (columns // 8, rows)),
        f"{stem}qzeros": ("I32", (columns // 128, rows // 8)),
        f"{stem}scales": ("F16", (columns // 128, rows)),
        f"{stem}g_idx": ("I32", (columns,)),
    }


def awq(item: StoredTensor) -> Entries:
    return {name: entry for name, entry in gptq(item).items() if not name.endswith("g_idx")}


def int4_groups(item: StoredTensor) -> Entries:
    rows, columns = item.shape
    return {
        f"{item.name}_packed": ("I32", (rows, columns // 8)),
        f"{item.name}_scale": ("BF16", (rows, columns // 32)),
        f"{item.name}_shape": ("I64", (2,)),
    }


def mxfp4(item: StoredTensor) -> Entries:
    """Stacked experts as gpt-oss has them: rows first, whatever the plain ones have."""
    experts, columns, rows = item.shape
    return {
        f"{item.name}_blocks": ("U8", (experts, rows, columns // 32, 16)),
        f"{item.name}_scales": ("U8", (experts, rows, columns // 32)),
    }


def checkpoint(folder: Path, model: Model, quantised: Callable[[StoredTensor], Entries], which: str) -> int:
    """Write the header of a checkpoint without values, whose tensors with `which` in their names are quantised; return
    the bytes of all tensors."""
    entries: dict[str, tuple[str, tuple[int, ...]]] = {}
    for item in stored_tensors(model):
        matrix = item.parts[0].quantised and which in item.name
        entries |= quantised(item) if matrix else {item.name: ("BF16", item.shape)}
    header, end = {}, 0
    for name, (dtype, shape) in entries.items():
        size = prod(shape) * _BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    content = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(content).to_bytes(8, "little") + content)
        file.truncate(8 + len(content) + end)
    return end


@pytest.mark.parametrize(
    ("quantised", "fmt", "near"),
    [
        (fp8_blocks, "fp8_block", 0.0),
        (fp8, "fp8", 0.001),
        (nvfp4, "nvfp4", 0.001),
        (gptq, "uint4_g128", 0.04),
        (awq, "uint4_g128", 0.0),
        (int4_groups, "int4_g32", 0.001),
    ],
)
def test_experts_have_the_bytes_of_their_scheme(
    quantised: Callable[[StoredTensor], Entries], fmt: str, near: float, tmp_path: Path
) -> None:
    model = described(WIDE)
    total = checkpoint(tmp_path, model, quantised, "experts.")
    taken, formats = checkpoint_bytes(tmp_path, model), checkpoint_formats(tmp_path, model)
    assert sum(taken.values()) == pytest.approx(total)
    assert formats["q.weight", 0] == "bf16" and formats["router.weight", 0] == "bf16"
    for name in ("experts_gate", "experts_up", "experts_down"):
        elements = next(tensor.elements for tensor in tensors(model) if tensor.name == f"{name}.weight")
        assert formats[f"{name}.weight", 2] == fmt
        assert size_of(elements, formats[f"{name}.weight", 2]) == pytest.approx(taken[f"{name}.weight", 2], rel=near)


def test_gpt_oss_has_blocks_of_stacked_experts(tmp_path: Path) -> None:
    model = described({**TINY["gpt_oss"], "intermediate_size": 96})
    total = checkpoint(tmp_path, model, mxfp4, "mlp.experts.")
    taken, formats = checkpoint_bytes(tmp_path, model), checkpoint_formats(tmp_path, model)
    gate = next(tensor for tensor in tensors(model) if tensor.name == "experts_gate.weight")
    assert formats["experts_gate.weight", 0] == formats["experts_down.weight", 3] == "mxfp4"
    assert taken["experts_gate.weight", 0] == size_of(gate.elements, "mxfp4") == taken["experts_up.weight", 0]
    assert sum(taken.values()) == total


def test_what_takes_the_bytes_of_no_known_format_is_refused(tmp_path: Path) -> None:
    def two_bits(item: StoredTensor) -> Entries:
        return {item.name.removesuffix("weight") + "qweight": ("I32", (item.elements // 16,))}

    checkpoint(tmp_path, described(WIDE), two_bits, "experts.")
    with pytest.raises(BadInputError, match="as many bytes as no format") as caught:
        checkpoint_formats(tmp_path, described(WIDE))
    assert str(caught.value.field).endswith("experts.0.gate_proj.weight")


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    smaller = described({**WIDE, "num_experts": 4})
    checkpoint(tmp_path, smaller, fp8, "experts.")
    with pytest.raises(BadInputError, match="missing") as caught:
        checkpoint_formats(tmp_path, described(WIDE))
    assert caught.value.field == "model.layers.0.mlp.experts.4.gate_proj.weight"


def test_names_that_look_like_scales_are_matrices_where_no_matrix_is_beside_them() -> None:
    names = ["router.scale", "router.proj.weight", "q.weight", "q.weight_scale_inv", "wq.scale", "wq.weight"]
    assert matrix_names(names) == {
        "router.scale": "router.scale",
        "router.proj.weight": "router.proj.weight",
        "q.weight": "q.weight",
        "q.weight_scale_inv": "q.weight",
        "wq.scale": "wq.weight",
        "wq.weight": "wq.weight",
    }
