"""Requests that work, and answers to others, as OpenAPI shows them."""

from typing import Any

_SMALL: dict[str, Any] = {"model": "Qwen3-8B", "hardware": "rtx4060-laptop", "strategy": "layer-split"}
_PARTS: dict[str, Any] = {"cpu": "AMD Ryzen 9 5950X", "ram": 64_000_000_000, "gpu": "RTX 3090"}
_CHANGED: dict[str, Any] = {"base": "rtx4060-laptop", "changes": ["vram=12GB", "dram_bw=x1.5"]}

PLAN: dict[str, Any] = {
    "named": _SMALL,
    "best": {"model": "Qwen3-8B", "hardware": "rtx4060-laptop", "format": "q4_k", "context": 4096},
    "engine": {**_SMALL, "strategy": "best", "engine": "llama.cpp", "options": {"build_era": "2025", "threads": 8}},
    "parts": {"model": "Qwen3-14B", "hardware": _PARTS, "format": "q4_k", "strategy": "layer-split"},
    "changed": {**_SMALL, "hardware": _CHANGED, "prompt_tokens": 512},
}
COMPARISON: dict[str, Any] = {
    "two": {"question": _SMALL | {"strategy": "best"}, "strategies": ["layer-split", "llama-cpp"]}
}
SIMULATION: dict[str, Any] = {
    "replay": {"question": _SMALL, "timeline": True, "steps": 2},
    "serving": {"question": _SMALL, "serving": {"requests": "synthetic:n=20,input=64,output=16,rate=2"}},
    "listed": {
        "question": _SMALL,
        "serving": {"requests": [{"arrival": 0.0, "prompt_tokens": 64, "output_tokens": 16}]},
    },
}
STUDY: dict[str, Any] = {
    "formats": {
        "models": ["Qwen3-0.6B"],
        "machines": ["rtx4060-laptop"],
        "formats": ["f16", "q8_0"],
        "strategies": ["layer-split"],
        "sensitivity": 0,
    }
}
MODEL: dict[str, Any] = {
    "config.json": {
        "model_type": "qwen3",
        "hidden_size": 1024,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 3072,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    }
}
MACHINE: dict[str, Any] = {"parts": _PARTS, "changed": _CHANGED}
STRATEGIES: dict[str, Any] = {
    "two": {
        "schema": "helm.listing/1",
        "kind": "strategies",
        "entries": [
            {"name": "best", "about": "the simplest of several strategies' plans"},
            {"name": "layer-split", "about": "the first layers on the CPU, the others on the accelerator"},
        ],
    }
}
