"""Qwen3-Next and 3.5, Kimi-Linear, Nemotron-H, Granite 4, LFM2, Falcon-H1, OPT-350M: mixers with a state, and norms."""

import pytest
from small_configs import check_refused, read_small
from together import together

from helmsman.hwdb.load_model import load_model
from helmsman.lowering.tensors import parameters
from helmsman.schemas.blocks.attention import Attention, LatentAttention
from helmsman.schemas.blocks.block import Body
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward
from helmsman.schemas.blocks.norms import Norm, QueryKeyNorm
from helmsman.schemas.blocks.recurrent import DeltaRule, ShortConvolution, StateSpace
from helmsman.schemas.model import Model


def experts(model: Model, layer: int = -1) -> Experts:
    return next(body.op for body in model.blocks[layer].bodies if isinstance(body.op, Experts))


def mixer(model: Model, layer: int = 0) -> object:
    return model.blocks[layer].bodies[0].op


def test_qwen3_next_gates_its_attention_and_its_shared_expert() -> None:
    model = read_small("qwen3_next")
    assert model.pattern == "Ggga" and model.final == Norm(eps=1e-6, offset=True)
    attention = mixer(model, 3)
    assert isinstance(attention, Attention) and attention.output_gate
    assert attention.rope is not None and attention.rope.rotary_dim == 4
    assert attention.qk_norm == QueryKeyNorm(norm=Norm(eps=1e-6, offset=True))
    network = experts(model)
    assert network.shared is not None and network.shared.width == 24 and network.shared_gate
    delta = mixer(model, 0)
    assert isinstance(delta, DeltaRule)
    assert (delta.key_heads, delta.value_heads, delta.key_dim, delta.value_dim, delta.taps) == (2, 4, 8, 12, 4)
    assert delta.norm == Norm(eps=1e-6) and (delta.decay, delta.gate) == ("head", "silu")
    assert experts(read_small("qwen3_next", norm_topk_prob=...)).router.normalised
    assert model.drafts == ()
    kinds = ["full_attention", "linear_attention", "linear_attention", "full_attention"]
    assert read_small("qwen3_next", layer_types=kinds, full_attention_interval=...).pattern == "Agga"
    check_refused("qwen3_next", "full_attention_interval", "contradicts layer_types", layer_types=kinds)
    check_refused("qwen3_next", "linear_num_value_heads", "multiple of linear_num_key_heads", linear_num_value_heads=3)
    check_refused("qwen3_next", "layer_types", "not covered: mamba layers", layer_types=["mamba"] * 4)
    check_refused("qwen3_next", "shared_expert_intermediate_size", "must be from 1", shared_expert_intermediate_size=0)


def test_qwen35_always_divides_and_drafts_with_attention() -> None:
    model = read_small("qwen3_5_moe_text")
    assert experts(model).router.normalised
    (draft,) = model.drafts
    assert draft.block == model.blocks[3] and draft.order == "embedding-first" and not draft.own_embedding
    assert read_small("qwen3_5_moe_text", mtp_num_hidden_layers=0).drafts == ()
    assert read_small("qwen3_5_moe_text", mtp_use_dedicated_embeddings=True).drafts[0].own_embedding
    dense = read_small("qwen3_5_text")
    assert dense.pattern == "GGGA" and dense.drafts[0].block.letter == "A"
    check_refused("qwen3_5_moe_text", "attn_output_gate", "not covered", attn_output_gate=False)
    check_refused("qwen3_5_moe_text", "norm_topk_prob", "not known in the family", norm_topk_prob=True)
    check_refused("qwen3_5_text", "output_gate_type", "covered: swish, silu", output_gate_type="tanh")


