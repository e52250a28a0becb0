"""DeepSeek V2 to V4, Kimi-K2, GLM: latent and compressed attention, routers in groups, indexers, draft heads."""

import pytest
from small_configs import check_refused, read_small, small_config
from together import together

from helmsman.hwdb.load_model import load_model
from helmsman.hwdb.model_config import model_from_config
from helmsman.schemas.blocks.attention import Attention, CompressedAttention, EntryIndexer, LatentAttention
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward, HyperConnections, RouterGroups
from helmsman.schemas.blocks.norms import Norm, QueryKeyNorm
from helmsman.schemas.blocks.positions import YarnScaling
from helmsman.schemas.model import Model


def latent(model: Model, layer: int = 0) -> LatentAttention:
    return next(body.op for body in model.blocks[layer].bodies if isinstance(body.op, LatentAttention))


def compressed(model: Model, layer: int) -> CompressedAttention:
    return next(body.op for body in model.blocks[layer].bodies if isinstance(body.op, CompressedAttention))


def experts(model: Model, layer: int = -1) -> Experts:
    return next(body.op for body in model.blocks[layer].bodies if isinstance(body.op, Experts))


def test_deepseek_v2_takes_scores_as_they_are() -> None:
    model = read_small("deepseek_v2")
    router = experts(model).router
    assert model.pattern == "Llll" and model.eos == (2,)
    assert (router.score, router.normalised, router.correction, router.scaling) == ("softmax", False, False, 2.5)
    assert router.groups == RouterGroups(count=4, kept=2, by="best")
    assert experts(read_small("deepseek_v2", topk_method="greedy")).router.groups is None
    assert not experts(read_small("deepseek_v2", norm_topk_prob=True)).router.normalised
    shared = experts(model).shared
    assert shared is not None and shared.width == 2 * 20 and not experts(model).shared_gate
    assert latent(model).query_rank is None
    check_refused("deepseek_v2", "topk_method", "not covered", topk_method="noaux_tc")
    check_refused("deepseek_v2", "q_lora_rank", "missing", q_lora_rank=...)


def test_deepseek_v3_chooses_in_groups_with_a_correction() -> None:
    model = read_small("deepseek_v3")
    router = experts(model).router
    assert (router.score, router.correction, router.normalised) == ("sigmoid", True, True)
    assert (router.normalise_eps, router.scaling) == (1e-20, 2.5)
    assert router.groups == RouterGroups(count=4, kept=2, by="best-two")
    attention = latent(model)
    assert (attention.query_rank, attention.cached_width, attention.compared) == (24, 20, 12)
    assert attention.rope is not None and attention.rope.pairs == "interleaved"
    assert latent(read_small("deepseek_v3", rope_interleave=False)).rope == attention.rope.model_copy(
        update={"pairs": "half"}
    )
    assert isinstance(attention.rope.scaling, YarnScaling) and attention.rope.scaling.magnitude == 1.0
    network = model.blocks[0].bodies[1].op
    assert isinstance(network, FeedForward) and network.width == 48


@together(
    ("field", "message", "changes"),
    [
        ("n_group", "must divide the 8 experts", {"n_group": 3, "topk_group": 1}),
        ("topk_group", "more than the 4 groups", {"topk_group": 5}),
        ("num_experts_per_tok", "more than the 8 experts", {"num_experts_per_tok": 9}),
        ("scoring_func", "covered: sigmoid", {"scoring_func": "softmax"}),
        ("topk_method", "covered: noaux_tc", {"topk_method": "greedy"}),
        ("moe_layer_freq", "not covered", {"moe_layer_freq": 2}),
        ("first_k_dense_replace", "must be from 0 to 4", {"first_k_dense_replace": 5}),
        ("num_key_value_heads", "must be num_attention_heads", {"num_key_value_heads": 2}),
        ("qk_head_dim", r"must be qk_nope_head_dim \+ qk_rope_head_dim \(12\)", {"qk_head_dim": 16}),
        ("v_head_dim", "missing", {"v_head_dim": ...}),
        ("attention_bias", "not covered: attention_bias", {"attention_bias": True}),
        ("qk_rope_head_dim", "rotary dimensions, which must be even", {"qk_rope_head_dim": 3}),
    ],
)
def test_what_deepseek_v3_is_not(field: str, message: str, changes: dict[str, object]) -> None:
    check_refused("deepseek_v3", field, message, **changes)


