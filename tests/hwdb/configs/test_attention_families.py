"""Mixtral, Qwen3-MoE, OLMoE, MiniMax-M2, Phi-3.5-MoE, gpt-oss, Llama 4: every quirk, and what is none of it."""

import pytest
from small_configs import check_refused, read_small

from helmsman.schemas.blocks.attention import Attention, QueryTemperature
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward
from helmsman.schemas.blocks.norms import Norm, QueryKeyNorm
from helmsman.schemas.blocks.positions import LongRope, YarnScaling
from helmsman.schemas.model import Model


def attention(model: Model, layer: int = 0) -> Attention:
    operation = model.attention(layer)
    assert operation is not None
    return operation


def experts(model: Model, layer: int = -1) -> Experts:
    return next(body.op for body in model.blocks[layer].bodies if isinstance(body.op, Experts))


def test_mixtral_always_divides_the_scores_of_those_chosen() -> None:
    model = read_small("mixtral")
    router = experts(model).router
    assert model.pattern == "aaaa" and model.eos == (2,)
    assert (router.score, router.normalised, router.weights, router.normalise_eps) == ("softmax", True, "scores", 0.0)
    assert attention(model).window is None
    windowed = read_small("mixtral", sliding_window=64)
    assert windowed.pattern == "wwww" and attention(windowed).window == 64
    check_refused("mixtral", "num_experts_per_tok", "more than the 4 experts", num_experts_per_tok=5)
    check_refused("mixtral", "sliding_window", "must be from 1", sliding_window=0)
    check_refused("mixtral", "norm_topk_prob", "not known in the family mixtral", norm_topk_prob=False)


def test_qwen3_moe_has_experts_where_two_keys_say() -> None:
    model = read_small("qwen3_moe")
    assert model.pattern == "AAAa"  # every second layer, and not layer 1
    network = model.blocks[0].bodies[1].op
    assert isinstance(network, FeedForward) and network.width == 48
    assert experts(model).width == 20 and experts(model).router.normalised
    assert read_small("qwen3_moe", mlp_only_layers=[], decoder_sparse_step=1).pattern == "aaaa"
    assert not experts(read_small("qwen3_moe", norm_topk_prob=...)).router.normalised  # the class's default
    assert attention(model).head_dim == 16 and attention(model).qk_norm == QueryKeyNorm(norm=Norm(eps=1e-6))
    check_refused("qwen3_moe", "num_experts", "missing", num_experts=...)
    check_refused("qwen3_moe", "use_sliding_window", "not covered: use_sliding_window", use_sliding_window=True)
    check_refused("qwen3_moe", "shared_expert_intermediate_size", "covered: 0", shared_expert_intermediate_size=16)


def test_olmoe_norms_whole_projections_and_clips() -> None:
    model = read_small("olmoe")
    assert attention(model).qk_norm == QueryKeyNorm(norm=Norm(eps=1e-5), over="projection")
    assert attention(model).clip == 8.0 and attention(read_small("olmoe", clip_qkv=None)).clip is None
    assert not experts(model).router.normalised
    check_refused("olmoe", "clip_qkv", "must be above 0", clip_qkv=0)


def test_minimax_turns_half_a_head_and_corrects_its_choice() -> None:
    model = read_small("minimax_m2")
    rope, router = attention(model).rope, experts(model).router
    assert rope is not None and (rope.rotary_dim, rope.theta) == (8, 5e6)
    assert (router.score, router.correction, router.normalise_eps, router.scaling) == ("sigmoid", True, 0.0, 1.0)
    assert attention(model).qk_norm == QueryKeyNorm(norm=Norm(eps=1e-6), over="projection")
    assert model.drafts == ()  # modules that no public implementation has
    assert read_small("minimax_m2", attn_type_list=[1] * 4) == model
    check_refused("minimax_m2", "attn_type_list", "linear attention", attn_type_list=[1, 0, 1, 1])
    check_refused("minimax_m2", "scoring_func", "not covered", scoring_func="softmax")
    check_refused("minimax_m2", "qk_norm_type", "not covered", qk_norm_type="per_head")
    check_refused("minimax_m2", "rotary_dim", "must be from 1 to 16", rotary_dim=32)
    check_refused("minimax_m2", "shared_intermediate_size", "covered: 0", shared_intermediate_size=8)


