"""Model: a decoder as its config.json describes it: embedding, layouts of blocks, their pattern over layers, head."""

from functools import cached_property, partial
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from helmsman.schemas.base import Count, Document, Frozen, Index, Name, Positive, mistake, version
from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.block import Block, Residual
from helmsman.schemas.blocks.feed_forward import Experts, HyperConnections, PerLayerInput, PerLayerTable
from helmsman.schemas.blocks.norms import Norm
from helmsman.schemas.blocks.numbers import Context, Dimension, Scale
from helmsman.schemas.blocks.positions import LearnedPositions
from helmsman.schemas.dense_model import DenseModel
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import Format
from helmsman.schemas.native_quantisation import NativeQuantisation

MAX_LAYERS = 1024
"""Layers of a model at most."""


class Embedding(Frozen):
    """Looks up tokens: `scale` multiplies their rows, positions of a table are added, and a norm may follow.

    `width`: values of a row where they are not those of the hidden state; a matrix brings them to these."""

    scale: Scale = 1.0
    positions: LearnedPositions | None = None
    width: Dimension | None = None
    norm: Norm | None = None


class Head(Frozen):
    """Gives logits: scale * W x / divide (+ bias), W the embedding's table where `tied`.

    `softcap`: logits become softcap * tanh(logit / softcap); `width`: values of W's columns where they are not those of
    the hidden state, which a matrix brings to these."""

    tied: bool = False
    bias: bool = False
    scale: Scale = 1.0
    divide: Positive = 1.0
    softcap: Positive | None = None
    width: Dimension | None = None


class DraftHead(Frozen):
    """Proposes the token after the next one: a matrix over two norms, a block of its own, and a norm (MTP).

    `order`: which half of the matrix's input comes first; `count`: how many such heads follow one another."""

    block: Block
    norm: Norm
    order: Literal["embedding-first", "hidden-first"] = "embedding-first"
    count: Count = 1
    own_embedding: bool = False


