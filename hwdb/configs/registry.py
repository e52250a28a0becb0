"""Finds the reader of a config by its model type, and says why a known model type has none."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from helmsman.hwdb.configs.accounting import KnownKeys
from helmsman.hwdb.configs.families import (
    deepseek,
    deepseek_v4,
    falcon_h1,
    gemma,
    gemma4,
    glm,
    gpt,
    gpt_oss,
    granite,
    granite_hybrid,
    kimi_linear,
    lfm2,
    llama4,
    llama_like,
    mixtral_like,
    nemotron_h,
    opt,
    phimoe,
    qwen_next,
)
from helmsman.hwdb.configs.parts.config import Config
from helmsman.schemas.model import Model


class ConfigReader(NamedTuple):
    """Reads the configs of a model type; `keys`: those that it leaves."""

    read: Callable[[Config], Model]
    keys: KnownKeys


READERS: Mapping[str, ConfigReader] = {
    "deepseek_v2": ConfigReader(deepseek.deepseek_v2, deepseek.DEEPSEEK_V2_KEYS),
    "deepseek_v3": ConfigReader(deepseek.deepseek_v3, deepseek.DEEPSEEK_V3_KEYS),
    "deepseek_v32": ConfigReader(deepseek.deepseek_v32, deepseek.DEEPSEEK_V32_KEYS),
    "deepseek_v4": ConfigReader(deepseek_v4.deepseek_v4, deepseek_v4.DEEPSEEK_V4_KEYS),
    "falcon_h1": ConfigReader(falcon_h1.falcon_h1, falcon_h1.FALCON_H1_KEYS),
    "gemma2": ConfigReader(gemma.gemma2, gemma.GEMMA_KEYS),
    "gemma3_text": ConfigReader(gemma.gemma3, gemma.GEMMA_KEYS),
    "gemma4_text": ConfigReader(gemma4.gemma4, gemma4.GEMMA4_KEYS),
    "glm4_moe": ConfigReader(glm.glm4_moe, glm.GLM4_MOE_KEYS),
    "glm4_moe_lite": ConfigReader(glm.glm4_moe_lite, glm.GLM4_LITE_KEYS),
    "glm_moe_dsa": ConfigReader(glm.glm_moe_dsa, glm.GLM_DSA_KEYS),
    "gpt2": ConfigReader(gpt.gpt2, gpt.GPT2_KEYS),
    "gpt_neox": ConfigReader(gpt.gpt_neox, gpt.NEOX_KEYS),
    "gpt_oss": ConfigReader(gpt_oss.gpt_oss, gpt_oss.GPT_OSS_KEYS),
    "granite": ConfigReader(granite.granite, granite.GRANITE_KEYS),
    "granitemoe": ConfigReader(granite.granite_moe, granite.GRANITE_KEYS),
    "granitemoehybrid": ConfigReader(granite_hybrid.granite_hybrid, granite_hybrid.GRANITE_HYBRID_KEYS),
    "granitemoeshared": ConfigReader(granite.granite_moe, granite.GRANITE_KEYS),
    "kimi_k2": ConfigReader(deepseek.deepseek_v3, deepseek.DEEPSEEK_V3_KEYS),
    "kimi_linear": ConfigReader(kimi_linear.kimi_linear, kimi_linear.KIMI_LINEAR_KEYS),
    "lfm2": ConfigReader(lfm2.lfm2, lfm2.LFM2_KEYS),
    "lfm2_moe": ConfigReader(lfm2.lfm2_moe, lfm2.LFM2_MOE_KEYS),
    "llama": ConfigReader(llama_like.llama, llama_like.LLAMA_KEYS),
    "llama4_text": ConfigReader(llama4.llama4, llama4.LLAMA4_KEYS),
    "minimax_m2": ConfigReader(mixtral_like.minimax_m2, mixtral_like.MINIMAX_KEYS),
    "mistral": ConfigReader(llama_like.mistral, llama_like.MISTRAL_KEYS),
    "mixtral": ConfigReader(mixtral_like.mixtral, mixtral_like.MIXTRAL_KEYS),
    "nemotron_h": ConfigReader(nemotron_h.nemotron_h, nemotron_h.NEMOTRON_H_KEYS),
    "olmoe": ConfigReader(mixtral_like.olmoe, mixtral_like.OLMOE_KEYS),
    "opt": ConfigReader(opt.opt, opt.OPT_KEYS),
    "phi3": ConfigReader(llama_like.phi3, llama_like.PHI3_KEYS),
    "phimoe": ConfigReader(phimoe.phimoe, phimoe.PHIMOE_KEYS),
    "qwen2": ConfigReader(llama_like.qwen2, llama_like.QWEN2_KEYS),
    "qwen3": ConfigReader(llama_like.qwen3, llama_like.QWEN3_KEYS),
    "qwen3_5_moe_text": ConfigReader(qwen_next.qwen35_moe, qwen_next.QWEN35_KEYS),
    "qwen3_5_text": ConfigReader(qwen_next.qwen35, qwen_next.QWEN35_KEYS),
    "qwen3_moe": ConfigReader(mixtral_like.qwen3_moe, mixtral_like.QWEN3_MOE_KEYS),
    "qwen3_next": ConfigReader(qwen_next.qwen3_next, qwen_next.QWEN3_NEXT_KEYS),
}
"""What reads the config of a text model, by its model type."""

AROUND_TEXT: Mapping[str, str] = {
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "kimi_k25": "kimi_k2",
    "llama4": "llama4_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
}
"""The model type of the text model under `text_config`, by that of the file."""

NOT_DESCRIBED: Mapping[str, str] = {
    "gemma": "Gemma 1's norms and activations",
    "gemma3n": "Gemma 3n's alternating updates and sparse activations",
    "gemma4_assistant": "Gemma 4's draft model, which reads the caches of another",
    "glm5_next": "pooled indexers beside delta rules",
    "minimax_m3_vl": "MiniMax M3's pooled attention",
    "phi": "Phi-1/2's parallel attention and FFN",
    "qwen4_exp": "queries over blocks, a table of n-grams and mixed streams of low rank",
}
"""Why a model type that people ask for has no reader."""
