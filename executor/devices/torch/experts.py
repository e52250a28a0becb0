"""Routed experts on a PyTorch device: what csrc/kernels/experts is for processors."""

from math import prod

import torch

from helmsman.executor._kernels import Buffer as HostBuffer
from helmsman.executor.devices.operations import RouterOperation
from helmsman.executor.devices.parts import of_kind
from helmsman.executor.devices.specs import StageSpec
from helmsman.executor.devices.torch.activations import Activations
from helmsman.executor.devices.torch.gates import gated
from helmsman.executor.devices.torch.steps import ExpertsStep, RouterStep
from helmsman.executor.devices.torch.weights import TorchLinear

Choice = tuple[torch.Tensor, torch.Tensor]
"""Of every row the experts, int64 (rows, chosen), ascending, and their weights, f32."""


def choose_experts(spec: StageSpec, step: RouterStep, activations: Activations, tokens: int, past: int) -> None:
    """Leave the choice of `tokens` tokens on top of `past` and, where they are wanted, a message and a record of it."""
    op, rows = step.spec, activations.rows
    assert step.matrix is not None, "a router of this stage"
    logits = rows(op["output"], tokens)
    x = rows(op["inputs"][0], tokens)
    if step.input_norm is not None and "input_norm" in op:
        x = step.input_norm.of(x, op["input_norm"]["norm"], op["input_norm"]["eps"])
    step.matrix.multiply(x.to(step.matrix.weight.factor), logits)
    logits.mul_(op.get("logit_scale", 1.0))
    chosen, weights = route(step, logits)
    rows(op["choice"], tokens).view(torch.int32).copy_(chosen)
    rows(op["shares"], tokens).copy_(weights)
    if (record := op.get("record")) is not None:
        place = spec["batch"], spec.get("context", spec["capacity"]), op["chosen"]
        kept = torch.frombuffer(memoryview(of_kind(record, HostBuffer)), dtype=torch.int32)[: prod(place)].view(place)
        kept[:, past : past + tokens] = chosen.view(place[0], tokens, -1).to("cpu", torch.int32)
    if op.get("sends") and (message := op.get("message")):
        read = [rows(name, tokens).view(torch.int32) for name in (op["inputs"][0], op["choice"], op["shares"])]
        rows(message, tokens).copy_(torch.cat(read, -1).view(torch.float32))


def compute_experts(step: ExpertsStep, activations: Activations, tokens: int) -> None:
    """Add the networks of this stage's experts to hidden states, or leave their sum."""
    op, rows = step.spec, activations.rows
    target, values = rows(op["output"], tokens), [rows(name, tokens) for name in op["inputs"]]
    if len(values) == 1:  # a message, of which the sum is wanted alone
        width, chosen = target.shape[-1], op["chosen"]
        values = [values[0][:, :width], values[0][:, width : width + chosen], values[0][:, width + chosen :]]
    if op["output"] != "hidden" and not (step.slots is not None and step.slots.goes_on):
        target.zero_()
    x, ids, shares = values
    add_experts(step, x, (ids.view(torch.int32).long(), shares), target)


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
    for expert, place in step.computed(sorted(set(chosen.flatten().tolist()))):
        up_matrix, down_matrix = step.up[place], step.down[place]
        gate_matrix = None if step.gate is None else step.gate[place]
        assert up_matrix is not None and down_matrix is not None, "experts that are computed here"
        rows, slot = (chosen == expert).nonzero(as_tuple=True)
        share = weights[rows, slot].unsqueeze(-1)
        given = x[rows] * share if step.spec["input_scaled"] else x[rows]
        gate_bias, up_bias, down_bias = (None if biases is None else biases[expert] for biases in step.biases)
        up = _product(up_matrix, given, up_bias)
        gate = None if gate_matrix is None else _product(gate_matrix, given, gate_bias)
        out = _product(down_matrix, gated(step.spec["activation"], step.spec["limit"], gate, up), down_bias)
        target.index_add_(0, rows, out if step.spec["input_scaled"] else out * share)


def _product(matrix: TorchLinear, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return f32 (rows of x, rows of the matrix), with a bias that the matrix has not."""
    result = torch.empty((len(x), matrix.rows), dtype=torch.float32, device=x.device)
    matrix.multiply(x.to(matrix.weight.factor), result)
    return result if bias is None else result.add_(bias)
