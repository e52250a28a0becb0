"""Which models run: those of equal dense blocks, of families and positions that kernels compute, within windows."""

from helmsman.lowering.common_attention import common_attention
from helmsman.schemas.blocks.positions import LinearScaling, Llama3Scaling, LongRope, Rope
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Plan

NATIVE = ("llama", "mistral", "mixtral", "olmoe", "opt", "phi3", "qwen2", "qwen3", "qwen3_moe")
"""Families that kernels compute; others run through graphs of their modules."""


def check_native(model: Model, remedy: str = "run it through its module's graph: helm-run --backend torch") -> None:
    """Raise UsageError for a model whose family kernels do not compute, BadInputError for one whose
    layers differ in attention, or whose positions they do not compute."""
    position = common_attention(model).rope
    if model.family not in NATIVE:
        raise UsageError(
            f"no kernels for the family {model.family}",
            field="model.family",
            value=model.family,
            remedy=remedy,
        )
    if position is not None and not _turned(position):
        kind = f"{position.at}, {position.pairs}, {'plain' if position.scaling is None else position.scaling.kind}"
        remedy = "choose a model whose positions are plain, or scaled as linear, llama3 or longrope say"
        raise BadInputError("no kernels for these positions", field="model.position", value=kind, remedy=remedy)


def check_window(plan: Plan) -> None:
    """Raise BadInputError for a context beyond the window over which the model attends, which kernels do not know, or
    for a model whose layers differ in attention."""
    window = common_attention(plan.model).window
    if window is not None and plan.workload.context > window:
        raise BadInputError(
            f"{plan.model.name} attends over a window of {window} tokens, and contexts beyond it are planned and "
            "simulated, not executed",
            field="workload.context",
            value=plan.workload.context,
            remedy=f"plan for a context of at most {window}",
        )


def _turned(rope: Rope) -> bool:
    """Whether tables of cosines and sines hold these positions."""
    scaling = rope.scaling
    if isinstance(scaling, LongRope):
        scaled = scaling.short_magnitude is None and scaling.long_magnitude is None
    else:
        scaled = scaling is None or isinstance(scaling, LinearScaling | Llama3Scaling)
    return scaled and rope.at == "leading" and rope.pairs == "half"