def test_scales_grow_with_yarn_as_released_models_do() -> None:
    assert latent(load_model("DeepSeek-V3")).scale == pytest.approx(0.1352337788608801, rel=1e-15)
    assert latent(load_model("DeepSeek-V2-Lite")).scale == pytest.approx(0.11472138679292611, rel=1e-15)
    assert latent(load_model("GLM-4.7-Flash")).scale == 256**-0.5
    assert latent(load_model("Kimi-Linear-48B-A3B-Instruct"), 3).scale == 192**-0.5


def test_a_draft_head_has_a_block_like_the_last_and_the_models_own_head() -> None:
    (draft,) = read_small("deepseek_v3").drafts
    assert draft.block == read_small("deepseek_v3").blocks[-1] and draft.count == 1
    assert (draft.order, draft.own_embedding) == ("embedding-first", False)
    assert read_small("deepseek_v3", num_nextn_predict_layers=0).drafts == ()
    assert read_small("deepseek_v3", num_nextn_predict_layers=...).drafts == ()
    assert load_model("GLM-4.5-Air").drafts[0].block.letter == "a"


def test_kimi_k2_is_v3_in_one_group_with_a_yarn_of_its_own() -> None:
    model = load_model("Kimi-K2-Instruct")
    router, rope = experts(model).router, latent(model).rope
    assert router.groups is None and router.scaling == 2.827 and experts(model).experts == 384
    assert rope is not None and isinstance(rope.scaling, YarnScaling)
    assert (rope.scaling.factor, rope.scaling.beta_fast, rope.scaling.beta_slow) == (32.0, 1.0, 1.0)
    newer = load_model("Kimi-K2.5")
    assert newer.family == "kimi_k25" and newer.pattern == model.pattern == "L" + "l" * 60


def test_deepseek_v32_has_an_indexer_whose_keys_turn_in_halves() -> None:
    indexer = latent(read_small("deepseek_v32")).indexer
    assert indexer is not None
    assert (indexer.heads, indexer.head_dim, indexer.top_k, indexer.pairs, indexer.selects) == (2, 8, 16, "half", "own")
    check_refused("deepseek_v32", "index_topk", "missing", index_topk=...)
    check_refused("deepseek_v32", "rope_interleave", "covered: True", rope_interleave=False)
    check_refused("deepseek_v3", "index_topk", "not known in the family deepseek_v3", index_topk=16)


def test_glm5_shares_an_indexer_between_layers() -> None:
    model = read_small("glm_moe_dsa")
    assert model.pattern == "Llsl"
    own, shared = latent(model, 1).indexer, latent(model, 2).indexer
    assert own is not None and own.pairs == "interleaved" and shared is not None and shared.selects == "last"
    scheduled = read_small("glm_moe_dsa", indexer_types=..., index_topk_freq=2, index_skip_topk_offset=1)
    assert scheduled.pattern == "Lsls"
    assert read_small("glm_moe_dsa", indexer_types=..., index_topk_pattern="FSSF").pattern == "Lssl"
    assert read_small("glm_moe_dsa", num_experts=8) == model
    check_refused("glm_moe_dsa", "num_experts", "differs from n_routed_experts", num_experts=4)
    check_refused("glm_moe_dsa", "indexer_types", "no indexer before it", indexer_types=["shared"] * 4)
    check_refused("glm_moe_dsa", "index_topk_pattern", "4 letters", indexer_types=..., index_topk_pattern="FS")
    check_refused("glm_moe_dsa", "indexer_rope_interleave", "covered: True", indexer_rope_interleave=False)
    released = load_model("GLM-5.2").pattern
    assert released[:8] == "LLLsssls" and released.count("l") + released.count("L") == 21 and len(released) == 78


def test_a_list_of_kinds_wins_over_the_number_of_dense_layers() -> None:
    kinds = ["dense", "dense", "sparse", "sparse"]
    assert read_small("glm4_moe_lite", mlp_layer_types=kinds).pattern == "LLll"
    check_refused("glm4_moe_lite", "mlp_layer_types", "not covered: thick layers", mlp_layer_types=["thick"] * 4)
    check_refused("glm4_moe_lite", "mlp_layer_types", "4 layers are expected, not 2", mlp_layer_types=kinds[:2])


def test_latent_norms_keep_the_eps_of_their_class() -> None:
    model = read_small("glm4_moe_lite")
    assert latent(model).norm == Norm(eps=1e-6) and model.final == Norm(eps=1e-5)
    assert experts(model).router.scaling == 1.8