def test_dimensions_for_time_height_and_width_are_those_that_turn() -> None:
    ropes = {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": [1, 1, 1]}
    check_refused("qwen3_5_moe_text", "rope_parameters.mrope_section", "must add up to 2", rope_parameters=ropes)


def test_kimi_linear_counts_its_layers_from_one_and_has_no_positions() -> None:
    model = read_small("kimi_linear")
    assert model.pattern == "Gggl"
    delta, attention = mixer(model, 0), mixer(model, 3)
    assert isinstance(delta, DeltaRule) and isinstance(attention, LatentAttention)
    assert (delta.decay, delta.rank, delta.gate, delta.key_heads) == ("dimension", 8, "sigmoid", 4)
    assert attention.rope is None and attention.scale == 12**-0.5
    router = experts(model).router
    assert (router.score, router.correction, router.scaling) == ("sigmoid", True, 2.446)
    assert model.max_context == 512 and read_small("kimi_linear", max_position_embeddings=...).max_context == 2**20
    listed = {"head_dim": 8, "num_heads": 4, "short_conv_kernel_size": 4}
    for full, linear in (([4], [1, 2]), ([4, 4], [1, 2, 3]), ([3], [0, 1, 2]), ([5], [1, 2, 3, 4])):
        check_refused(
            "kimi_linear",
            "linear_attn_config.full_attn_layers",
            "each of the layers 1 to 4 once",
            linear_attn_config={**listed, "full_attn_layers": full, "kda_layers": linear},
        )
    check_refused("kimi_linear", "mla_use_nope", "covered: True", mla_use_nope=False)
    check_refused("kimi_linear", "linear_num_heads", "differs from linear_attn_config", linear_num_heads=8)


def test_nemotron_has_one_residual_per_character() -> None:
    model = read_small("nemotron_h")
    assert model.pattern == "MeAF" and all(len(block.residuals) == 1 for block in model.blocks)
    space, attention, network = mixer(model, 0), mixer(model, 2), mixer(model, 3)
    assert isinstance(space, StateSpace) and isinstance(attention, Attention) and isinstance(network, FeedForward)
    assert (space.heads, space.groups, space.norm_first, space.longest_step) == (4, 2, False, None)
    assert space.norm == Norm(eps=1e-5)  # layer_norm_epsilon, not norm_eps
    assert attention.rope is None and attention.head_dim == 16
    assert (network.activation, network.gated, network.width) == ("relu2", False, 48)
    routed = experts(model, 1)
    assert (routed.latent, routed.gated, routed.activation, routed.width) == (16, False, "relu2", 20)
    assert routed.shared == FeedForward(width=24, activation="relu2", gated=False)
    assert routed.router.scaling == 2.5 and routed.router.correction


def test_nemotron_drafts_with_a_pattern_of_its_own() -> None:
    changes = {"num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "*E"}
    (draft,) = read_small("nemotron_h", **changes).drafts
    assert [body.op.kind for body in draft.block.bodies] == ["attention", "experts"]
    listed = {"num_nextn_predict_layers": 1, "mtp_layers_block_type": ["full_attention", "moe"]}
    assert read_small("nemotron_h", **listed).drafts == (draft,)
    twice = {"num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "EE"}
    check_refused("nemotron_h", "mtp_hybrid_override_pattern", "of one kind twice", **twice)


@together(
    ("field", "message", "changes"),
    [
        ("num_hidden_layers", "differs from the 4 layers of the pattern", {"num_hidden_layers": 5}),
        ("hybrid_override_pattern", "not covered: X layers", {"hybrid_override_pattern": "MX*-"}),
        ("hybrid_override_pattern", "contradicts layers_block_type", {"layers_block_type": ["mamba"] * 4}),
        ("time_step_limit", "steps cut from below", {"time_step_limit": [0.001, 1.0]}),
        ("time_step_limit", "two numbers", {"time_step_limit": [0.0]}),
        ("mlp_hidden_act", "covered: relu2", {"mlp_hidden_act": "silu"}),
        ("n_shared_experts", "another number of shared experts", {"n_shared_experts": 2}),
        ("n_groups", "must divide mamba_num_heads", {"n_groups": 3}),
        ("sliding_window", "not covered: sliding_window", {"sliding_window": 64}),
        ("mamba_proj_bias", "not covered: mamba_proj_bias", {"mamba_proj_bias": True}),
        ("attention_head_dim", "differs from head_dim", {"attention_head_dim": 8}),
    ],
)
def test_what_nemotron_is_not(field: str, message: str, changes: dict[str, object]) -> None:
    check_refused("nemotron_h", field, message, **changes)


def test_steps_may_be_cut_from_above() -> None:
    space = mixer(read_small("nemotron_h", time_step_limit=[0.0, 0.5]))
    assert isinstance(space, StateSpace) and space.longest_step == 0.5
    assert read_small("nemotron_h", time_step_limit=[0.0, {"__float__": "Infinity"}]) == read_small("nemotron_h")
    assert read_small("nemotron_h", time_step_limit=[0.0, 1e308]) == read_small("nemotron_h")


def test_granite_multiplies_everything_and_weighs_the_chosen_alone() -> None:
    model = read_small("granitemoehybrid")
    assert model.pattern == "mmam"
    assert (model.embedding.scale, model.head.divide, model.head.tied) == (12.0, 6.0, True)
    assert {residual.scale for block in model.blocks for residual in block.residuals} == {0.22}
    attention, space = mixer(model, 2), mixer(model, 0)
    assert isinstance(attention, Attention) and isinstance(space, StateSpace)
    assert attention.scale == 0.015625 and attention.rope is None
    assert space.norm == Norm(eps=1e-5) and space.conv_bias and not space.bias
    router = experts(model).router
    assert (router.score, router.weights, router.normalised) == ("none", "softmax-of-chosen", False)
    rotating = mixer(read_small("granitemoehybrid", position_embedding_type="rope"), 2)
    assert isinstance(rotating, Attention) and rotating.rope is not None


@pytest.mark.parametrize(
    "key", ["embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"]
)
def test_granite_is_planned_without_a_multiplier_and_says_what_is_missing(key: str) -> None:
    """Whether its config says so under `_unknown` or not."""
    for more in ({}, {"_unknown": [key]}):
        model = read_small("granitemoehybrid", **{key: ..., **more})
        assert model.unknown == (key,)
        stated = read_small("granitemoehybrid")
        assert parameters(model) == parameters(stated) and stated.unknown == ()
    check_refused("granitemoehybrid", "_unknown", f"names {key}, which is stated", _unknown=[key])


def test_granite_without_experts_has_the_shared_network_alone() -> None:
    model = read_small("granitemoehybrid", num_local_experts=0, num_experts_per_tok=0)
    assert model.pattern == "MMAM"
    network = model.blocks[0].bodies[1].op
    assert isinstance(network, FeedForward) and network.width == 24
    check_refused("granitemoehybrid", "mamba_n_heads", "must make the 64 channels", mamba_n_heads=4)
    check_refused("granitemoehybrid", "layer_types", "missing", layer_types=...)
    check_refused("granitemoehybrid", "position_embedding_type", "covered: nope, rope", position_embedding_type="alibi")


def test_lfm2_gives_its_networks_two_thirds_rounded_up() -> None:
    model = read_small("lfm2")
    assert model.pattern == "CCAC" and model.head.tied
    networks = [block.bodies[1].op for block in model.blocks]
    assert {network.width for network in networks if isinstance(network, FeedForward)} == {80}  # 64, by 40
    written = read_small("lfm2", block_auto_adjust_ff_dim=False).blocks[0].bodies[1].op
    assert isinstance(written, FeedForward) and written.width == 96
    convolution, attention = mixer(model, 0), mixer(model, 2)
    assert convolution == ShortConvolution(taps=3)
    assert isinstance(attention, Attention) and attention.qk_norm == QueryKeyNorm(norm=Norm(eps=1e-5))
    released = load_model("LFM2-1.2B").blocks[0].bodies[1].op
    assert isinstance(released, FeedForward) and released.width == 8192
    assert not read_small("lfm2", tie_word_embeddings=..., tie_embedding=False).head.tied
    check_refused("lfm2", "tie_embedding", "differs from tie_word_embeddings", tie_embedding=False)
    check_refused("lfm2", "conv_dim", "another width than hidden_size", conv_dim=64)
    check_refused("lfm2", "full_attn_idxs", "0 to 3 is expected", full_attn_idxs=[4])
    check_refused("lfm2", "full_attn_idxs", "contradicts layer_types", layer_types=["conv"] * 4)
    check_refused("lfm2", "block_use_swiglu", "covered: True", block_use_swiglu=False)


def test_lfm2_moe_has_experts_from_the_third_layer_on() -> None:
    model = read_small("lfm2_moe")
    assert model.pattern == "CAcc"
    router = experts(model).router
    assert (router.score, router.correction, router.normalise_eps) == ("sigmoid", True, 1e-6)
    network = model.blocks[0].bodies[1].op
    assert isinstance(network, FeedForward) and network.width == 48  # as written
    assert not experts(read_small("lfm2_moe", use_expert_bias=False)).router.correction
    check_refused("lfm2_moe", "num_dense_layers", "must be from 0 to 4", num_dense_layers=5)


def test_falcon_runs_both_mixers_on_one_normed_state_and_scales_each() -> None:
    model = read_small("falcon_h1")
    assert model.pattern == "HHHH" and (model.embedding.scale, model.head.scale) == (5.5, 0.04)
    first, second = model.blocks[0].residuals
    space, attention = first.bodies
    assert first.pre == Norm(eps=1e-5) and (space.pre, attention.pre) == (None, None)
    assert isinstance(space.op, StateSpace) and isinstance(attention.op, Attention)
    assert (space.in_scale, space.out_scale, attention.in_scale, attention.out_scale) == (1.25, 0.25, 1.0, 0.9)
    assert space.op.scales == (0.35, 0.25, 0.35, 0.5, 0.3) and space.op.norm is None
    assert (space.op.inner, space.op.head_dim) == (48, 6)  # mamba_d_ssm, mamba_d_head "auto"
    assert attention.op.key_scale == 0.4 and attention.op.rope is not None and attention.op.rope.theta == 1e11
    network = second.bodies[0]
    assert network == Body(op=FeedForward(width=48, activation="silu", gated=True, gate_scale=0.9), out_scale=0.6)
    normed = read_small("falcon_h1", mamba_rms_norm=True, mamba_norm_before_gate=True).blocks[0].bodies[0].op
    assert isinstance(normed, StateSpace) and normed.norm == Norm(eps=1e-5) and normed.norm_first
    missing = ("mlp_multipliers", "key_multiplier")
    assert read_small("falcon_h1", **dict.fromkeys(missing, ...)).unknown == missing, "planned, and not run"


@pytest.mark.parametrize(
    ("field", "message", "changes"),
    [
        ("ssm_multipliers", "5 numbers are expected, not 4", {"ssm_multipliers": [1.0] * 4}),
        ("mamba_n_heads", "must make the 48 channels of mamba_d_ssm", {"mamba_n_heads": 7}),
        ("mamba_n_groups", "must divide mamba_n_heads", {"mamba_n_groups": 3}),
        ("mamba_use_mlp", "covered: True", {"mamba_use_mlp": False}),
        ("projectors_bias", "a bias in one projection alone", {"projectors_bias": True}),
    ],
)
def test_what_falcon_is_not(field: str, message: str, changes: dict[str, object]) -> None:
    check_refused("falcon_h1", field, message, **changes)


def test_opt_350m_norms_afterwards_and_embeds_narrowly() -> None:
    model = read_small("opt-350m")
    norm = Norm(kind="layer", eps=1e-5, bias=True)
    assert [(residual.pre, residual.after) for residual in model.blocks[0].residuals] == [(None, norm)] * 2
    assert model.final is None and model.embedding.width == model.head.width == 16
    assert model.embedding.positions is not None and model.embedding.positions.offset == 2 and model.head.tied
    wide = read_small("opt-350m", word_embed_proj_dim=32)
    assert wide.embedding.width is None and wide.final is None
    before = read_small("opt-350m", do_layer_norm_before=True)
    assert before.final == norm and before.embedding.width == 16
    assert read_small("opt-350m", do_layer_norm_before=True, _remove_final_layer_norm=True).final is None
    bare = read_small("opt-350m", layer_norm_elementwise_affine=False)
    assert bare.blocks[0].residuals[0].after == Norm(kind="layer", eps=1e-5, weight=False)
