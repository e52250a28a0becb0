"""Gemma 2, 3 and 4: scales, norms, windows, rotations by kind of layer, shared caches, per-layer inputs."""

from math import sqrt

import pytest
from small_configs import check_refused, read_small

from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward, PerLayerInput
from helmsman.schemas.blocks.norms import Norm, QueryKeyNorm
from helmsman.schemas.blocks.positions import LinearScaling, ProportionalScaling, Rope
from helmsman.schemas.model import Model


def attention(model: Model, layer: int = 0) -> Attention:
    operation = model.attention(layer)
    assert operation is not None
    return operation


def test_gemma2_caps_scales_and_norms_on_both_sides() -> None:
    model = read_small("gemma2")
    norm = Norm(eps=1e-6, offset=True)
    assert model.pattern == "WAWA" and model.final == norm
    assert model.embedding.scale == sqrt(32) and model.head.tied and model.head.softcap == 30.0
    assert [(residual.pre, residual.post) for residual in model.blocks[0].residuals] == [(norm, norm)] * 2
    first = attention(model)
    assert (first.scale, first.softcap, first.window, first.qk_norm) == (144**-0.5, 50.0, 16, None)
    assert attention(model, 1).window is None
    network = model.blocks[0].bodies[1].op
    assert isinstance(network, FeedForward) and network.activation == "gelu_tanh"  # hidden_act does not count
    check_refused("gemma2", "use_bidirectional_attention", "not covered", use_bidirectional_attention=True)
    check_refused(
        "gemma2", "rope_scaling.type", "rope scaling 'linear'", rope_scaling={"type": "linear", "factor": 2.0}
    )
    check_refused("gemma2", "hidden_activation", "activation not covered", hidden_activation="relu6")
    check_refused("gemma2", "sliding_window", "must be from 1", sliding_window=0)


def test_gemma3_turns_its_windows_by_another_base_unscaled() -> None:
    model = read_small("gemma3_text")
    assert model.pattern == "WWWWWAW"
    assert attention(model).rope == Rope(theta=1e4, rotary_dim=16)
    assert attention(model, 5).rope == Rope(theta=1e6, rotary_dim=16, scaling=LinearScaling(factor=8.0))
    assert attention(model).scale == 168**-0.5 and attention(model).softcap is None and model.head.softcap is None
    assert attention(model).qk_norm == QueryKeyNorm(norm=Norm(eps=1e-6, offset=True))
    kinds = ["full_attention", *["sliding_attention"] * 6]
    assert read_small("gemma3_text", layer_types=kinds, sliding_window_pattern=...).pattern == "AWWWWWW"
    check_refused("gemma3_text", "sliding_window_pattern", "contradicts layer_types", layer_types=kinds)
    check_refused("gemma3_text", "layer_types", "7 layers are expected, not 6", layer_types=kinds[:6])


def test_gemma3_reads_the_rotations_of_both_generations_alike() -> None:
    new = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    changes = {"rope_theta": ..., "rope_local_base_freq": ..., "rope_scaling": ...}
    assert read_small("gemma3_text", rope_parameters=new, **changes) == read_small("gemma3_text")
    other = {**new, "full_attention": {"rope_type": "yarn", "factor": 2.0}}
    place = "rope_parameters.full_attention.rope_type"
    check_refused("gemma3_text", place, "rope scaling 'yarn'", rope_parameters=other, **changes)


def test_gemma4_has_wider_heads_and_values_that_are_keys_in_full_layers() -> None:
    model = read_small("gemma4_text-moe")
    assert model.pattern == "wawa"
    window, full = attention(model, 0), attention(model, 1)
    assert (window.head_dim, window.kv_heads, window.values, window.window) == (8, 2, "own", 16)
    assert (full.head_dim, full.kv_heads, full.values, full.window) == (16, 1, "keys", None)
    assert full.scale == window.scale == 1.0
    assert full.value_norm == Norm(eps=1e-6, weight=False) and full.qk_norm == QueryKeyNorm(norm=Norm(eps=1e-6))
    assert window.rope == Rope(theta=1e4, rotary_dim=8)
    assert full.rope == Rope(theta=1e6, rotary_dim=16, scaling=ProportionalScaling(share=0.25))
    assert full.rope.turned == 4
    assert model.blocks[0].scale == "stored" and model.head.softcap == 30.0 and model.final == Norm(eps=1e-6)


