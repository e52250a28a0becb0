"""Computes mixers with states on a PyTorch device: what csrc/stage/recurrent_operation.h is for processors."""

from dataclasses import dataclass
from math import prod

import torch
from torch.nn.functional import silu, softplus

from helmsman.executor.devices.mixer_operations import ConvolutionOperation, GatedNormOperation, RecurrenceOperation
from helmsman.executor.devices.parts import Buffer, of_kind
from helmsman.executor.devices.tensors import Vector
from helmsman.executor.devices.torch.activations import Activations
from helmsman.executor.devices.torch.buffers import TorchBuffer

CHUNK = 64
"""Tokens that pass through a state together: a matrix of as many rows and columns is solved for each chunk."""
NORM_EPS = 1e-6
"""Added to sums of squares before keys and queries are divided by their roots."""


@dataclass(frozen=True)
class ConvolutionStep:
    """Taps f32 (taps, channels), bias f32 (channels,), factors f32 (width,), states f32 (sequences, taps - 1,
    channels); None: of another device, or none."""

    spec: ConvolutionOperation
    weights: torch.Tensor | None
    bias: torch.Tensor | None
    factors: torch.Tensor | None
    states: torch.Tensor | None


@dataclass(frozen=True)
class RecurrenceStep:
    """Vectors of decays f32, and states f32 (sequences, value_heads, key_dim, value_dim)."""

    spec: RecurrenceOperation
    offsets: torch.Tensor | None
    rates: torch.Tensor | None
    passing: torch.Tensor | None
    states: torch.Tensor | None


@dataclass(frozen=True)
class GatedNormStep:
    """Weights f32 of a group, or of a whole row."""

    spec: GatedNormOperation
    weights: torch.Tensor | None


MixerStep = ConvolutionStep | RecurrenceStep | GatedNormStep
"""A step of a mixer with states."""


def mixer_step(op: ConvolutionOperation | RecurrenceOperation | GatedNormOperation) -> MixerStep:
    """Return an operation with its weights and states as tensors."""
    if op["kind"] == "convolution":
        shape = op["taps"], op["channels"]
        weights, bias = _floats(op["weights"], *shape), _floats(op["bias"], op["channels"])
        states = _states(op["states"], op["taps"] - 1, op["channels"])
        return ConvolutionStep(op, weights, bias, _floats(op["factors"], op["width"]), states)
    if op["kind"] == "recurrence":
        heads = op["value_heads"]
        decays = heads * (op["key_dim"] if op["per_dimension"] else 1)
        vectors = _floats(op["offsets"], decays), _floats(op["rates"], heads), _floats(op["passing"], heads)
        return RecurrenceStep(op, *vectors, _states(op["states"], heads, op["key_dim"], op["value_dim"]))
    width = op["width"] if op["own_weights"] else op["width"] // op["groups"]
    return GatedNormStep(op, _floats(op["weights"], width))


def _floats(buffer: Vector | None, *shape: int) -> torch.Tensor | None:
    return None if buffer is None else of_kind(buffer, TorchBuffer).view(torch.float32, *shape)


