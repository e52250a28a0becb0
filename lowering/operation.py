"""Holds what an operation of a pass is: the bytes that it must move from or to memory once, and its FLOPs.

Activation bytes are hidden states in and out."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from helmsman.lowering.tensor import Tensor
from helmsman.schemas.formats import Format, KvFormat, StoredFormat

Axis = Literal["rows", "heads", "experts"]
Kind = Literal[
    "lookup",
    "norm",
    "linear",
    "append",
    "attention",
    "scores",
    "softmax",
    "wv",
    "experts",
    "convolution",
    "recurrence",
    "index",
]
Half = Literal[0, 1]
"""The half of a block: 0 where tokens see each other, 1 where every token is worked on alone."""

DIVIDED = ("scores", "softmax", "wv")
"""The operations that attention is made of, when its parts have places of their own (Fig 2a of Park & Egger)."""

PANEL = 16
"""Rows of a linear layer are kept and computed sixteen at a time: a part of it begins at a multiple."""


@dataclass(frozen=True, slots=True)
class Formats:
    """How weights, KV and activations are stored. Norms and biases follow weights that are not quantised."""

    weights: StoredFormat = "f16"
    kv: KvFormat = "f16"
    activations: Format = "f16"


class Operation(NamedTuple):
    """One operation of one pass.

    `unit`: partition unit (0 embedding, 1..L blocks, L+1 output). `tokens`: rows of activations, all sequences.
    `weight_bytes`: weight bytes read (a lookup reads only its rows, experts those of the ones that are chosen);
    `kv_read`, `kv_write`: cache bytes, and of a recurrence its states, read and written; `activation_bytes`:
    activations read and written; `out_bytes`: the part its consumers read. `extent`: into how many rows (linear
    layers), KV heads (scores, wv) or experts it may be divided; 1: not at all. `sequences`: how many caches attention
    reads, whose tokens see nothing of each other, or how many distinct experts are. `columns`: how many values of a
    token a product takes. `inputs`: the outputs that it reads; `also`: by which other name its own is read; `half`: of
    the block; `weight_share`: of its weights that the pass reads; `adds_up`: whether its parts each give the whole
    outcome, to be added up, as experts do; `per_token`: rows of activations that a token has, of experts those that it
    chooses."""

    name: str
    kind: Kind
    unit: int
    layer: int | None
    tensors: tuple[Tensor, ...]
    tokens: int
    weight_bytes: int
    kv_read: int
    kv_write: int
    activation_bytes: int
    out_bytes: int
    flops: int
    extent: int = 1
    sequences: int = 1
    columns: int = 0
    inputs: tuple[str, ...] = ()
    also: str | None = None
    half: Half = 0
    weight_share: float = 1.0
    adds_up: bool = False
    per_token: int = 1

    @property
    def axis(self) -> Axis:
        """Return the axis that `extent` counts."""
        if self.kind == "experts":
            return "experts"
        return "heads" if self.kind in DIVIDED else "rows"

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names under which its output is read."""
        return (self.name,) if self.also is None else (self.name, self.also)

    @property
    def memory_bytes(self) -> int:
        """Return bytes that stream from memory: weights and KV."""
        return self.weight_bytes + self.kv_read