def test_phimoe_mixes_sparsely_with_layer_norms_and_a_longrope_of_its_own_magnitudes() -> None:
    model = read_small("phimoe")
    router, rope = experts(model).router, attention(model).rope
    assert (router.choice, router.jitter, router.normalised) == ("sparse-mixer", 0.01, False)
    assert model.final == Norm(kind="layer", eps=1e-5, bias=True) and model.head.bias
    assert attention(model).qkv_bias and attention(model).out_bias
    assert rope is not None and isinstance(rope.scaling, LongRope)
    assert (rope.scaling.short_magnitude, rope.scaling.long_magnitude) == (1.25, 1.5)
    assert not read_small("phimoe", lm_head_bias=...).head.bias
    assert read_small("phimoe", rope_scaling=...).unknown == ("rope_scaling",), "it says what it was trained for"
    plain = read_small("phimoe", rope_scaling=..., original_max_position_embeddings=...)
    assert model.unknown == plain.unknown == ()
    check_refused("phimoe", "num_experts_per_tok", "sparse mixer", num_experts_per_tok=1)
    check_refused(
        "phimoe",
        "rope_scaling.short_mscale",
        "missing",
        rope_scaling={"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [1.0] * 4},
    )


def test_gpt_oss_has_sinks_windows_and_a_clamped_swiglu() -> None:
    model = read_small("gpt_oss")
    assert model.pattern == "wawa"
    assert [attention(model, layer).window for layer in range(4)] == [16, None, 16, None]
    assert attention(model).sinks and attention(model).qkv_bias and attention(model).out_bias
    network = experts(model)
    assert (network.activation, network.clamp, network.bias, network.gated) == ("swiglu_oai", 7.0, True, True)
    router = network.router
    assert (router.score, router.bias, router.weights) == ("none", True, "softmax-of-chosen")
    rope = attention(model).rope
    assert rope is not None and isinstance(rope.scaling, YarnScaling) and not rope.scaling.truncate
    assert rope.scaling.magnitude == 1.3465735902799727
    check_refused("gpt_oss", "experts_per_token", "differs from num_experts_per_tok", experts_per_token=1)
    check_refused("gpt_oss", "rope_scaling", "missing", rope_scaling=...)
    check_refused("gpt_oss", "layer_types", "4 layers are expected, not 3", layer_types=["full_attention"] * 3)
    check_refused("gpt_oss", "layer_types", "not covered: slinding layers", layer_types=["slinding"] * 4)
    check_refused("gpt_oss", "swiglu_alpha", "covered: 1.702", swiglu_alpha=1.0)


def test_llama4_has_chunks_with_rope_and_none_of_either_in_every_fourth_layer() -> None:
    model = read_small("llama4_text")
    assert model.pattern == "KkKn"
    chunked, free = attention(model, 0), attention(model, 3)
    assert (chunked.chunk, free.chunk, free.rope) == (16, None, None)
    assert chunked.rope is not None and chunked.rope.pairs == "interleaved"
    assert chunked.qk_norm == QueryKeyNorm(norm=Norm(eps=1e-5, weight=False), place="after-rotation")
    assert free.qk_norm is None and free.query_temperature == QueryTemperature(floor=8192, scale=0.1)
    network, plain = experts(model), model.blocks[0].bodies[1].op
    assert network.input_scaled and network.router.score == "sigmoid" and not network.router.normalised
    assert network.shared is not None and network.shared.width == 48
    assert isinstance(plain, FeedForward) and plain.width == 64
    assert read_small("llama4_text", moe_layers=[0, 1, 2, 3]).pattern == "kkkn"
    assert read_small("llama4_text", no_rope_layers=[1, 0, 1, 0]).pattern == "KnKn"
    tuned = attention(read_small("llama4_text", attn_temperature_tuning=False), 3)
    assert tuned.query_temperature is None
    check_refused("llama4_text", "no_rope_layers", "4 numbers are expected, not 2", no_rope_layers=[1, 0])
    check_refused("llama4_text", "layer_types", "chunks in other layers", layer_types=["chunked_attention"] * 4)


@pytest.mark.parametrize("low", [1.0, 2.0])
def test_only_llama4_may_have_one_bound_for_both(low: float) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": low,
        "high_freq_factor": 1.0,
        "original_max_position_embeddings": 128,
    }
    check_refused("qwen3_moe", "rope_scaling.high_freq_factor", "must exceed", rope_scaling=scaling)
    if low > 1:
        check_refused("llama4_text", "rope_scaling.high_freq_factor", "must exceed", rope_scaling=scaling)
