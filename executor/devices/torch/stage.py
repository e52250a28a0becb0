"""All consecutive operations of a PyTorch device: what csrc/stage/stage.h is for processors.

The residual stream, norms and what crosses links are f32; products read weights in their own format, or the f32
values of quantised ones, and attention reads the cache in its own. Passes of one token take their position from the
device, so that a captured graph serves every position of a bucket."""

from collections.abc import Callable, Sequence
from typing import assert_never

import torch

from helmsman.executor.devices.parts import KvSpan, Region
from helmsman.executor.devices.specs import AnySpec
from helmsman.executor.devices.torch.activations import Activations
from helmsman.executor.devices.torch.block_attention import BlockAttention
from helmsman.executor.devices.torch.buffers import TorchBuffer
from helmsman.executor.devices.torch.experts import choose_experts, compute_experts
from helmsman.executor.devices.torch.gates import ACTIVATIONS, gated
from helmsman.executor.devices.torch.latent import place_latent
from helmsman.executor.devices.torch.layer_inputs import PassPart, join_inputs, look_up_inputs
from helmsman.executor.devices.torch.positions import Positions
from helmsman.executor.devices.torch.recurrent import (
    ConvolutionStep,
    GatedNormStep,
    RecurrenceStep,
    SequenceRun,
    compute_mixer,
)
from helmsman.executor.devices.torch.regions import regions_of
from helmsman.executor.devices.torch.rotation import Angles, angles_at, rotate
from helmsman.executor.devices.torch.row_steps import compute_rows, values_of
from helmsman.executor.devices.torch.steps import (
    AppendStep,
    CacheStep,
    CombineStep,
    EmbeddingStep,
    ExpertsStep,
    GroupedStep,
    LatentAppendStep,
    LayerInputsStep,
    LayerTableStep,
    LinearStep,
    MemberStep,
    NormStep,
    NormSumStep,
    RouterStep,
    RowGateStep,
    Step,
    ValueNormStep,
    steps_of,
)