def test_glm45_turns_half_a_head_and_has_biases_on_three_projections() -> None:
    attention = read_small("glm4_moe").attention(0)
    assert isinstance(attention, Attention)
    assert (attention.qkv_bias, attention.out_bias) == (True, False)
    assert attention.rope is not None and (attention.rope.rotary_dim, attention.rope.pairs) == (8, "half")
    assert attention.qk_norm == QueryKeyNorm(norm=Norm(eps=1e-5))
    plain = load_model("GLM-4.5-Air").attention(0)
    assert plain is not None and plain.qk_norm is None and plain.q_width == 12288


def test_deepseek_v4_pools_entries_and_hashes_its_first_layers() -> None:
    model = read_small("deepseek_v4")
    assert model.pattern == "xyhs"
    assert [compressed(model, layer).ratio for layer in range(4)] == [None, 4, 128, 4]
    assert [compressed(model, layer).overlap for layer in range(4)] == [False, True, False, True]
    assert compressed(model, 1).indexer == EntryIndexer(heads=2, head_dim=8, top_k=4)
    assert compressed(model, 2).indexer is None
    assert [experts(model, layer).router.choice for layer in range(4)] == ["hash", "hash", "scores", "scores"]
    router, network = experts(model).router, experts(model)
    assert (router.score, router.correction, router.scaling) == ("sqrt-softplus", True, 1.5)
    assert network.clamp == 10.0 and network.shared is not None and network.shared.clamp == 10.0
    assert model.streams == HyperConnections(streams=4, iterations=20, eps=1e-6)
    assert model.drafts[0].block.letter == "w"


def test_deepseek_v4_has_two_rotations_of_the_last_dimensions() -> None:
    model = read_small("deepseek_v4")
    plain, pooled = compressed(model, 0).rope, compressed(model, 1).rope
    assert (plain.theta, plain.scaling, plain.rotary_dim) == (1e4, None, 4)
    assert (plain.at, plain.pairs) == (pooled.at, pooled.pairs) == ("trailing", "interleaved")
    assert pooled.theta == 160000.0 and isinstance(pooled.scaling, YarnScaling) and pooled.scaling.magnitude == 1.0


@pytest.mark.parametrize(
    ("field", "message", "changes"),
    [
        ("compress_ratios", "a ratio of 8", {"compress_ratios": [0, 4, 8, 4, 0]}),
        ("compress_ratios", "4 layers are expected, not 3", {"compress_ratios": [0, 4, 4]}),
        ("num_key_value_heads", "covered: 1", {"num_key_value_heads": 2}),
        ("o_groups", "must divide", {"o_groups": 3}),
        ("scoring_func", "covered: sqrtsoftplus", {"scoring_func": "sigmoid"}),
        ("norm_topk_prob", "covered: True", {"norm_topk_prob": False}),
        ("num_hash_layers", "must be from 0 to 4", {"num_hash_layers": 5}),
        ("qk_rope_head_dim", "must be even", {"qk_rope_head_dim": 5}),
    ],
)
def test_what_deepseek_v4_is_not(field: str, message: str, changes: dict[str, object]) -> None:
    check_refused("deepseek_v4", field, message, **changes)


def test_transformers_own_form_of_deepseek_v4_is_the_same_model() -> None:
    content = small_config("deepseek_v4", compress_ratios=..., num_hash_layers=..., qk_rope_head_dim=...)
    for key in ("rope_theta", "rope_scaling", "compress_rope_theta"):
        del content[key]
    main = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25}
    pooled = {"rope_type": "yarn", "rope_theta": 160000.0, "partial_rotary_factor": 0.25, "factor": 4.0}
    pooled |= {"original_max_position_embeddings": 128, "attention_factor": 1.0}
    content["rope_parameters"] = {"main": main, "compress": pooled}
    content["partial_rotary_factor"] = 0.25
    sparse, heavy = "compressed_sparse_attention", "heavily_compressed_attention"
    content["layer_types"] = ["sliding_attention", sparse, heavy, sparse]
    content["mlp_layer_types"] = ["hash_moe", "hash_moe", "moe", "moe"]
    content["compress_rates"] = {sparse: 4, heavy: 128}
    assert model_from_config(content, "deepseek_v4", "config.json") == read_small("deepseek_v4")
