"""Which plans run: those whose decode steps read keys and values of every past token, in parts that kernels compute."""

from helmsman.lowering.ops import LINEAR_OPS, PANEL
from helmsman.lowering.rules import homes, places
from helmsman.lowering.tensors import Tensor, tensors
from helmsman.scheduler.iteration import PHASES
from helmsman.schemas.errors import UsageError
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Plan

NATIVE = ("llama", "mistral", "opt", "phi3", "qwen2", "qwen3")
"""Families that kernels compute; others run through graphs of their modules."""


def check_native(model: Model, remedy: str = "run it through its module's graph: --backend torch") -> None:
    """Raise UsageError for a model whose family kernels do not compute."""
    if model.family not in NATIVE:
        raise UsageError(
            f"no kernels for the family {model.family}",
            field="model.family",
            value=model.family,
            remedy=remedy,
        )


def check_executed(plan: Plan) -> None:
    """Raise UsageError for a plan that is planned and simulated only: with a variant of what caches hold or give, or
    with a part of a matrix that begins within a panel of rows."""
    if plan.workload.prefix_tokens:
        raise UsageError(
            "prompts that are known in part are planned and simulated, not executed",
            field="workload.prefix_tokens",
            value=plan.workload.prefix_tokens,
            remedy="plan without --prefix-tokens",
        )
    use = plan.schedule.cache
    if not use.plain:
        raise UsageError(
            "caches of activations and chosen tokens are planned and simulated, not executed",
            field="schedule.cache",
            value=use.label,
            remedy="plan without --kv-keep and --activation-cache",
        )
    managed = next((index for index, rule in enumerate(plan.residence) if rule.path == "managed"), None)
    if managed is not None:
        raise UsageError(
            "pages that migrate on touch are planned and simulated, not executed",
            field=f"residence.{managed}.path",
            value="managed",
            remedy="plan without --managed",
        )
    for tensor in tensors(plan.model):
        if len(tensor.shape) == 2:
            _check_panels(plan, tensor)


def _check_panels(plan: Plan, tensor: Tensor) -> None:
    """Parts of a matrix begin with a panel, where they are kept and where they are computed."""
    begins = [("residence", piece.start) for piece in homes(plan, tensor)]
    if tensor.op in LINEAR_OPS or tensor.op == "head":
        for phase in PHASES:
            parts = places(plan, tensor.op, tensor.layer, phase, tensor.shape[0], "rows")
            begins += [("compute", part.start) for part in parts]
    for field, row in begins:
        if row % PANEL:
            place = tensor.name if tensor.layer is None else f"{tensor.name} of block {tensor.layer}"
            raise UsageError(
                f"a part of {place} begins at row {row}, and rows are kept and computed by {PANEL}",
                field=field,
                value=row,
                remedy=f"begin and end parts at multiples of {PANEL} rows",
            )
