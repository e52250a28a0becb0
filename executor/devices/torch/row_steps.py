"""Operations of a PyTorch stage that work on every row by itself: gates, norms of values, norms that are added, and
matrices of groups."""

import torch

from helmsman.executor.devices.torch.activations import Activations
from helmsman.executor.devices.torch.steps import (
    AppendStep,
    GroupedStep,
    NormSumStep,
    RowGateStep,
    ValueNormStep,
)

RowStep = RowGateStep | ValueNormStep | NormSumStep | GroupedStep
"""A step whose rows see nothing of each other."""


def compute_rows(step: RowStep, activations: Activations, tokens: int) -> None:
    """Compute a step for `tokens` of each sequence."""
    inputs = [activations.rows(name, tokens) for name in step.spec["inputs"]]
    target = activations.rows(step.spec["output"], tokens)
    match step:
        case RowGateStep():
            assert step.matrix is not None, "a matrix of this stage"
            x, value = inputs
            step.matrix.multiply(x.to(step.matrix.weight.factor), target)
            value.mul_(torch.sigmoid(target))
        case ValueNormStep():
            assert step.weights is not None, "a norm of this stage"
            target.copy_(step.weights.of(inputs[0], step.spec["norm"], step.spec["eps"]))
        case NormSumStep():
            _add_normed(step, inputs[0], target)
        case GroupedStep():
            assert step.matrices is not None, "matrices of this stage"
            shape = len(target), step.spec["groups"], -1
            step.matrices.multiply(inputs[0].view(shape), target.view(shape))


def _add_normed(step: NormSumStep, value: torch.Tensor, target: torch.Tensor) -> None:
    assert step.weights is not None, "a norm of this stage"
    normed = step.weights.of(value, step.spec["norm"], step.spec["eps"])
    target.add_(normed) if step.spec["adds"] else target.copy_(normed)
    if step.factor is not None:
        target.mul_(step.factor)


def values_of(step: AppendStep, activations: Activations, tokens: int) -> torch.Tensor:
    """Return (batch, tokens, kv_heads, head_dim), normed where they are: the values of a pass, or its keys as they were
    multiplied."""
    op = step.spec
    values = activations.heads(op["inputs"][-1], tokens, op["head_dim"])
    norm = op.get("value_norm")
    if norm is not None and step.value_norm is not None:
        return step.value_norm.of(values, norm["norm"], norm["eps"])
    return values if len(op["inputs"]) > 2 else values.clone()
