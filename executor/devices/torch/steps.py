"""Operations of a stage with their weights and caches as tensors."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from helmsman.executor.devices.operations import (
    AnyOperation,
    AppendOperation,
    AttentionOperation,
    CacheUser,
    CombineOperation,
    DividedAttention,
    EmbeddingOperation,
    ExpertMatrices,
    ExpertsOperation,
    GroupedOperation,
    HeadOperation,
    LatentAppendOperation,
    LayerInputsOperation,
    LayerTableOperation,
    LinearOperation,
    MemberOperation,
    NormOperation,
    NormSumOperation,
    RouterOperation,
    RowGateOperation,
    ValueNormOperation,
)
from helmsman.executor.devices.parts import Buffer, of_kind
from helmsman.executor.devices.specs import StageSpec
from helmsman.executor.devices.tensors import Vector
from helmsman.executor.devices.torch.buffers import TorchBuffer
from helmsman.executor.devices.torch.caches import HeadsCache, cache_of
from helmsman.executor.devices.torch.expert_slots import SlottedExperts, slotted_of
from helmsman.executor.devices.torch.grouped import GroupedWeights, grouped_of
from helmsman.executor.devices.torch.recurrent import ConvolutionStep, GatedNormStep, RecurrenceStep, mixer_step
from helmsman.executor.devices.torch.weights import (
    Lookup,
    TorchLinear,
    TorchNorm,
    linear_of,
    lookup_of,
    norm_of,
    weight_of,
)
from helmsman.executor.devices.value_sizes import F32_BYTES


@dataclass(frozen=True)
class EmbeddingStep:
    """`positions`: f32 (context, hidden), learned."""

    spec: EmbeddingOperation
    table: Lookup
    positions: torch.Tensor | None


@dataclass(frozen=True)
class LayerTableStep:
    """`inputs`: f32 (batch * tokens, columns), where rows of the table are left."""

    spec: LayerTableOperation
    table: Lookup
    inputs: torch.Tensor


@dataclass(frozen=True)
class LayerInputsStep:
    """The norm of a layer's part of a projection, and the rows (batch * tokens, width) that it joins."""

    spec: LayerInputsOperation
    weights: TorchNorm | None
    inputs: torch.Tensor


@dataclass(frozen=True)
class NormStep:
    """A norm of hidden states; None: of another device."""

    spec: NormOperation
    weights: TorchNorm | None


@dataclass(frozen=True)
class NormSumStep:
    """A norm of what a body gave, and f32 (1,) that multiplies its sum with what was there; None: of another device."""

    spec: NormSumOperation
    weights: TorchNorm | None
    factor: torch.Tensor | None


@dataclass(frozen=True)
class LinearStep:
    """A product with a matrix; None: of another device. `softcap`: of a head's logits; `inputs`: rows whose columns
    multiply what an activation makes."""

    spec: LinearOperation | HeadOperation
    matrix: TorchLinear | None
    softcap: float | None = None
    inputs: torch.Tensor | None = None

    def bound(self, logits: torch.Tensor) -> None:
        """Multiply the products of a head by its factor, and cap them, in place."""
        scale = self.spec.get("factor", 1.0)
        if scale != 1.0:
            logits.mul_(scale)
        if self.softcap is not None:
            logits.div_(self.softcap).tanh_().mul_(self.softcap)


@dataclass(frozen=True)
class RouterStep:
    """A router's matrix, and vectors f32 (experts,)."""

    spec: RouterOperation
    matrix: TorchLinear | None
    correction: torch.Tensor | None
    expert_scale: torch.Tensor | None
    input_norm: TorchNorm | None


@dataclass(frozen=True)
class ExpertsStep:
    """The matrices of every expert, or of every slot that `slots` says which expert is in; None: of another device, or
    no gate. `biases`: with slots, f32 (experts, rows) of gate, up and down, which matrices have else."""

    spec: ExpertsOperation
    gate: list[TorchLinear | None] | None
    up: list[TorchLinear | None] | None
    down: list[TorchLinear | None] | None
    slots: SlottedExperts | None
    biases: tuple[torch.Tensor | None, ...]

    def computed(self, chosen: list[int]) -> Iterator[tuple[int, int]]:
        """Yield those of some experts that are computed here, ascending, each with the place of its matrices."""
        if self.slots is not None:
            yield from self.slots.here(chosen)
        elif self.up is not None:
            yield from ((expert, expert) for expert in chosen if self.up[expert] is not None)


