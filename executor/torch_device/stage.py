"""All consecutive operations of a PyTorch device: what csrc/stage.h is for processors.

The residual stream, norms and what crosses links are f32; products read weights in their own format, or the f32
values of quantised ones, and attention reads the cache in its own. Passes of one token take their position from the
device, so that a captured graph serves every position of a bucket."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from helmsman.executor.torch_device.attention import Seen, attend_part, merge
from helmsman.executor.torch_device.blocks import Block, block_of
from helmsman.executor.torch_device.buffers import DTYPES, TorchBuffer, held_in
from helmsman.executor.torch_device.regions import regions_of
from helmsman.executor.torch_device.weights import linear_of, lookup_of, norm_of
from helmsman.lowering.ops import DIVIDED

if TYPE_CHECKING:
    from helmsman.executor._kernels import KvSpan, Region, StageSpec

BUCKET = 256
"""Positions by whose multiples a decode step's attention is cut: within a bucket a graph stays the same."""

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": torch.nn.functional.silu,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
}


class TorchStage:
    """Operations as native stages name them, over a workspace laid out as theirs."""

    def __init__(self, spec: "StageSpec", workspace: TorchBuffer, first_layer: int) -> None:
        self._spec = spec
        self._device = workspace.bytes.device
        self._regions = regions_of(spec)
        self._places = {name: _columns(workspace, each, self._regions.rows) for name, each in self._regions.at.items()}
        after = workspace.part(self._regions.logits, workspace.size - self._regions.logits)
        self._logits = after.view(torch.float32, spec["batch"], spec["vocab"])
        space = workspace.part(self._regions.expanded, self._regions.size - self._regions.expanded)
        values = space.bytes.view(torch.float32)
        self._blocks = [block_of(spec, each, values) for each in spec["blocks"]]
        self._embedding = lookup_of(spec["embedding"], values, spec.get("looked_up", False))
        self._head = linear_of(spec["head"], values)
        self._final_norm = norm_of(spec["final_norm"], spec["hidden"])
        half, rows = spec["rotary_dim"] // 2, spec.get("context", spec["capacity"])
        self._cos, self._sin = (_table(spec[name], rows, half) for name in ("cos", "sin"))
        self._positions = _table(spec["positions"], rows, spec["hidden"])
        self._steps = list(_steps(spec, self._blocks, first_layer))
        self._at = torch.zeros(1, dtype=torch.int64, device=self._device)
        self._ids = torch.zeros(self._regions.rows, dtype=torch.int64, device=self._device)
        self._chosen = torch.zeros(spec["batch"], dtype=torch.int64, device=self._device)
        self._running: Seen | None = None

    @property
    def ops(self) -> list[str]:
        """`embedding`, `3.q`, ..."""
        return [name for name, _, _ in self._steps]

    def regions(self) -> "dict[str, Region]":
        """Where activations are in the workspace."""
        return self._regions.at

    def logits(self) -> NDArray[np.float32]:
        """f32 (batch, vocab) of the last pass."""
        return self._logits.cpu().numpy()

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

    def feed(self, ids: torch.Tensor, at: int) -> None:
        """The ids (batch, tokens) that the embedding is to read next, and the position of the first."""
        self._ids[: ids.numel()].copy_(ids.reshape(-1))
        self.place(at)

    def place(self, at: int) -> None:
        """The position of the first token of the next range."""
        self._at.fill_(at)

    def taken(self) -> torch.Tensor:
        """int64 (batch,): what the head has chosen."""
        return self._chosen

    def hidden(self, tokens: int) -> torch.Tensor:
        """f32 (batch, tokens, hidden): the residual stream."""
        return self._rows("hidden", tokens).view(self._spec["batch"], tokens, -1)

    def compute(
        self, first: int, last: int, tokens: int, past: int, ends: bool, after: Callable[[], None] = lambda: None
    ) -> None:
        """Operations [first, last) for `tokens` of each sequence on top of `past`; `after` each one.

        `ends`: whether these are the last tokens of a pass; the output operations are left out where they are not."""
        for _, op, block in self._steps[first:last]:
            if op in ("final_norm", "head") and not ends:
                break
            self._do(op, block, tokens, past)
            after()

    def _do(self, op: str, block: Block | None, tokens: int, past: int) -> None:
        if block is None:
            {"embedding": self._embed, "final_norm": self._norm_last, "head": self._choose}[op](tokens, past)
        elif op in ("append", "attention", "scores", "softmax", "wv"):
            {
                "append": self._append,
                "attention": self._attend,
                "scores": self._scores,
                "softmax": self._softmax,
                "wv": self._weighted,
            }[op](block, tokens, past)
        elif op in ("norm1", "norm2"):
            norm = block.norms[op]
            self._rows("normed", tokens).copy_(norm.of(self._rows("hidden", tokens), *self._norm_kind))
        else:
            self._linear(op, block, tokens)

    @property
    def _norm_kind(self) -> tuple[str, float]:
        return self._spec["norm"], self._spec["norm_eps"]

    def _rows(self, name: str, tokens: int) -> torch.Tensor:
        return self._places[name][: self._spec["batch"] * tokens]

    def _linear(self, op: str, block: Block, tokens: int) -> None:
        source, target = {"o": ("attended", "hidden"), "down": ("up", "hidden")}.get(op, ("normed", op))
        layer = block.linears[op]
        made = layer.times(self._rows(source, tokens))
        columns = self._rows(target, tokens)[:, layer.first : layer.first + layer.rows]
        if target == "hidden":
            columns.add_(made)
        elif op == "up":
            columns.copy_(self._activated(made, layer.first, layer.rows, tokens))
        else:
            columns.copy_(made)

    def _activated(self, up: torch.Tensor, first: int, rows: int, tokens: int) -> torch.Tensor:
        activation = ACTIVATIONS[self._spec["activation"]]
        if not self._spec.get("gated", False):
            return activation(up)
        return activation(self._rows("gate", tokens)[:, first : first + rows]) * up

    def _embed(self, tokens: int, past: int) -> None:
        assert self._embedding is not None
        found = self._embedding(self._ids[: self._spec["batch"] * tokens])
        if self._positions is not None:
            found = found + self._positions[self._span(tokens, past)].repeat(self._spec["batch"], 1)
        self._rows("hidden", tokens).copy_(found)

    def _span(self, tokens: int, past: int) -> torch.Tensor:
        """The positions of the tokens of this pass, (tokens,)."""
        if tokens == 1:
            return self._at
        return torch.arange(past, past + tokens, device=self._device)

    def _append(self, block: Block, tokens: int, past: int) -> None:
        at = self._span(tokens, past)
        q, k = (self._heads(name, tokens) for name in ("q", "k"))
        q.copy_(self._rotated(self._normed(block, "q_norm", q), at))
        k.copy_(self._rotated(self._normed(block, "k_norm", k), at))
        for cache, new in ((block.keys, k), (block.values, self._heads("v", tokens))):
            assert cache is not None
            cache.write(new.transpose(1, 2), at % self._spec["capacity"] if self._spec.get("paged", False) else at)

    def _heads(self, name: str, tokens: int) -> torch.Tensor:
        """(batch, tokens, heads, head_dim) of q, k, v or attended."""
        return self._rows(name, tokens).view(self._spec["batch"], tokens, -1, self._spec["head_dim"])

    def _normed(self, block: Block, name: str, heads: torch.Tensor) -> torch.Tensor:
        norm = block.norms.get(name)
        return heads if norm is None else norm.of(heads, *self._norm_kind)

    def _rotated(self, heads: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        """Hugging Face's rotate_half of the first rotary_dim dimensions."""
        if self._cos is None or self._sin is None:
            return heads
        half = self._cos.shape[1]
        cos, sin = (table[at].unsqueeze(1) for table in (self._cos, self._sin))
        one, other, rest = heads[..., :half], heads[..., half : 2 * half], heads[..., 2 * half :]
        return torch.cat((one * cos - other * sin, other * cos + one * sin, rest), -1)

    def _queries(self, tokens: int) -> torch.Tensor:
        """(batch, kv_heads, group * tokens, head_dim): the query heads of a group follow each other."""
        spec = self._spec
        q = self._heads("q", tokens).view(spec["batch"], tokens, spec["kv_heads"], -1, spec["head_dim"])
        return q.permute(0, 2, 3, 1, 4).reshape(spec["batch"], spec["kv_heads"], -1, spec["head_dim"])

    def _leave(self, out: torch.Tensor, tokens: int) -> None:
        """(batch, kv_heads, group * tokens, head_dim) to where attention leaves its output."""
        spec = self._spec
        heads = out.view(spec["batch"], spec["kv_heads"], -1, tokens, spec["head_dim"]).permute(0, 3, 1, 2, 4)
        self._rows("attended", tokens).copy_(heads.reshape(spec["batch"] * tokens, -1))

    def _seen(self, tokens: int, past: int) -> int:
        """Positions that are read: for one token whole buckets, the rest of which is hidden."""
        if tokens > 1:
            return past + tokens
        return min(self._spec["capacity"], -(-(past + 1) // BUCKET) * BUCKET)

    def _hidden_ones(self, tokens: int, past: int) -> torch.Tensor:
        """bool (group * tokens, positions): true where a token may not look."""
        group = self._spec["heads"] // self._spec["kv_heads"]
        places = torch.arange(self._seen(tokens, past), device=self._device)
        later = places > self._span(tokens, past).unsqueeze(1)
        return later.repeat(group, 1)

    def _attend(self, block: Block, tokens: int, past: int) -> None:
        assert block.keys is not None and block.values is not None
        heads, count = range(self._spec["kv_heads"]), self._seen(tokens, past)
        keys, values = block.keys.read(heads, count), block.values.read(heads, count)
        out, _ = attend_part(self._queries(tokens), keys, values, self._hidden_ones(tokens, past))
        self._leave(out, tokens)

    def attend(self, block: int, spans: "Sequence[KvSpan]", first: bool, last: bool, tokens: int, past: int) -> None:
        """Attention of a block, part after part: over `spans` of its cache, wherever they lie.

        `first` forgets what earlier parts have seen, `last` leaves the output where attention leaves it."""
        self.place(past)
        q, running = self._queries(tokens), None if first else self._running
        for span in spans:
            if span[-1] == 0:
                continue
            keys, values, hidden = self._span_of(span, tokens, past)
            part = attend_part(q, keys, values, hidden)
            running = part if running is None else merge(running, part)
        self._running = running
        if last:
            self._leave(torch.zeros_like(q) if running is None else running[0], tokens)

    def _span_of(
        self, span: "KvSpan", tokens: int, past: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Keys and values (batch, kv_heads, count, head_dim), and which of them a token may not look at."""
        keys, key_offset, values, value_offset, sequence, head, position, count = span
        spec, dtype = self._spec, DTYPES[self._spec["kv_format"]]
        shape = (spec["batch"], spec["kv_heads"], count, spec["head_dim"])
        strides = (sequence, head, spec["head_dim"] * dtype.itemsize, dtype.itemsize)
        one = held_in(keys).strided(dtype, shape, strides, key_offset)
        other = held_in(values).strided(dtype, shape, strides, value_offset)
        if position + count <= past + 1:
            return one, other, None
        places = torch.arange(position, position + count, device=self._device)
        later = places > torch.arange(past, past + tokens, device=self._device).unsqueeze(1)
        return one, other, later.repeat(spec["heads"] // spec["kv_heads"], 1)

    def _lines(self, tokens: int) -> torch.Tensor:
        """(batch, tokens, kv_heads, group, positions in whole panels): the scores."""
        spec = self._spec
        shape = (spec["batch"], tokens, spec["kv_heads"], spec["heads"] // spec["kv_heads"], -1)
        return self._rows("scores", tokens).view(*shape)

    def _scores(self, block: Block, tokens: int, past: int) -> None:
        assert block.keys is not None
        heads, count = block.scores_heads, past + tokens
        q = self._heads("q", tokens).view(*self._lines(tokens).shape[:4], -1)[:, :, heads.start : heads.stop]
        keys = block.keys.read(heads, count)
        found = torch.einsum("bthgd,bhdn->bthgn", q.to(keys.dtype), keys).float()
        self._lines(tokens)[:, :, heads.start : heads.stop, :, :count] = found

    def _softmax(self, _: Block, tokens: int, past: int) -> None:
        lines, count = self._lines(tokens)[..., : past + tokens], past + tokens
        places, at = torch.arange(count, device=self._device), torch.arange(past, count, device=self._device)
        later = (places > at.unsqueeze(1)).view(1, tokens, 1, 1, count)
        scaled = lines * self._spec["head_dim"] ** -0.5
        lines.copy_(torch.softmax(scaled.masked_fill(later, -torch.inf), -1))

    def _weighted(self, block: Block, tokens: int, past: int) -> None:
        assert block.values is not None
        heads, count = block.weighted_heads, past + tokens
        values = block.values.read(heads, count)
        weights = self._lines(tokens)[:, :, heads.start : heads.stop, :, :count]
        found = torch.einsum("bthgn,bhnd->bthgd", weights.to(values.dtype), values).float()
        out = self._heads("attended", tokens).view(*self._lines(tokens).shape[:4], -1)
        out[:, :, heads.start : heads.stop] = found

    def _norm_last(self, tokens: int, _: int) -> None:
        assert self._final_norm is not None
        found = self._final_norm.of(self.hidden(tokens)[:, -1], *self._norm_kind)
        self._places["normed"][: self._spec["batch"]].copy_(found)

    def _choose(self, _tokens: int, _past: int) -> None:
        assert self._head is not None
        self._logits.copy_(self._head.times(self._places["normed"][: self._spec["batch"]]))
        self._chosen.copy_(self._logits.argmax(-1))


def _steps(spec: "StageSpec", blocks: list[Block], first_layer: int) -> list[tuple[str, str, Block | None]]:
    """(name, operation, block) in order, as csrc/stage.cpp has them."""
    inner = ["scores", "softmax", "wv"] if spec.get("attention") == "divided" else ["attention"]
    gate = ["gate"] if spec.get("gated", False) else []
    order = ["norm1", "q", "k", "v", "append", *inner, "o", "norm2", *gate, "up", "down"]
    found: list[tuple[str, str, Block | None]] = []
    if spec["embedding"] is not None:
        found.append(("embedding", "embedding", None))
    for layer, block in enumerate(blocks, first_layer):
        found += [(f"{layer}.{op}", op, block) for op in order]
    found += [(op, op, None) for op in ("final_norm", "head") if spec[op] is not None]
    return found


def _columns(workspace: TorchBuffer, region: "Region", rows: int) -> torch.Tensor:
    """f32 (rows, width) of a region."""
    size = rows * region["stride"]
    return workspace.part(region["offset"], size).view(torch.float32, rows, region["stride"] // 4)


def _table(buffer: object, rows: int, columns: int) -> torch.Tensor | None:
    if buffer is None or columns == 0:
        return None
    assert isinstance(buffer, TorchBuffer)
    return buffer.view(torch.float32, rows, columns)
