"""The Model document: strict, closed, frozen, consistent, and equal after a round trip."""

from typing import Any

import pytest
from pydantic import ValidationError

from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import LongRope, Model, Rope
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


def test_widths_and_units() -> None:
    model = Model(**{**BASE, "head_dim": 32, "position": ROPE})
    assert (model.q_width, model.kv_width, model.units) == (128, 64, 4)


def test_round_trip_keeps_the_digest() -> None:
    model = Model(**BASE, eos=(1, 2), sliding_window=64)
    again = parse_document(Model, model.to_json().encode(), "model.json")
    assert again == model
    assert digest(again) == digest(model)
    assert '"schema": "helm.model/1"' in model.to_json()


def test_frozen_and_hashable() -> None:
    model = Model(**BASE)
    assert hash(model) == hash(Model(**BASE))
    with pytest.raises(ValidationError):
        model.__setattr__("layers", 3)


@pytest.mark.parametrize(
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
        Model(**{**BASE, **changes})


def test_a_bad_document_names_file_field_and_value() -> None:
    text = Model(**BASE).to_json().replace('"layers": 2', '"layers": -2')
    with pytest.raises(BadInputError, match=r"m\.json: layers: .*\(got -2\)"):
        parse_document(Model, text.encode(), "m.json")
