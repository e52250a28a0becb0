"""A small model of every family, with every feature that the family's files show."""

from typing import Any

from helmsman.schemas.blocks.positions import LearnedPositions, Llama3Scaling, LongRope, Rope
from helmsman.schemas.dense_model import DenseModel
from helmsman.schemas.described import described
from helmsman.schemas.model import Model

FAMILIES = ("llama", "mistral", "opt", "phi3", "qwen2", "qwen3")

_GATED = {"activation": "silu", "gated": True, "norm": "rms", "norm_eps": 1e-5}
_SIZES = {"layers": 4, "hidden": 256, "heads": 8, "kv_heads": 4, "head_dim": 64, "ffn": 640, "vocab": 1024}
_LLAMA3 = Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=256)
_BIASED = {"qkv_bias": True, "out_bias": True, "ffn_bias": True}


def family_model(family: str) -> Model:
    """Four blocks of width 256; grouped-query attention except for OPT."""
    shapes: dict[str, dict[str, Any]] = {
        "llama": {**_GATED, **_BIASED, "position": Rope(theta=5e5, rotary_dim=64, scaling=_LLAMA3)},
        "mistral": {**_GATED, "position": Rope(theta=1e4, rotary_dim=64), "sliding_window": 900},
        "qwen2": {**_GATED, "qkv_bias": True, "position": Rope(theta=1e6, rotary_dim=64)},
        "qwen3": {**_GATED, "qk_norm": True, "position": Rope(theta=1e6, rotary_dim=64), "tied_embeddings": True},
        "phi3": {**_GATED, "heads": 4, "kv_heads": 2, "position": _phi3_rope()},
        "opt": {**_opt(), **_BIASED},
    }
    fmt = "f16" if family == "opt" else "bf16"
    common = {"name": f"small-{family}", "max_context": 2048, "native_format": fmt, "eos": (2,)}
    return described(DenseModel(family=family, **common, **{**_SIZES, **shapes[family]}))


def _phi3_rope() -> Rope:
    short, long = tuple(1.0 + 0.01 * i for i in range(24)), tuple(1.0 + 0.3 * i for i in range(24))
    scaling = LongRope(short_factor=short, long_factor=long, original_context=1024)
    return Rope(theta=1e4, rotary_dim=48, scaling=scaling)


def _opt() -> dict[str, Any]:
    plain = {"activation": "relu", "gated": False, "norm": "layer", "norm_eps": 1e-5, "tied_embeddings": True}
    return {**plain, "heads": 4, "kv_heads": 4, "position": LearnedPositions()}
