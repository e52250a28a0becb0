"""All consecutive operations of a PyTorch device: what csrc/stage/stage.h is for processors.

The residual stream, norms and what crosses links are f32; products read weights in their own format, or the f32
values of quantised ones, and attention reads the cache in its own. Passes of one token take their position from the
device, so that a captured graph serves every position of a bucket."""

from collections.abc import Callable, Sequence

import torch

from helmsman.executor.devices.parts import KvSpan, Region, of_kind
from helmsman.executor.devices.specs import AnySpec, StageSpec, Vector
from helmsman.executor.devices.torch.activations import Activations
from helmsman.executor.devices.torch.block_attention import BlockAttention
from helmsman.executor.devices.torch.blocks import StageBlock, block_of
from helmsman.executor.devices.torch.buffers import TorchBuffer
from helmsman.executor.devices.torch.positions import Positions
from helmsman.executor.devices.torch.regions import regions_of
from helmsman.executor.devices.torch.rotation import Angles, angles_at, rotate
from helmsman.executor.devices.torch.weights import linear_of, lookup_of, norm_of
from helmsman.lowering.ops import DIVIDED

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": torch.nn.functional.silu,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
}


class TorchStage:
    """Operations as native stages name them, over a workspace laid out as theirs."""

    def __init__(
        self, spec: AnySpec, workspace: TorchBuffer, first_layer: int, positions: Positions | None = None
    ) -> None:
        self._spec = spec
        self.workspace = workspace
        self._regions = regions_of(spec)
        self._activations = Activations(spec, workspace, self._regions)
        group = spec["heads"] // spec["kv_heads"]
        self._positions = positions or Positions(spec["capacity"], group, workspace.bytes.device)
        self._attending = BlockAttention(spec, self._activations, self._positions)
        self._outside_blocks = {"embedding": self._embed, "final_norm": self._norm_last, "head": self._choose}
        self._over_caches = {
            "append": self._append,
            "attention": self._attending.whole,
            "scores": self._attending.scores,
            "softmax": self._attending.softmax,
            "wv": self._attending.weighted,
        }
        space = workspace.part(self._regions.expanded, self._regions.size - self._regions.expanded)
        values = space.bytes.view(torch.float32)
        self._blocks = [block_of(spec, block, values) for block in spec["blocks"]]
        self._looked_up = spec.get("looked_up", False)
        self._embedding = lookup_of(spec["embedding"], values, self._looked_up)
        self._head = linear_of(spec["head"], values)
        self._final_norm = norm_of(spec["final_norm"], spec["hidden"])
        rows = spec.get("context", spec["capacity"])
        self._cos, self._sin = (_table(spec[name], rows, spec["rotary_dim"] // 2) for name in ("cos", "sin"))
        self._angles: Angles | None = None
        self._factors: tuple[str, torch.Tensor] | None = None
        self._embedded_positions = _table(spec["positions"], rows, spec["hidden"])
        self._steps = list(_steps(spec, self._blocks, first_layer))
        self._ids = torch.zeros(self._regions.rows, dtype=torch.int64, device=workspace.bytes.device)
        self._chosen = torch.zeros(spec["batch"], dtype=torch.int64, device=workspace.bytes.device)

    @property
    def ops(self) -> list[str]:
        """`embedding`, `3.q`, ..."""
        return [name for name, _, _ in self._steps]

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
        return self._steps[first][1] == "embedding"

    def chooses(self, last: int) -> bool:
        """Whether the operation before `last` chooses tokens."""
        return self._steps[last - 1][1] == "head"

    def replays(self, first: int, last: int) -> bool:
        """Whether operations [first, last) for one token may be captured once for a bucket: those of divided attention
        reach as far as the pass that is captured."""
        return not any(op in DIVIDED for _, op, _ in self._steps[first:last])

    def feed(self, ids: torch.Tensor, part: slice, at: int) -> None:
        """Of the ids (batch, tokens) of a pass, those that the embedding is to read next, and the position of the
        first; where rows of the table have been looked up for all of them, the numbers of theirs."""
        read = torch.arange(ids.numel(), device=self._ids.device).view(ids.shape) if self._looked_up else ids
        self._ids[: read[:, part].numel()].copy_(read[:, part].reshape(-1))
        self.place(at)

    def place(self, at: int) -> None:
        """The position of the first token of the next range."""
        self._positions.place(at)

    def taken(self) -> torch.Tensor:
        """int64 (batch,): what the head has chosen."""
        return self._chosen

    def hidden(self, tokens: int) -> torch.Tensor:
        """f32 (batch, tokens, hidden): the residual stream."""
        return self._activations.hidden(tokens)

    def left(self, last: int) -> range:
        """Which columns of it the operation before `last` leaves: of a part of o or down its own."""
        _, op, block = self._steps[last - 1]
        if block is None or op not in ("o", "down"):
            return range(self.width)
        return range(block.linears[op].first, block.linears[op].first + block.linears[op].rows)

    def compute(
        self, first: int, last: int, tokens: int, past: int, ends: bool, after: Callable[[], None] = lambda: None
    ) -> None:
        """Operations [first, last) for `tokens` of each sequence on top of `past`; `after` each one.

        `ends`: whether these are the last tokens of a pass; the output operations are left out where they are not."""
        self._positions.begin()
        self._angles = self._factors = None
        for _, op, block in self._steps[first:last]:
            if op in ("final_norm", "head") and not ends:
                break
            self._do(op, block, tokens, past)
            after()

    def attend(self, block: int, spans: Sequence[KvSpan], first: bool, last: bool, tokens: int, past: int) -> None:
        """Attention of a block, part after part: over `spans` of its cache, wherever they lie.

        `first` forgets what earlier parts have seen, `last` leaves the output where attention leaves it."""
        self._attending.spans(spans, first, last, tokens, past)

    def _do(self, op: str, block: StageBlock | None, tokens: int, past: int) -> None:
        if block is not None and op in block.linears:
            self._linear(op, block, tokens)
            return
        self._factors = None
        if block is None:
            self._outside_blocks[op](tokens, past)
        elif op in self._over_caches:
            self._over_caches[op](block, tokens, past)
        else:
            normed = block.norms[op].of(self._activations.rows("hidden", tokens), *self._norm_kind)
            self._activations.rows("normed", tokens).copy_(normed)

    @property
    def _norm_kind(self) -> tuple[str, float]:
        return self._spec["norm"], self._spec["norm_eps"]

    def _linear(self, op: str, block: StageBlock, tokens: int) -> None:
        source, target = {"o": ("attended", "hidden"), "down": ("up", "hidden")}.get(op, ("normed", op))
        layer = block.linears[op]
        own = slice(layer.first, layer.first + layer.rows)
        columns = self._activations.rows(target, tokens)[:, own]
        layer.multiply(self._factor(source, layer.weight.factor, tokens), columns, add=target == "hidden")
        if op == "up":
            activation = ACTIVATIONS[self._spec["activation"]]
            if self._spec.get("gated", False):
                columns.mul_(activation(self._activations.rows("gate", tokens)[:, own]))
            else:
                columns.copy_(activation(columns))

    def _factor(self, source: str, kind: torch.dtype, tokens: int) -> torch.Tensor:
        """Return what a product reads of the activations `source`, of type `kind`: made once for products that follow
        each other and read the same."""
        if self._factors is None or self._factors[0] != source or self._factors[1].dtype != kind:
            self._factors = source, self._activations.rows(source, tokens).to(kind)
        return self._factors[1]

    def _embed(self, tokens: int, past: int) -> None:
        assert self._embedding is not None
        hidden = self._embedding(self._ids[: self._spec["batch"] * tokens])
        if self._embedded_positions is not None:
            hidden = hidden + self._embedded_positions[self._positions.of(tokens, past)].repeat(self._spec["batch"], 1)
        self._activations.rows("hidden", tokens).copy_(hidden)

    def _append(self, block: StageBlock, tokens: int, past: int) -> None:
        at = self._positions.of(tokens, past)
        self._place_heads(block, tokens, at)
        wraps = self._spec.get("paged", False)
        there = slice(past, past + tokens) if tokens > 1 and not wraps else at % self._spec["capacity"] if wraps else at
        for cache, new in ((block.keys, "k"), (block.values, "v")):
            assert cache is not None
            rows = self._activations.heads(new, tokens).transpose(1, 2)
            cache.write(rows, there)

    def _place_heads(self, block: StageBlock, tokens: int, at: torch.Tensor) -> None:
        """Queries and keys, normed and rotated to where they are."""
        for name in ("q", "k"):
            heads, norm = self._activations.heads(name, tokens), block.norms.get(f"{name}_norm")
            normed = heads if norm is None else norm.of(heads, *self._norm_kind)
            if self._cos is not None and self._sin is not None:
                self._angles = self._angles or angles_at(self._cos, self._sin, at)
                rotate(normed, self._angles, heads)
            elif norm is not None:
                heads.copy_(normed)

    def _norm_last(self, tokens: int, _: int) -> None:
        assert self._final_norm is not None
        normed = self._final_norm.of(self._activations.hidden(tokens)[:, -1], *self._norm_kind)
        self._activations.rows("normed", 1).copy_(normed)

    def _choose(self, _tokens: int, _past: int) -> None:
        assert self._head is not None
        self._head.multiply(self._activations.rows("normed", 1), self._activations.logits)
        self._chosen.copy_(self._activations.logits.argmax(-1))


def _steps(spec: StageSpec, blocks: list[StageBlock], first_layer: int) -> list[tuple[str, str, StageBlock | None]]:
    """(name, operation, block) in order, as csrc/stage/stage.cpp has them."""
    inner = ["scores", "softmax", "wv"] if spec.get("attention") == "divided" else ["attention"]
    gate = ["gate"] if spec.get("gated", False) else []
    order = ["norm1", "q", "k", "v", "append", *inner, "o", "norm2", *gate, "up", "down"]
    steps: list[tuple[str, str, StageBlock | None]] = []
    if spec["embedding"] is not None:
        steps.append(("embedding", "embedding", None))
    for layer, block in enumerate(blocks, first_layer):
        steps += [(f"{layer}.{op}", op, block) for op in order]
    steps += [(op, op, None) for op in ("final_norm", "head") if spec[op] is not None]
    return steps


def _table(buffer: Vector | None, rows: int, columns: int) -> torch.Tensor | None:
    if buffer is None or columns == 0:
        return None
    return of_kind(buffer, TorchBuffer).view(torch.float32, rows, columns)
