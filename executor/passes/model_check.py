"""Says which models run: those of families and positions that kernels compute."""

from helmsman.lowering.common_attention import latent_attention
from helmsman.schemas.blocks.positions import LongRope, Rope
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.model import Model

NATIVE = (
    "falcon_h1",
    "gemma2",
    "gemma3",
    "gemma3_text",
    "gemma4",
    "gemma4_text",
    "glm4_moe",
    "gpt_oss",
    "granite",
    "granitemoe",
    "granitemoehybrid",
    "granitemoeshared",
    "kimi_linear",
    "lfm2",
    "lfm2_moe",
    "llama",
    "minimax_m2",
    "mistral",
    "mixtral",
    "nemotron_h",
    "olmoe",
    "opt",
    "phi3",
    "qwen2",
    "qwen3",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_5_moe_text",
    "qwen3_5_text",
    "qwen3_moe",
    "qwen3_next",
)
"""Families that kernels compute; others run through graphs of their modules."""

LATENT = ("deepseek_v2", "deepseek_v3", "glm4_moe_lite", "kimi_k2", "kimi_k25")
"""Families of latent attention that kernels compute."""


def check_native(model: Model, remedy: str = "run it through its module's graph: helm-run --backend torch") -> None:
    """Raise UsageError for a model whose family kernels do not compute, BadInputError for one whose positions they do
    not compute."""
    latent = model.family in LATENT and latent_attention(model) is not None
    if not latent and model.family not in NATIVE:
        raise UsageError(
            f"no kernels for the family {model.family}",
            field="model.family",
            value=model.family,
            remedy=remedy,
        )
    for attention in (layout.attention for layout in model.layouts):
        position = None if attention is None else attention.rope
        if position is not None and not _turned(position):
            kind = f"{position.at}, {position.pairs}, {'plain' if position.scaling is None else position.scaling.kind}"
            remedy = "choose a model whose positions are in pairs of halves, without magnitudes of their own"
            raise BadInputError("no kernels for these positions", field="model.position", value=kind, remedy=remedy)


def _turned(rope: Rope) -> bool:
    """Whether tables of cosines and sines hold these positions."""
    scaling = rope.scaling
    loud = isinstance(scaling, LongRope) and (scaling.short_magnitude, scaling.long_magnitude) != (None, None)
    return not loud and rope.at == "leading" and rope.pairs == "half"