def test_gemma4_counts_global_heads_only_where_values_are_keys() -> None:
    model = read_small("gemma4_text-e", num_global_key_value_heads=1, num_kv_shared_layers=0)
    assert attention(model, 1).kv_heads == 2


def test_gemma4_has_experts_beside_the_dense_network_with_norms_of_their_own() -> None:
    residual = read_small("gemma4_text-moe").blocks[0].residuals[1]
    norm = Norm(eps=1e-6)
    assert residual.pre is None and residual.post == norm
    assert [(body.pre, body.post) for body in residual.bodies] == [(norm, norm)] * 2
    network, experts = (body.op for body in residual.bodies)
    assert isinstance(network, FeedForward) and isinstance(experts, Experts)
    router = experts.router
    assert (router.input_norm, router.expert_scale, router.normalised) == (Norm(eps=1e-6, weight=False), True, True)
    check_refused("gemma4_text-moe", "num_experts", "not covered: num_experts", enable_moe_block=False)
    check_refused("gemma4_text-moe", "top_k_experts", "more than the 4 experts", top_k_experts=8)


def test_gemma4_e_shares_caches_doubles_networks_and_reads_a_table() -> None:
    model = read_small("gemma4_text-e")
    assert model.pattern == "WAVB"
    assert [attention(model, layer).cache_of for layer in range(4)] == [None, None, 0, 1]
    widths = [body.op.width for block in model.blocks for body in block.bodies if isinstance(body.op, FeedForward)]
    assert widths == [48, 48, 96, 96]
    assert model.per_layer_table is not None
    assert (model.per_layer_table.width, model.per_layer_table.vocab) == (8, 96)
    inputs = model.blocks[0].residuals[2]
    assert isinstance(inputs.bodies[0].op, PerLayerInput) and inputs.pre is None and inputs.post == Norm(eps=1e-6)
    plain = read_small("gemma4_text-e", use_double_wide_mlp=False)
    assert {body.op.width for block in plain.blocks for body in block.bodies if isinstance(body.op, FeedForward)} == {
        48
    }


def test_gemma4_has_full_attention_in_its_last_layer_whatever_is_listed() -> None:
    kinds = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"]
    assert read_small("gemma4_text-moe", layer_types=kinds).pattern == "wawa"


@pytest.mark.parametrize(
    ("field", "message", "changes"),
    [
        ("num_kv_shared_layers", "must be from 0 to 3", {"num_kv_shared_layers": 4}),
        (
            "num_kv_shared_layers",
            "no layer before of kind full_attention",
            {"layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
        ),
        ("use_bidirectional_attention", "covered: vision", {"use_bidirectional_attention": "all"}),
        ("rope_parameters", "per kind|kinds of layers", {"rope_parameters": {"rope_theta": 1e4}}),
        ("per_layer_config", "must name the layers", {"per_layer_config": {"0": {"head_dim": 16}}}),
    ],
)
def test_what_gemma4_is_not(field: str, message: str, changes: dict[str, object]) -> None:
    check_refused("gemma4_text-e", field, message, **changes)


def test_gemma4_reads_heads_that_are_listed_layer_by_layer() -> None:
    listed = {"01": {"head_dim": 16, "num_key_value_heads": 1}, "03": {"head_dim": 16, "num_key_value_heads": 1}}
    changes = {"global_head_dim": ..., "num_global_key_value_heads": ..., "per_layer_config": listed}
    assert read_small("gemma4_text-moe", **changes) == read_small("gemma4_text-moe")
