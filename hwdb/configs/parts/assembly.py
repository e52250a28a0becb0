"""Puts a Model together from the block of every layer and the facts that all configs state alike."""

from collections.abc import Sequence

from helmsman.hwdb.configs.parts.config import Config
from helmsman.hwdb.configs.parts.dimensions import context, end_tokens, hidden_size, native_format, source, tied
from helmsman.hwdb.configs.parts.quantisation import native_quantisation
from helmsman.schemas.blocks.block import Block, Body, BodyKind, Residual
from helmsman.schemas.blocks.feed_forward import HyperConnections, PerLayerTable
from helmsman.schemas.blocks.norms import Norm
from helmsman.schemas.model import DraftHead, Embedding, Head, Model


def block(letter: str, norm: Norm, *operations: BodyKind, scale: float = 1.0) -> Block:
    """Return a block of one residual per operation, each under a norm before it; `scale`: of what residuals add."""
    residuals = (Residual(bodies=(Body(op=operation),), pre=norm, scale=scale) for operation in operations)
    return Block(letter=letter, residuals=tuple(residuals))


def assembled(
    config: Config,
    blocks: Sequence[Block],
    final: Norm | None,
    *,
    embedding: Embedding | None = None,
    head: Head | None = None,
    tied_default: bool = False,
    eos: tuple[int, ...] = (),
    drafts: tuple[DraftHead, ...] = (),
    streams: HyperConnections | None = None,
    per_layer_table: PerLayerTable | None = None,
    max_context: int | None = None,
) -> Model:
    """Return the model whose layers are `blocks`; those of one letter are equal.

    `head`: without whether it is tied, which the config says, or `tied_default`; `eos`: the class's default."""
    fields = config.fields
    pattern = "".join(layer.letter for layer in blocks)
    return Model(
        name=config.name,
        family=config.family,
        hidden=hidden_size(fields),
        vocab=fields.integer("vocab_size"),
        max_context=max_context or context(fields),
        embedding=embedding or Embedding(),
        layouts=tuple({layer.letter: layer for layer in blocks}.values()),
        pattern=pattern,
        per_layer_table=per_layer_table,
        streams=streams,
        final=final,
        head=(head or Head()).model_copy(update={"tied": tied(config, tied_default)}),
        drafts=drafts,
        native_format=native_format(config),
        native_quantisation=native_quantisation(config, pattern),
        eos=end_tokens(config, eos),
        source=source(config),
        unknown=unknown_facts(config),
    )


def unknown_facts(config: Config) -> tuple[str, ...]:
    """Return facts that are needed to run a model and are not known: those that its config names under `_unknown`, and
    those that readers missed. Raises BadInputError for a name that the config states."""
    fields = config.fields
    if fields.has("_unknown"):
        for key in fields.texts("_unknown"):
            if fields.has(key):
                raise fields.wrong("_unknown", f"names {key[:40]}, which is stated", "remove it from the list")
    return tuple(dict.fromkeys((*fields.texts("_unknown"), *fields.unstated)))
