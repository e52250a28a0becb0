"""The Model document: strict, closed, frozen, consistent, and equal after a round trip."""

from typing import Any

import pytest
from pydantic import ValidationError

from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.block import Block, Body, Residual
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward, PerLayerInput, Router
from helmsman.schemas.blocks.norms import Norm
from helmsman.schemas.blocks.positions import Rope
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model
from helmsman.schemas.read import digest, parse_document

NORM = Norm(eps=1e-6)
NETWORK = FeedForward(width=96, activation="silu", gated=True)
EXPERTS = Experts(experts=8, chosen=2, width=32, activation="silu", router=Router())


def attention(**changes: Any) -> Attention:
    shape = {"heads": 4, "kv_heads": 2, "head_dim": 16, "value_dim": 16, "scale": 0.25}
    return Attention(**{**shape, "rope": Rope(theta=1e4, rotary_dim=16), **changes})


def block(letter: str, *operations: Any) -> Block:
    return Block(letter=letter, residuals=tuple(Residual(bodies=(Body(op=op),), pre=NORM) for op in operations))


def model(pattern: str, *layouts: Block, **changes: Any) -> Model:
    sizes = {"name": "small", "family": "llama", "hidden": 64, "vocab": 100, "max_context": 128}
    return Model(**{**sizes, "layouts": layouts, "pattern": pattern, "final": NORM, **changes})


FULL, NEAR = block("F", attention(), NETWORK), block("W", attention(window=32), EXPERTS)
MIXED = model("WWFWWF", NEAR, FULL)


def test_layers_have_the_blocks_of_their_letters() -> None:
    assert (MIXED.layers, MIXED.units) == (6, 8)
    assert [each.letter for each in MIXED.blocks] == list("WWFWWF")
    windows = [MIXED.blocks[layer].attention for layer in range(6)]
    assert [each.window for each in windows if each is not None] == [32, 32, None, 32, 32, None]
    assert MIXED.routed and not model("FF", FULL).routed


def test_fewer_and_more_layers_follow_the_pattern() -> None:
    assert MIXED.with_layers(2).pattern == "WW" and MIXED.with_layers(2).layouts == (NEAR,)
    assert MIXED.with_layers(8).pattern == "WWFWWFWW"
    assert MIXED.with_layers(6) == MIXED and hash(MIXED.with_layers(6)) == hash(MIXED)


def test_round_trip_keeps_the_digest() -> None:
    again = parse_document(Model, MIXED.to_json().encode(), "model.json")
    assert again == MIXED
    assert digest(again) == digest(MIXED)
    assert '"schema": "helm.model/2"' in MIXED.to_json()


def test_frozen_and_hashable() -> None:
    assert hash(MIXED) == hash(model("WWFWWF", NEAR, FULL))
    with pytest.raises(ValidationError):
        MIXED.__setattr__("pattern", "F")


def test_a_copy_computes_what_follows_from_its_own_fields() -> None:
    one = model("A", block("A", attention(), NETWORK))
    assert (one.dense.max_context, len(one.blocks)) == (128, 1)
    longer = one.model_copy(update={"max_context": 256, "pattern": "AAA"})
    assert (longer.dense.max_context, longer.dense.layers, len(longer.blocks)) == (256, 3, 3)
    assert hash(longer) != hash(one)


@pytest.mark.parametrize(
    ("pattern", "layouts", "message"),
    [
        ("AB", (block("A", NETWORK),), "no layout is called B"),
        ("A", (block("A", NETWORK), block("B", NETWORK)), "no layer has layout B"),
        ("A", (block("A", NETWORK), block("A", EXPERTS)), "two layouts are called A"),
        ("A1", (block("A", NETWORK),), "String should match pattern"),
        ("", (block("A", NETWORK),), "String should match pattern"),
        ("CF", (block("C", attention(cache_of=1)), FULL), "layer 1 is no earlier layer"),
        ("FC", (FULL, block("C", attention(cache_of=0, head_dim=32))), "the cache of layer 0 has other heads"),
        ("P", (block("P", attention(), NETWORK, PerLayerInput(activation="silu")),), "a table that is missing"),
    ],
)
def test_inconsistent_models_are_refused(pattern: str, layouts: tuple[Block, ...], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        model(pattern, *layouts)


def test_a_block_has_one_body_of_a_kind() -> None:
    with pytest.raises(ValidationError, match="two bodies are feed-forward"):
        block("A", NETWORK, NETWORK)


@pytest.mark.parametrize(
    ("layouts", "message"),
    [
        ((FULL, NEAR), "2 kinds of blocks"),
        ((NEAR,), "blocks of attention and experts"),
        ((block("F", NETWORK, attention()),), "blocks of feed-forward and attention"),
        ((block("F", attention(sinks=True), NETWORK),), "another form than plain attention"),
        ((block("F", attention(rope=None), NETWORK),), "another form than plain attention"),
        ((block("F", attention(scale=1.0), NETWORK),), "another form than plain attention"),
    ],
)
def test_what_is_not_of_equal_dense_blocks_has_no_such_dimensions(layouts: tuple[Block, ...], message: str) -> None:
    other = model("".join(layout.letter for layout in layouts), *layouts)
    with pytest.raises(BadInputError, match=message) as caught:
        _ = other.dense
    assert (caught.value.field, caught.value.exit_code) == ("model", 5) and caught.value.remedy


def test_a_bad_document_names_file_field_and_value() -> None:
    text = MIXED.to_json().replace('"window": 32', '"window": -2')
    with pytest.raises(BadInputError, match=r"m\.json: layouts\.0\..*window: .*\(got -2\)"):
        parse_document(Model, text.encode(), "m.json")