@dataclass(frozen=True)
class MemberStep:
    """A part of a later operation."""

    spec: MemberOperation


@dataclass(frozen=True)
class CombineStep:
    """Adds what was computed elsewhere."""

    spec: CombineOperation


@dataclass(frozen=True)
class RowGateStep:
    """A matrix of one row."""

    spec: RowGateOperation
    matrix: TorchLinear | None


@dataclass(frozen=True)
class CacheStep:
    """An operation over the cache of a block. `computes`: of divided attention, the KV heads; `sinks`: f32 (heads,)."""

    spec: AttentionOperation | DividedAttention
    keys: HeadsCache | None
    values: HeadsCache | None
    computes: range
    sinks: torch.Tensor | None

    @property
    def group(self) -> int:
        """Return how many query heads a KV head has."""
        return self.spec["heads"] // self.spec["kv_heads"]


@dataclass(frozen=True)
class AppendStep:
    """QK norms, tables of rotation f32 (context, rotary_dim / 2), and the cache that grows."""

    spec: AppendOperation
    keys: HeadsCache | None
    values: HeadsCache | None
    q_norm: TorchNorm | None
    k_norm: TorchNorm | None
    value_norm: TorchNorm | None
    cos: torch.Tensor | None
    sin: torch.Tensor | None


@dataclass(frozen=True)
class ValueNormStep:
    """A norm of a value of its own; None: of another device."""

    spec: ValueNormOperation
    weights: TorchNorm | None


@dataclass(frozen=True)
class LatentAppendStep:
    """The norm of latent vectors, tables of rotation f32 (context, rotated / 2), and the cache of rows that grows."""

    spec: LatentAppendOperation
    rows: HeadsCache | None
    weights: TorchNorm | None
    cos: torch.Tensor | None
    sin: torch.Tensor | None


@dataclass(frozen=True)
class GroupedStep:
    """A matrix for every group; None: of another device."""

    spec: GroupedOperation
    matrices: GroupedWeights | None


Step = (
    EmbeddingStep
    | LayerTableStep
    | LayerInputsStep
    | NormStep
    | NormSumStep
    | LinearStep
    | CacheStep
    | AppendStep
    | RouterStep
    | ExpertsStep
    | MemberStep
    | CombineStep
    | RowGateStep
    | ValueNormStep
    | LatentAppendStep
    | GroupedStep
    | ConvolutionStep
    | RecurrenceStep
    | GatedNormStep
)


def steps_of(spec: StageSpec, space: torch.Tensor) -> list[Step]:
    """Return the operations, in order; `space`: where quantised weights are expanded."""
    return [_step(spec, op, space) for op in spec["operations"]]


def _step(spec: StageSpec, op: AnyOperation, space: torch.Tensor) -> Step:
    if op["kind"] == "embedding":
        table = lookup_of(op["table"], space, op["looked_up"])
        return EmbeddingStep(op, table, _table(spec, op["positions"], spec["hidden"]))
    if op["kind"] == "norm":
        return NormStep(op, norm_of(op["weights"], spec["hidden"]))
    if op["kind"] == "norm-sum":
        return NormSumStep(op, norm_of(op["weights"], spec["hidden"]), _vector(op["factor"], 1))
    if op["kind"] == "layer-table":
        table = lookup_of(op["table"], space, op["looked_up"])
        return LayerTableStep(op, table, _layer_rows(op["layer_inputs"], op["table"]["columns"]))
    if op["kind"] == "layer-inputs":
        return LayerInputsStep(op, norm_of(op["weights"], op["part"]), _layer_rows(op["layer_inputs"], op["width"]))
    if op["kind"] == "linear":
        kept = op.get("layer_inputs")
        inputs = None if kept is None else _layer_rows(kept, op.get("width", 0))
        return LinearStep(op, linear_of(op["matrix"], space), inputs=inputs)
    if op["kind"] == "head":
        return LinearStep(op, linear_of(op["matrix"], space), op.get("softcap"))
    if op["kind"] == "append":
        return _append(spec, op)
    if op["kind"] == "router":
        vectors = (_vector(op["correction"], op["experts"]), _vector(op["expert_scale"], op["experts"]))
        return RouterStep(op, linear_of(op["matrix"], space), *vectors, norm_of(op.get("input_norm"), spec["hidden"]))
    if op["kind"] == "experts":
        shape = op["rows"], op.get("width", spec["hidden"])
        slots = slotted_of(op)
        shapes = ((op["gate"], shape), (op["up"], shape), (op["down"], shape[::-1]))
        made = [_experts(matrices, rows, space, slots is not None) for matrices, rows in shapes]
        biases = [_slot_biases(op, matrices, rows[0]) if slots is not None else None for matrices, rows in shapes]
        return ExpertsStep(op, made[0], made[1], made[2], slots, tuple(biases))
    if op["kind"] == "member":
        return MemberStep(op)
    if op["kind"] == "combine":
        return CombineStep(op)
    if op["kind"] == "row-gate":
        return RowGateStep(op, linear_of(op["matrix"], space))
    if op["kind"] == "value-norm":
        return ValueNormStep(op, norm_of(op["weights"], op["width"]))
    if op["kind"] == "latent-append":
        half, width = op["rotated"] // 2, op["head_dim"] - op["rotated"]
        rows, weights = cache_of(spec, op, op["keys"], [], transposed=False), norm_of(op["weights"], width)
        return LatentAppendStep(op, rows, weights, _table(spec, op["cos"], half), _table(spec, op["sin"], half))
    if op["kind"] == "grouped":
        return GroupedStep(op, grouped_of(op["matrix"], op["groups"], space))
    if op["kind"] == "convolution" or op["kind"] == "recurrence" or op["kind"] == "gated-norm":
        return mixer_step(op)
    stated = op["computes"] if op["kind"] != "attention" else None
    computes = range(op["kv_heads"]) if stated is None else range(*stated)
    sinks = _vector(op.get("sinks"), op["heads"])
    return CacheStep(op, *_caches(spec, op, divided=op["kind"] != "attention"), computes, sinks)