class Model(Document):
    """A decoder-only model, without its weights.

    `layouts`: the distinct blocks; `pattern`: their letters, one per layer. `family`: the config's model type, for
    readers of files. `native_quantisation`: how files store weights that are no plain numbers of `native_format`.
    `unknown`: facts that no source states, without which it can be planned but not run."""

    schema_id: Literal["helm.model/2"] = version("helm.model/2")
    name: Name
    family: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,40}$")]
    hidden: Dimension
    vocab: Dimension
    max_context: Context
    embedding: Embedding = Embedding()
    layouts: Annotated[tuple[Block, ...], Field(min_length=1, max_length=52)]
    pattern: Annotated[str, Field(pattern=r"^[A-Za-z]+$", max_length=MAX_LAYERS)]
    per_layer_table: PerLayerTable | None = None
    streams: HyperConnections | None = None
    final: Norm | None = None
    head: Head = Head()
    drafts: Annotated[tuple[DraftHead, ...], Field(max_length=8)] = ()
    native_format: Format = "bf16"
    native_quantisation: NativeQuantisation | None = None
    eos: Annotated[tuple[Index, ...], Field(max_length=64)] = ()
    source: Name = Field(default="unknown", description="where the dimensions come from")
    unknown: Annotated[tuple[Name, ...], Field(max_length=64)] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        letters = [layout.letter for layout in self.layouts]
        for place, letter in enumerate(letters):
            if letter in letters[:place]:
                raise mistake(f"two layouts are called {letter}", "rename one", f"layouts.{place}.letter", letter)
        for letter in dict.fromkeys(self.pattern):
            if letter not in letters:
                raise mistake(f"no layout is called {letter}", "describe it under layouts", "pattern", letter)
        for letter in letters:
            if letter not in self.pattern:
                raise mistake(f"no layer has layout {letter}", "leave it out", "layouts", letter)
        self._check_caches()
        bodies = (body for layout in self.layouts for body in layout.bodies)
        if self.per_layer_table is None and any(isinstance(body.op, PerLayerInput) for body in bodies):
            raise mistake("layers read a table that is missing", "describe per_layer_table", "per_layer_table")
        return self

    def _check_caches(self) -> None:
        for layout in self.layouts:
            attention = layout.attention
            if attention is None or attention.cache_of is None:
                continue
            layer, first = attention.cache_of, self.pattern.index(layout.letter)
            other = self.attention(layer) if layer < first else None
            if other is None or other.cache_of is not None:
                message = f"layer {layer} is no earlier layer with a cache of its own"
                raise mistake(message, "name such a layer", "layouts", layer)
            if (other.kv_heads, other.head_dim, other.value_dim) != (
                attention.kv_heads, attention.head_dim, attention.value_dim,
            ):  # fmt: skip
                raise mistake(f"the cache of layer {layer} has other heads", "name another layer", "layouts", layer)

    def __hash__(self) -> int:
        """Return the hash of the content, as a model is a key of many caches."""
        return hash(self.content)

    def __eq__(self, other: object) -> bool:
        """Whether another model has the same content."""
        return self is other or (isinstance(other, Model) and self.content == other.content)

    def model_copy(self, *, update: Any = None, deep: bool = False) -> Self:
        """Return a copy with some fields changed, which computes for itself what is derived from them."""
        copied = super().model_copy(update=update, deep=deep)
        for name in set(copied.__dict__) - set(type(self).model_fields):
            del copied.__dict__[name]
        return copied

    @cached_property
    def content(self) -> str:
        """Return the canonical JSON, by which models are compared."""
        return self.to_json(indent=None)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Return the block of every layer."""
        of_letter = {layout.letter: layout for layout in self.layouts}
        return tuple(of_letter[letter] for letter in self.pattern)

    @property
    def layers(self) -> int:
        """Return how many blocks there are."""
        return len(self.pattern)

    @property
    def units(self) -> int:
        """Return partition units: embedding, one per block, output (HELM-11)."""
        return self.layers + 2

    def with_layers(self, count: int) -> Self:
        """Return the model of its first `count` blocks; beyond its own, the pattern begins again."""
        return self.with_pattern((self.pattern * -(-count // self.layers))[:count])

    def with_pattern(self, pattern: str) -> Self:
        """Return the model of blocks with these letters, in order; a block that reads another's cache reads that of the
        last one before with its letter. Raises KeyError where there is none."""
        layouts = tuple(self._moved(layout, pattern) for layout in self.layouts if layout.letter in pattern)
        return self.model_copy(update={"pattern": pattern, "layouts": layouts})

    def _moved(self, layout: Block, pattern: str) -> Block:
        """Return a layout whose block reads the cache of the right block of another pattern."""
        attention = layout.attention
        if attention is None or attention.cache_of is None:
            return layout
        before = pattern[: pattern.index(layout.letter)]
        place = before.rfind(self.pattern[attention.cache_of])
        if place < 0:
            raise KeyError(layout.letter)
        return layout.model_copy(update={"residuals": tuple(map(partial(_reading, place), layout.residuals))})

    def attention(self, layer: int) -> Attention | None:
        """Return the grouped-query attention of a layer, where it has one."""
        return self.blocks[layer].attention

    @property
    def routed(self) -> bool:
        """Whether some layer has experts of which a token takes a few."""
        return any(isinstance(body.op, Experts) for layout in self.layouts for body in layout.bodies)

    @cached_property
    def dense(self) -> DenseModel:
        """Return the dimensions of a model whose blocks are all alike, each full attention and one dense network.

        Raises BadInputError that says what else the model has."""
        from helmsman.schemas.dense_view import dense_view

        return dense_view(self)

    @cached_property
    def is_dense(self) -> bool:
        """Whether all blocks are alike, each full attention and one dense network."""
        try:
            return self.dense is not None
        except BadInputError:
            return False


def _reading(place: int, residual: Residual) -> Residual:
    """Return a residual whose attention reads the cache of block `place`."""
    bodies = tuple(
        body.model_copy(update={"op": body.op.model_copy(update={"cache_of": place})})
        if isinstance(body.op, Attention)
        else body
        for body in residual.bodies
    )
    return residual.model_copy(update={"bodies": bodies})