def _states(buffer: Buffer | None, *shape: int) -> torch.Tensor | None:
    if buffer is None:
        return None
    flat = of_kind(buffer, TorchBuffer).bytes.view(torch.float32)
    return flat[: len(flat) // prod(shape) * prod(shape)].view(-1, *shape)


@dataclass(frozen=True)
class SequenceRun:
    """Rows of sequences that have as many tokens each: `rows` of a pass, int64 (sequences, tokens) or None for all of
    them in order; `slots` of their states; `begins`, bool (sequences,): which of them begin with these tokens."""

    sequences: int
    tokens: int
    begins: torch.Tensor
    slots: torch.Tensor | None = None
    rows: torch.Tensor | None = None

    def take(self, values: torch.Tensor) -> torch.Tensor:
        """Return (sequences, tokens, width) of rows (count, width)."""
        return values.view(self.sequences, self.tokens, -1) if self.rows is None else values[self.rows]

    def put(self, values: torch.Tensor, made: torch.Tensor) -> None:
        """Write what `take` would return."""
        if self.rows is None:
            values.view(made.shape).copy_(made)
        else:
            values[self.rows.flatten()] = made.reshape(-1, made.shape[-1])

    def state(self, states: torch.Tensor) -> torch.Tensor:
        """Return a copy of the states of the sequences, zeros where they begin."""
        own = states[: self.sequences] if self.slots is None else states[self.slots]
        return own.masked_fill(self.begins.view(-1, *[1] * (own.dim() - 1)), 0.0)

    def keep(self, states: torch.Tensor, made: torch.Tensor) -> None:
        """Write states of the sequences."""
        if self.slots is None:
            states[: self.sequences].copy_(made)
        else:
            states[self.slots] = made


def compute_mixer(step: MixerStep, activations: Activations, tokens: int, runs: list[SequenceRun]) -> None:
    """Compute a step for `tokens` rows of each sequence, of which `runs` say whose they are."""
    match step:
        case ConvolutionStep():
            for run in runs:
                _convolve(step, activations, tokens, run)
        case RecurrenceStep():
            for run in runs:
                _recur(step, activations, tokens, run)
        case GatedNormStep():
            _gated_norm(step, activations, tokens)


def _convolve(step: ConvolutionStep, activations: Activations, tokens: int, run: SequenceRun) -> None:
    op, source = step.spec, activations.rows(step.spec["inputs"][0], tokens)
    assert step.weights is not None and step.states is not None, "a convolution of this stage"
    taps, channels, at = op["taps"], op["channels"], op["at"]
    whole = run.take(source)
    if step.factors is not None:
        whole = whole * step.factors
    x = whole[..., at : at + channels]
    if op["gates"]:
        after = whole[..., channels : 2 * channels]
        x = whole[..., :channels] * whole[..., 2 * channels :]
    seen = torch.cat([run.state(step.states), x], 1)
    made = sum((seen[:, tap : tap + run.tokens] * step.weights[tap] for tap in range(taps)), torch.zeros_like(x))
    if step.bias is not None:
        made = made + step.bias
    made = silu(made) if op["silu"] else made
    run.keep(step.states, seen[:, run.tokens :])
    if op["gates"]:
        return run.put(activations.rows(op["output"], tokens), after * made)
    return run.put(source, torch.cat([whole[..., :at], made, whole[..., at + channels :]], -1))


def _recur(step: RecurrenceStep, activations: Activations, tokens: int, run: SequenceRun) -> None:
    op, inputs = step.spec, [run.take(activations.rows(name, tokens)) for name in step.spec["inputs"]]
    assert step.rates is not None and step.offsets is not None and step.states is not None
    heads, keys, values, shared = op["value_heads"], op["key_dim"], op["value_dim"], op["key_heads"]

    def parted(begin: int, count: int, width: int) -> torch.Tensor:
        part = _parts(inputs[0][..., begin : begin + count * width], count)
        repeated = part.repeat(1, 1, heads // count, 1) if op["tiled"] else part.repeat_interleave(heads // count, 2)
        return repeated.transpose(1, 2)

    q, k = parted(op["queries"], shared, keys), parted(op["keys"], shared, keys)
    v = parted(op["values"], heads, values)
    if op["normalised"]:
        q, k = (x * torch.rsqrt(x.square().sum(-1, keepdim=True) + NORM_EPS) for x in (q, k))
    q, steps = q * op["query_scale"], op["steps"]
    if op["corrects"]:
        raw, rate = inputs[1], torch.sigmoid(inputs[2])
        decay = softplus(raw + step.offsets)
    else:
        assert steps is not None, "a state space has time steps"
        decay = rate = softplus(inputs[0][..., steps : steps + heads] + step.offsets)
        if op["longest"] is not None:
            decay = rate = rate.clamp(max=op["longest"])
    decay = -torch.exp(step.rates).view(-1, 1) * _parts(decay, heads)
    parts = (decay.transpose(1, 2), rate.transpose(1, 2))
    state = run.state(step.states)
    made, state = recurrence((q, k, v), parts, state, op["corrects"])
    if step.passing is not None:
        made = made + step.passing.view(-1, 1, 1) * v
    run.keep(step.states, state)
    run.put(activations.rows(op["output"], tokens), made.transpose(1, 2).flatten(2))


def _parts(values: torch.Tensor, count: int) -> torch.Tensor:
    """Return (..., width) as (..., count, width / count)."""
    return values.reshape(*values.shape[:-1], count, values.shape[-1] // count)


def recurrence(
    heads: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    parts: tuple[torch.Tensor, torch.Tensor],
    state: torch.Tensor,
    corrects: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return outcomes (n, heads, tokens, value_dim) and the last state (n, heads, key_dim, value_dim), chunk by chunk.

    `heads`: queries, keys (n, heads, tokens, key_dim) and values; `parts`: logarithms of decays (n, heads, tokens, 1 or
    key_dim), and rates (n, heads, tokens). Decays per dimension of keys pass token by token."""
    size = CHUNK if parts[0].shape[-1] == 1 else 1
    outcomes = list[torch.Tensor]()
    for begin in range(0, heads[0].shape[2], size):
        q, k, v, decay, rate = (x[:, :, begin : begin + size] for x in (*heads, *parts))
        gone = decay.cumsum(2)
        seen = torch.matmul(k * gone.exp(), state)
        new = rate.unsqueeze(-1) * (v - seen if corrects else v)
        if gone.shape[2] > 1:
            later = torch.ones(gone.shape[2], gone.shape[2], dtype=torch.bool, device=q.device).triu(1)
            between = (gone - gone.transpose(2, 3)).masked_fill(later, -torch.inf).exp()
            if corrects:
                among = rate.unsqueeze(-1) * torch.matmul(k, k.transpose(2, 3)) * between
                unit = torch.eye(gone.shape[2], device=q.device) + among.tril(-1)
                new = torch.linalg.solve_triangular(unit, new, upper=False, unitriangular=True)
            weights = torch.matmul(q, k.transpose(2, 3)) * between
        else:
            weights = (q * k).sum(-1, keepdim=True)
        outcomes.append(torch.matmul(q * gone.exp(), state) + torch.matmul(weights, new))
        last = gone[:, :, -1:]
        state = last.exp().transpose(2, 3) * state + torch.matmul((k * (last - gone).exp()).transpose(2, 3), new)
    return torch.cat(outcomes, 2), state


def _gated_norm(step: GatedNormStep, activations: Activations, tokens: int) -> None:
    op = step.spec
    x, gates = (activations.rows(name, tokens) for name in op["inputs"])
    z = gates[:, op["at"] : op["at"] + op["width"]]
    gate = silu(z) if op["gate"] == "silu" else torch.sigmoid(z)
    if op["eps"] is None:
        x.mul_(gate)
        return
    assert step.weights is not None, "a norm of this stage"
    groups = _parts(x * gate if op["gate_first"] else x, op["groups"])
    normed = groups * torch.rsqrt(groups.square().mean(-1, keepdim=True) + op["eps"])
    weights = step.weights.view(-1, normed.shape[-1])
    made = (normed * weights).flatten(1)
    x.copy_(made if op["gate_first"] else made * gate)
