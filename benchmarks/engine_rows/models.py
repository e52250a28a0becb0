"""The models that rows are about, and the formats of their files."""

import re
from functools import cache

from helmsman.hwdb.load_model import load_model
from helmsman.hwdb.model_config import model_from_config
from helmsman.lowering.named_mixes import named_mix
from helmsman.planner.tensor_formats import Formats
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.model import Model

_NAMES = (
    (r"LLaMA-1-7B|Llama-2-7B", "Llama-2-7b-hf"),
    (r"LLaMA-1-13B|Llama-2-13B", "Llama-2-13b-hf"),
    (r"Llama-2-70B", "Llama-2-70b-hf"),
    (r"LLaMA-1-(30B|65B)", r"LLaMA-1-\1"),
    (r"Meta-Llama-3-8B", "Meta-Llama-3-8B"),
    (r"Meta-Llama-3-70B", "Meta-Llama-3-70B"),
    (r"Llama-3.1-8B", "Llama-3.1-8B"),
    (r"Llama 3.1:70b", "Llama-3.1-70B"),
    (r"Mistral-7B", "Mistral-7B-v0.1"),
    (r"(?i)Qwen2\.5-7B", "Qwen2.5-7B"),
    (r"(?i)Qwen2\.5-(Coder-|coder:)?14b", "Qwen2.5-14B"),
    (r"Qwen3-14B", "Qwen3-14B"),
    (r"gemma-3-12b", "gemma-3-12b-it"),
    (r"gemma-2-9b", "gemma-2-9b"),
    (r"gemma4:e2b", "gemma-4-E2B-it"),
    (r"phi-4", "phi-4"),
    (r"Qwen3-30B-A3B", "Qwen3-30B-A3B"),
    (r"Qwen3-235B-A22B", "Qwen3-235B-A22B"),
    (r"Qwen3-Coder-Next|Qwen3-Next", "Qwen3-Next-80B-A3B-Instruct"),
    (r"DeepSeek-Coder-V2-Lite", "DeepSeek-V2-Lite"),
    (r"DeepSeek-V3", "DeepSeek-V3"),
    (r"GLM-4.5-Air", "GLM-4.5-Air"),
    (r"gpt-oss-120b", "gpt-oss-120b"),
    (r"Qwen3\.[56]-35B-A3B", "Qwen3.5-35B-A3B"),
    (r"MiniMax-M2.1", "MiniMax-M2.5"),
    (r"OPT-(6.7|13|30|66|175)B", r"opt-\1b"),
)
"""Models of the catalogue by what sources call them: what was trained further has the shapes of its first version."""

_FIRST_LLAMA = {"30B": (60, 6656, 52, 17920), "65B": (80, 8192, 64, 22016)}
"""Layers, hidden size, heads and width of networks (Touvron et al. 2023, table 2, and 8/3 of the hidden size rounded up
to 256)."""

_QUANTS: tuple[tuple[str, StoredFormat], ...] = (
    (r"^F16$|^FP16$|^fp16$", "f16"), (r"MXFP4", "mxfp4"), (r"Q8_0", "q8_0"), (r"Q6_K", "q6_k"),
    (r"Q5_0", "q5_0"), (r"Q5_K", "q5_k"),
    (r"IQ4_NL", "iq4_nl"), (r"IQ4_XS", "iq4_xs"), (r"IQ3_XXS", "iq3_xxs"), (r"IQ3_S", "iq3_s"), (r"IQ2_XXS", "iq2_xxs"),
    (r"IQ2_XS", "iq2_xs"), (r"IQ2_M", "iq2_s"), (r"Q4_0", "q4_0"), (r"Q4_K", "q4_k"),
    (r"Q3_K", "q3_k"), (r"Q2_K", "q2_k"), (r"FP8", "fp8_block"),
)  # fmt: skip


@cache
def model_named(text: str) -> Model | None:
    """Return the model that a source calls `text`; None for one that is not known."""
    named = next(((pattern, name) for pattern, name in _NAMES if re.search(pattern, text)), None)
    if named is None:
        return None
    matched = re.search(named[0], text)
    assert matched is not None
    name = matched.expand(named[1])
    return _first_llama(name) if name.startswith("LLaMA-1") else load_model(name)


def _first_llama(name: str) -> Model:
    layers, hidden, heads, width = _FIRST_LLAMA[name.rpartition("-")[2]]
    config = {
        "model_type": "llama", "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
        "num_key_value_heads": heads, "intermediate_size": width, "vocab_size": 32000, "max_position_embeddings": 16384,
        "hidden_act": "silu", "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "rope_scaling": None,
    }  # fmt: skip
    return model_from_config(config, name, name)


def format_named(quant: str) -> StoredFormat | None:
    """Return the format of most weights of a file; None where it is not stated."""
    return next((fmt for pattern, fmt in _QUANTS if re.search(pattern, quant)), None)


def formats_of(model: Model, quant: str) -> Formats:
    """Return the formats of a file's matrices where they are not all the same."""
    return named_mix(model, "q4_k_m") if re.search(r"Q4_K_M", quant) else {}
