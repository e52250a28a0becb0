"""Routed experts on a PyTorch device: what csrc/kernels/experts is for processors."""

import torch

from helmsman.executor.devices.operations import RouterOperation
from helmsman.executor.devices.torch.gates import gated
from helmsman.executor.devices.torch.steps import ExpertsStep, RouterStep
from helmsman.executor.devices.torch.weights import TorchLinear

Choice = tuple[torch.Tensor, torch.Tensor]
"""Of every row the experts, int64 (rows, chosen), ascending, and their weights, f32."""


def route(step: RouterStep, logits: torch.Tensor) -> Choice:
    """Return the choice of f32 `logits` (rows, experts)."""
    op = step.spec
    scores = _scores(op, logits)
    compared = scores if step.correction is None else scores + step.correction
    chosen = torch.topk(_of_groups(op, compared), op["chosen"], dim=-1, sorted=False).indices.sort(-1).values
    weights = (scores if op["weights"] == "scores" else logits).gather(-1, chosen)
    if op["weights"] == "softmax-of-chosen":
        weights = torch.softmax(weights, -1)
    if op["normalised"]:
        weights = weights / (weights.sum(-1, keepdim=True) + op["eps"])
    weights = weights * op["scaling"]
    return chosen, weights if step.expert_scale is None else weights * step.expert_scale[chosen]


def _scores(op: RouterOperation, logits: torch.Tensor) -> torch.Tensor:
    match op["score"]:
        case "softmax":
            return torch.softmax(logits, -1)
        case "sigmoid":
            return torch.sigmoid(logits)
        case "sqrt-softplus":
            return torch.nn.functional.softplus(logits).sqrt()
        case "none":
            return logits


def _of_groups(op: RouterOperation, compared: torch.Tensor) -> torch.Tensor:
    """Return what is compared, -infinity outside the best groups."""
    if not op["groups"]:
        return compared
    grouped = compared.view(len(compared), op["groups"], -1)
    best = grouped.topk(2 if op["by"] == "best-two" else 1, dim=-1).values.sum(-1)
    kept = torch.zeros_like(best, dtype=torch.bool).scatter_(1, best.topk(op["kept"], dim=-1).indices, value=True)
    return grouped.masked_fill(~kept.unsqueeze(-1), -torch.inf).view(compared.shape)


def add_experts(step: ExpertsStep, x: torch.Tensor, choice: Choice, target: torch.Tensor) -> None:
    """Add to f32 `target` (rows, hidden) the weighted networks of f32 `x`, in ascending order of experts."""
    assert step.up is not None and step.down is not None, "experts of this stage"
    chosen, weights = choice
    for expert in sorted(set(chosen.flatten().tolist())):
        rows, slot = (chosen == expert).nonzero(as_tuple=True)
        share = weights[rows, slot].unsqueeze(-1)
        given = x[rows] * share if step.spec["input_scaled"] else x[rows]
        up = _product(step.up[expert], given)
        gate = None if step.gate is None else _product(step.gate[expert], given)
        out = _product(step.down[expert], gated(step.spec["activation"], step.spec["limit"], gate, up))
        target.index_add_(0, rows, out if step.spec["input_scaled"] else out * share)


def _product(matrix: TorchLinear, x: torch.Tensor) -> torch.Tensor:
    result = torch.empty((len(x), matrix.rows), dtype=torch.float32, device=x.device)
    matrix.multiply(x.to(matrix.weight.factor), result)
    return result
