"""Lists keys of a `config.json` that readers do not use: those without effect on inference, and those with one value
only."""

from collections.abc import Mapping
from typing import Any

_TRAINING = """
activation_dropout attention_dropout attn_pdrop aux_loss_alpha classifier_dropout dropout embd_pdrop embedding_dropout
ep_size hidden_dropout init_std initializer_range input_jitter_noise layerdrop mlp_dropout output_router_logits
pretraining_tp rescale_prenorm_residual resid_pdrop router_aux_loss_coef router_jitter_noise router_z_loss_coef
seq_aux time_step_floor time_step_max time_step_min time_step_rank
"""
_TEXT = """
bos_token_id decoder_start_token_id forced_bos_token_id forced_eos_token_id pad_token_id prefix sep_token_id
suppress_tokens begin_suppress_tokens bad_words_ids tokenizer_class unk_token_id bos_token eos_token pad_token
"""
_GENERATION = """
diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty
length_penalty max_length min_length no_repeat_ngram_size num_beam_groups num_beams num_return_sequences
remove_invalid_values repetition_penalty temperature top_k top_p typical_p
"""
_LIBRARIES = """
attn_implementation auto_map cache_implementation chunk_size_feed_forward cross_attention_hidden_size finetuning_task
id2label ignore_index is_decoder label2id num_logits_to_keep output_attentions output_hidden_states output_scores
problem_type return_dict return_dict_in_generate task_specific_params tf_legacy_loss torchscript transformers_version
unsloth_fixed unsloth_version use_bfloat16 use_cache use_mamba_kernels
"""
_COMPILER = "attention_sink_size context_window_size max_batch_size prefill_chunk_size sliding_window_size"
"""Keys that MLC-LLM adds to a config: options of its engine."""

WITHOUT_EFFECT = frozenset(f"{_TRAINING} {_TEXT} {_GENERATION} {_LIBRARIES} {_COMPILER}".split())
"""Keys that change nothing which a forward pass of the text model computes."""

ONE_VALUE: Mapping[str, tuple[Any, ...]] = {
    "add_cross_attention": (False,),
    "attention_bias": (False,),
    "is_encoder_decoder": (False,),
    "layer_norm_elementwise_affine": (True,),
    "lm_head_bias": (False,),
    "mlp_bias": (False,),
    "mlp_only_layers": ([],),
    "num_nextn_predict_layers": (0,),
    "pruned_heads": ({},),
    "qkv_bias": (False,),
    "residual_in_fp32": (False,),
    "shared_expert_intermediate_size": (0,),
    "shared_intermediate_size": (0,),
    "tie_encoder_decoder": (False,),
    "use_sliding_window": (False,),
}
"""Keys that have an effect at other values than these."""

MULTIMODAL = frozenset(
    [
        "audio_config",
        "audio_token_id",
        "boa_token_id",
        "boi_token_id",
        "boi_token_index",
        "eoa_token_id",
        "eoa_token_index",
        "eoi_token_id",
        "eoi_token_index",
        "image_token_id",
        "image_token_index",
        "language_model_only",
        "media_placeholder_token_id",
        "mm_tokens_per_image",
        "projection_hidden_size",
        "projection_layer_norm_eps",
        "use_unified_vision_chunk",
        "video_placeholder",
        "video_token_id",
        "vision_config",
        "vision_end_token_id",
        "vision_soft_tokens_per_image",
        "vision_start_token_id",
    ]
)
"""Keys beside a `text_config` that are about images and sounds, which the text model does not see."""
