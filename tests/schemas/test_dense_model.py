"""Dimensions of a model of equal dense blocks: strict, closed, consistent, and described by blocks without loss."""

from typing import Any

import pytest
from pydantic import ValidationError
from together import together

from helmsman.schemas.blocks.positions import LearnedPositions, LongRope, Rope
from helmsman.schemas.dense_model import DenseModel
from helmsman.schemas.described import described, reshaped
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model
from helmsman.schemas.read import digest, parse_document

ROPE = Rope(theta=10000.0, rotary_dim=16)
BASE: dict[str, Any] = {
    "name": "small",
    "family": "llama",
    "layers": 2,
    "hidden": 64,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 16,
    "ffn": 96,
    "vocab": 100,
    "max_context": 128,
    "activation": "silu",
    "gated": True,
    "norm": "rms",
    "norm_eps": 1e-6,
    "position": ROPE,
}


def test_widths() -> None:
    dense = DenseModel(**{**BASE, "head_dim": 32})
    assert (dense.q_width, dense.kv_width) == (128, 64)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"eos": (1, 2), "sliding_window": 64, "native_format": "f16", "source": "a paper"},
        {"family": "qwen3", "qk_norm": True, "tied_embeddings": True},
        {"family": "gpt_neox", "norm": "layer", "qkv_bias": True, "out_bias": True, "ffn_bias": True, "gated": False},
        {"family": "opt", "position": LearnedPositions(offset=2), "activation": "relu", "gated": False, "kv_heads": 4},
    ],
)
def test_a_description_has_all_dimensions(changes: dict[str, Any]) -> None:
    dense = DenseModel(**{**BASE, **changes})
    model = described(dense)
    assert model.dense == dense
    again = parse_document(Model, model.to_json().encode(), "model.json")
    assert again == model and digest(again) == digest(model) and again.dense == dense


def test_a_document_of_version_1_is_read_as_its_description() -> None:
    dense = DenseModel(**BASE, eos=(1, 2))
    assert '"schema": "helm.model/1"' in dense.to_json()
    assert parse_document(Model, dense.to_json().encode(), "model.json") == described(dense)


def test_other_dimensions_are_another_description() -> None:
    model = described(DenseModel(**BASE))
    wide = reshaped(model, heads=8, layers=3)
    assert (wide.dense.heads, wide.layers, wide.dense.ffn) == (8, 3, 96)
    assert (model.dense.heads, model.layers) == (4, 2)


@together(
    ("changes", "message"),
    [
        ({"kv_heads": 3}, r"heads \(4\) must be a multiple of kv_heads \(3\)"),
        ({"position": Rope(theta=1e4, rotary_dim=18)}, "rotary_dim"),
        ({"position": Rope(theta=1e4, rotary_dim=7)}, "must be even"),
        (
            {
                "position": Rope(
                    theta=1e4,
                    rotary_dim=16,
                    scaling=LongRope(short_factor=(1.0,), long_factor=(1.0,) * 8, original_context=8),
                )
            },
            "longrope needs 8 factors",
        ),
        ({"layers": True}, "valid integer"),
        ({"layers": 0}, "greater than or equal to 1"),
        ({"layers": 2.0}, "valid integer"),
        ({"hidden": "64"}, "valid integer"),
        ({"norm_eps": float("nan")}, "finite"),
        ({"experts": 8}, "Extra inputs"),
        ({"family": "mixtral"}, "Input should be"),
    ],
)
def test_inconsistent_models_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DenseModel(**{**BASE, **changes})


def test_a_bad_document_names_file_field_and_value() -> None:
    text = DenseModel(**BASE).to_json().replace('"layers": 2', '"layers": -2')
    with pytest.raises(BadInputError, match=r"m\.json: layers: .*\(got -2\)"):
        parse_document(Model, text.encode(), "m.json")
