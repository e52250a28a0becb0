"""Small models of every family, in sizes that no kernel's block divides."""

from helmsman.schemas.blocks.positions import LearnedPositions, Rope
from helmsman.schemas.dense_model import DenseModel
from helmsman.schemas.described import described
from helmsman.schemas.model import Model

_COMMON = {"layers": 3, "hidden": 96, "heads": 4, "head_dim": 24, "ffn": 200, "vocab": 523, "max_context": 1024}


def small_model(family: str) -> Model:
    """The shape of `family` (qwen3, llama, opt, phi3) at toy size."""
    rotary = Rope(theta=10_000.0, rotary_dim=24)
    gated = {"activation": "silu", "gated": True, "norm": "rms", "norm_eps": 1e-6, "position": rotary}
    plain = {
        "activation": "relu",
        "gated": False,
        "norm": "layer",
        "norm_eps": 1e-5,
        "position": LearnedPositions(offset=2),
        "qkv_bias": True,
        "out_bias": True,
        "ffn_bias": True,
        "tied_embeddings": True,
    }
    shapes = {
        "qwen3": {**gated, "kv_heads": 2, "qk_norm": True, "tied_embeddings": True},
        "llama": {**gated, "kv_heads": 2},
        "phi3": {**gated, "kv_heads": 4},
        "opt": {**plain, "kv_heads": 4},
    }
    return described(
        DenseModel(name=f"small-{family}", family=family, native_format="f32", **_COMMON, **shapes[family])
    )