class TorchStage:
    """Operations as native stages name them, over a workspace laid out as theirs."""

    def __init__(
        self, spec: AnySpec, workspace: TorchBuffer, first_layer: int, positions: Positions | None = None
    ) -> None:
        self._spec = spec
        self.workspace = workspace
        self._first_layer = first_layer
        self._regions = regions_of(spec, first_layer)
        self._activations = Activations(spec, workspace, self._regions)
        self._positions = positions or Positions(spec["capacity"], workspace.bytes.device)
        self._attending = BlockAttention(spec, self._activations, self._positions)
        space = workspace.part(self._regions.expanded, self._regions.size - self._regions.expanded)
        self._steps = steps_of(spec, space.bytes.view(torch.float32))
        self._names = [_title(step, first_layer) for step in self._steps]
        self._angles: dict[int, Angles] = {}
        self._factors: tuple[str, torch.Tensor] | None = None
        self._ids = torch.zeros(self._regions.rows, dtype=torch.int64, device=workspace.bytes.device)
        self._numbers = torch.zeros_like(self._ids)
        self._begin = 0
        self._of_pass: int | None = None
        self._part = PassPart(spec["batch"], 0, 1, 1)
        self._chosen = torch.zeros(spec["batch"], dtype=torch.int64, device=workspace.bytes.device)

    @property
    def ops(self) -> list[str]:
        """`embedding`, `3.q`, ..."""
        return self._names

    def regions(self) -> dict[str, Region]:
        """Where activations are in the workspace."""
        return self._regions.at

    def logits(self) -> memoryview:
        """f32 (batch, vocab) of the last pass."""
        return self._activations.logits.cpu().numpy().data

    @property
    def batch(self) -> int:
        """Sequences."""
        return self._spec["batch"]

    @property
    def width(self) -> int:
        """Values of a hidden state."""
        return self._spec["hidden"]

    @property
    def chunk(self) -> int:
        """Tokens of each sequence that pass at a time."""
        return self._regions.rows // self._spec["batch"]

    def embeds(self, first: int) -> bool:
        """Whether operation `first` reads token ids."""
        return isinstance(self._steps[first], EmbeddingStep | LayerTableStep)

    def chooses(self, last: int) -> bool:
        """Whether the operation before `last` chooses tokens."""
        return self._steps[last - 1].spec["kind"] == "head"

    def replays(self, first: int, last: int) -> bool:
        """Whether operations [first, last) for one token may be captured once for a bucket: those of divided attention
        reach as far as the pass that is captured, experts are those that its tokens chose, and a record of choices is
        the host's."""
        divided = ("scores", "softmax", "weighted")
        apart = (*divided, "experts")
        steps = self._steps[first:last]
        recorded = any(isinstance(step, RouterStep) and step.spec.get("record") is not None for step in steps)
        return not recorded and not any(step.spec["kind"] in apart for step in steps)

    def feed(self, ids: torch.Tensor, part: slice, at: int) -> None:
        """Of the ids (batch, tokens) of a pass, those that lookups are to read next, and the position of the first; and
        the numbers of theirs, where rows of a table have been looked up for all of them."""
        numbers = torch.arange(ids.numel(), device=self._ids.device).view(ids.shape)
        for kept, read in ((self._ids, ids), (self._numbers, numbers)):
            kept[: read[:, part].numel()].copy_(read[:, part].reshape(-1))
        self.place(at, part.start, ids.shape[1])

    def place(self, at: int, begin: int = 0, tokens: int | None = None) -> None:
        """The position of the first token of the next range, and which that is of the `tokens` of a pass; by default
        they are all in the range."""
        self._positions.place(at)
        self._begin, self._of_pass = begin, tokens

    def taken(self) -> torch.Tensor:
        """int64 (batch,): what the head has chosen."""
        return self._chosen

    def hidden(self, tokens: int) -> torch.Tensor:
        """f32 (batch, tokens, hidden): the residual stream."""
        return self._activations.hidden(tokens)

    def left(self, last: int) -> range:
        """Which columns of it the operation before `last` leaves: of a part of o or down its own."""
        step = self._steps[last - 1]
        if not isinstance(step, LinearStep) or step.spec["output"] != "hidden" or step.matrix is None:
            return range(self.width)
        return range(step.matrix.first, step.matrix.first + step.matrix.rows)

    def compute(
        self, first: int, last: int, tokens: int, past: int, ends: bool, after: Callable[[], None] = lambda: None
    ) -> None:
        """Operations [first, last) for `tokens` of each sequence on top of `past`; `after` each one.

        `ends`: whether these are the last tokens of a pass; the output operations are left out where they are not."""
        self._positions.begin()
        self._angles.clear()
        self._factors = None
        self._part = PassPart(self.batch, self._begin, tokens, self._of_pass or tokens)
        for step in self._steps[first:last]:
            if not ends and _of_outputs(step):
                break
            self._do(step, tokens, past)
            after()

    def attend(self, block: int, spans: Sequence[KvSpan], first: bool, last: bool, tokens: int, past: int) -> None:
        """Attention of a block, part after part: over `spans` of its cache, wherever they lie.

        `first` forgets what earlier parts have seen, `last` leaves the output where attention leaves it."""
        for step in self._steps:
            if isinstance(step, CacheStep) and step.spec["block"] == block:
                self._activations.layer = self._first_layer + block
                return self._attending.spans(step, spans, first, last, tokens, past)
        raise ValueError(f"block {block} has no attention")

    def _do(self, step: Step, tokens: int, past: int) -> None:
        block = step.spec["block"]
        self._activations.layer = None if block is None else self._first_layer + block
        if not isinstance(step, LinearStep):
            self._factors = None
        match step:
            case LinearStep():
                self._choose(step) if step.spec["kind"] == "head" else self._linear(step, tokens)
            case EmbeddingStep():
                self._embed(step, tokens, past)
            case LayerTableStep():
                look_up_inputs(step, self._read(step.spec["looked_up"], tokens), self._part)
            case LayerInputsStep():
                join_inputs(step, self._activations, self._part)
            case NormStep():
                self._norm(step, tokens)
            case AppendStep():
                self._append(step, tokens, past)
            case CacheStep():
                self._over_cache(step, tokens, past)
            case LatentAppendStep():
                self._append_latent(step, tokens, past)
            case RouterStep():
                choose_experts(self._spec, step, self._activations, tokens, past)
            case ExpertsStep():
                compute_experts(step, self._activations, tokens)
            case RowGateStep() | ValueNormStep() | NormSumStep() | GroupedStep():
                compute_rows(step, self._activations, tokens)
            case ConvolutionStep() | RecurrenceStep() | GatedNormStep():
                compute_mixer(step, self._activations, tokens, self._runs(tokens, past))
            case MemberStep():
                pass
            case CombineStep():
                rows = self._activations.rows
                rows(step.spec["output"], tokens).add_(rows(step.spec["inputs"][0], tokens))
            case _:
                assert_never(step)

    def _over_cache(self, step: CacheStep, tokens: int, past: int) -> None:
        match step.spec["kind"]:
            case "attention":
                self._attend(step, tokens, past)
                self._gate(step, tokens)
            case "scores":
                self._attending.scores(step, tokens, past)
            case "softmax":
                self._attending.softmax(step, tokens, past)
            case "weighted":
                self._attending.weighted(step, tokens, past)

    def _attend(self, step: CacheStep, tokens: int, past: int) -> None:
        self._attending.whole(step, tokens, past)

    def _gate(self, step: CacheStep, tokens: int) -> None:
        """Multiply what attention gave by the gates behind its queries, where they have some."""
        op = step.spec
        if len(op["inputs"]) > 1:
            queries = self._activations.heads(op["inputs"][1], tokens, 2 * op["head_dim"])
            attended = self._activations.heads(op["output"], tokens, op["head_dim"])
            attended.mul_(torch.sigmoid(queries[..., op["head_dim"] :]))

    def _runs(self, tokens: int, past: int) -> list[SequenceRun]:
        """Return which rows are which sequence's: all have as many tokens, at the same positions."""
        begins = self._positions.of(tokens, past)[:1] == 0
        return [SequenceRun(self._spec["batch"], tokens, begins.expand(self._spec["batch"]))]

    def _linear(self, step: LinearStep, tokens: int) -> None:
        op, layer = step.spec, step.matrix
        assert op["kind"] == "linear" and layer is not None, "a matrix of this stage"
        own = slice(layer.first, layer.first + layer.rows)
        columns = self._activations.rows(op["output"], tokens)[:, own]
        factor = self._factor(op["inputs"][0], layer.weight.factor, tokens)
        adds, scale = op["output"] == "hidden", op.get("factor", 1.0)
        if adds and scale != 1.0:
            columns.div_(scale)
        layer.multiply(factor, columns, add=adds)
        if scale != 1.0:
            columns.mul_(scale)
        if op["activation"] is None:
            return
        gate = self._activations.rows(op["inputs"][1], tokens)[:, own] if len(op["inputs"]) > 1 else None
        if gate is not None and op["activation"] in ACTIVATIONS:
            columns.mul_(ACTIVATIONS[op["activation"]](gate))
        else:
            columns.copy_(gated(op["activation"], None, gate, columns))
        if step.inputs is not None:
            begin = op.get("at", 0) + layer.first
            self._part.like(columns).mul_(self._part.of(step.inputs)[..., begin : begin + layer.rows])

    def _factor(self, source: str, kind: torch.dtype, tokens: int) -> torch.Tensor:
        """Return what a product reads of the activations `source`, of type `kind`: made once for products that follow
        each other and read the same."""
        if self._factors is None or self._factors[0] != source or self._factors[1].dtype != kind:
            self._factors = source, self._activations.rows(source, tokens).to(kind)
        return self._factors[1]

    def _read(self, looked_up: bool, tokens: int) -> torch.Tensor:
        """Return the rows of a table that tokens have, or the numbers of those that have been looked up."""
        return (self._numbers if looked_up else self._ids)[: self._spec["batch"] * tokens]

    def _embed(self, step: EmbeddingStep, tokens: int, past: int) -> None:
        hidden = step.table(self._read(step.spec["looked_up"], tokens)) * step.spec.get("scale", 1.0)
        if step.positions is not None:
            hidden = hidden + step.positions[self._positions.of(tokens, past)].repeat(self._spec["batch"], 1)
        self._activations.rows(step.spec["output"], tokens).copy_(hidden)

    def _norm(self, step: NormStep, tokens: int) -> None:
        op = step.spec
        assert step.weights is not None, "a norm of this stage"
        if op["last"]:
            source, rows = self._activations.hidden(tokens)[:, -1], 1
        else:
            source, rows = self._activations.rows(op["inputs"][0], tokens), tokens
        self._activations.rows(op["output"], rows).copy_(step.weights.of(source, op["norm"], op["eps"]))

    def _append_latent(self, step: LatentAppendStep, tokens: int, past: int) -> None:
        rows = place_latent(step, self._activations, tokens, self._positions.of(tokens, past))
        assert step.rows is not None, "a cache of this stage"
        step.rows.write(rows, self._cached(tokens, past))

    def _cached(self, tokens: int, past: int, ring: int | None = None) -> torch.Tensor | slice:
        """Return where new rows of caches are; `ring`: of a cache of so many rows."""
        at, rows = self._positions.of(tokens, past), ring or (self._spec["capacity"] if self._spec["paged"] else None)
        if rows is not None:
            return at % rows
        return slice(past, past + tokens) if tokens > 1 else at

    def _append(self, step: AppendStep, tokens: int, past: int) -> None:
        op, appends = step.spec, len(step.spec["inputs"]) > 1
        values = values_of(step, self._activations, tokens) if appends else None
        self._place_heads(step, tokens, self._positions.of(tokens, past))
        if values is None:
            return
        there = self._cached(tokens, past, op.get("rows"))
        assert step.keys is not None and step.values is not None
        step.keys.write(self._activations.heads(op["inputs"][1], tokens, op["head_dim"]).transpose(1, 2), there)
        step.values.write(values.transpose(1, 2), there)

    def _place_heads(self, step: AppendStep, tokens: int, at: torch.Tensor) -> None:
        """Queries and keys, normed and rotated to where they are."""
        op = step.spec
        for name, norm in zip(op["inputs"], (step.q_norm, step.k_norm), strict=False):
            if norm is not None and op["over"] == "projection":
                rows = self._activations.rows(name, tokens)
                rows.copy_(norm.of(rows, op["norm"], op["eps"]))
                norm = None
            heads = self._activations.heads(name, tokens, op["head_dim"])
            if op.get("gated") and name == op["inputs"][0]:
                gated = self._activations.heads(name, tokens, 2 * op["head_dim"])
                heads = self._activations.heads(op["output"], tokens, op["head_dim"])
                heads.copy_(gated[..., : op["head_dim"]])
            normed = heads if norm is None else norm.of(heads, op["norm"], op["eps"])
            if step.cos is not None and step.sin is not None:
                rotate(normed, self._angles_of(step.cos, step.sin, at), heads)
            elif norm is not None:
                heads.copy_(normed)

    def _angles_of(self, cos: torch.Tensor, sin: torch.Tensor, at: torch.Tensor) -> Angles:
        """Return the angles of positions, made once for all blocks that have the same tables."""
        key = cos.data_ptr()
        if key not in self._angles:
            self._angles[key] = angles_at(cos, sin, at)
        return self._angles[key]

    def _choose(self, step: LinearStep) -> None:
        assert step.matrix is not None
        step.matrix.multiply(self._activations.rows(step.spec["inputs"][0], 1), self._activations.logits)
        step.bound(self._activations.logits)
        self._chosen.copy_(self._activations.logits.argmax(-1))


def _of_outputs(step: Step) -> bool:
    """Return whether an operation is of the last token of every sequence only."""
    return step.spec["kind"] == "head" or (step.spec["kind"] == "norm" and step.spec["last"])


def _title(step: Step, first_layer: int) -> str:
    block, name = step.spec["block"], step.spec["name"]
    return name if block is None else f"{first_layer + block}.{name}"