def _layer_rows(buffer: Buffer, width: int) -> torch.Tensor:
    """f32 (rows, width): all rows that a buffer has room for."""
    held = of_kind(buffer, TorchBuffer)
    return held.view(torch.float32, held.size // (F32_BYTES * width), width)


def _experts(
    matrices: ExpertMatrices | None, shape: tuple[int, int], space: torch.Tensor, in_slots: bool
) -> list[TorchLinear | None] | None:
    if matrices is None:
        return None
    (rows, columns), came = shape, range(*matrices.get("panels", (0, 0)))
    biases = None if in_slots else _vector(matrices["bias"], len(matrices["weights"]) * rows)
    return [
        None
        if weight is None
        else TorchLinear(
            weight_of(of_kind(weight, TorchBuffer), matrices["format"], rows, columns, space, number in came),
            rows,
            0,
            None if biases is None else biases[number * rows : (number + 1) * rows],
        )
        for number, weight in enumerate(matrices["weights"])
    ]


def _slot_biases(op: ExpertsOperation, matrices: ExpertMatrices | None, rows: int) -> torch.Tensor | None:
    """f32 (experts, rows): of all experts, whichever are in slots."""
    biases = None if matrices is None else _vector(matrices["bias"], op["experts"] * rows)
    return None if biases is None else biases.view(op["experts"], rows)


def _vector(buffer: Vector | None, values: int) -> torch.Tensor | None:
    return None if buffer is None else of_kind(buffer, TorchBuffer).view(torch.float32, values)


def _append(spec: StageSpec, op: AppendOperation) -> AppendStep:
    whole = op["over"] == "projection"
    widths = [op["head_dim"] * (op[heads] if whole else 1) for heads in ("heads", "kv_heads")]
    keys, values = op["kept_keys"], op["kept_values"]
    half = op["rotary_dim"] // 2
    return AppendStep(
        op,
        cache_of(spec, op, op["keys"], keys, op["transposed"]),
        cache_of(spec, op, op["values"], values, transposed=False),
        norm_of(op["q_norm"], widths[0]),
        norm_of(op["k_norm"], widths[1]),
        norm_of(op.get("value_norm"), op["head_dim"]),
        _table(spec, op["cos"], half),
        _table(spec, op["sin"], half),
    )


def _caches(spec: StageSpec, op: CacheUser, divided: bool) -> tuple[HeadsCache | None, HeadsCache | None]:
    return cache_of(spec, op, op["keys"], [], divided), cache_of(spec, op, op["values"], [], transposed=False)


def _table(spec: StageSpec, buffer: Vector | None, columns: int) -> torch.Tensor | None:
    if buffer is None or columns == 0:
        return None
    rows = spec.get("context", spec["capacity"])
    return of_kind(buffer, TorchBuffer).view(torch.float32, rows, columns)
