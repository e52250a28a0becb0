"""Describes a draft head (MTP) as a model of one block, and as the block that files have behind a model's own."""

from dataclasses import replace

from helmsman.lowering.stored_names import StoredTensor, file_name, stored_tensors
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import block_tensors
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import DraftHead, Embedding, Model

EMBEDDING_NORM, HIDDEN_NORM, FUSE, OUTPUT_NORM = "enorm", "hnorm", "eh_proj", "shared_head.norm"
"""The names, in a block of a file, of a head's two norms of what it reads, of the matrix over them, and of its last
norm."""

MOST_DRAFTS = 16
"""The largest number of drafts of a step."""

_OPERATIONS = {OUTPUT_NORM: "shared_norm"}
"""The names of operations where those of files have points."""

HEAD_NORMS = (EMBEDDING_NORM, HIDDEN_NORM, _OPERATIONS[OUTPUT_NORM])
"""The operations of a head's own norms."""

APART = ("qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text")
"""Families whose files have a head apart from the blocks, under names of its own (vLLM 055e47c, Apache-2.0,
qwen3_next_mtp.py)."""

_NAMES_APART = {
    EMBEDDING_NORM: "mtp.pre_fc_norm_embedding.weight",
    HIDDEN_NORM: "mtp.pre_fc_norm_hidden.weight",
    FUSE: "mtp.fc.weight",
    OUTPUT_NORM: "mtp.norm.weight",
}
_BLOCK_APART = "mtp.layers.0."


def draft_head(model: Model) -> DraftHead:
    """Return the head of a model that drafts tokens; the first one, where a model counts several.

    Raises BadInputError for a model without one, or with one of another kind than is planned and run."""
    if not model.drafts:
        remedy = "leave drafts out, or choose a model that has one"
        raise BadInputError(
            f"{model.name} has no head that drafts tokens", field="model.drafts", value=0, remedy=remedy
        )
    head = model.drafts[0]
    if head.own_embedding or head.block.letter not in model.pattern:
        kind = "an embedding" if head.own_embedding else "a kind of block"
        message, remedy = f"the draft head of {model.name} has {kind} of its own", "leave drafts out"
        raise BadInputError(message, field="model.drafts", value=kind, remedy=remedy)
    return head


def block_model(model: Model) -> Model:
    """Return the head's block between the model's embedding and head, with a norm of its own: what stages compute."""
    head = draft_head(model)
    changes = {"layouts": (head.block,), "pattern": head.block.letter, "final": head.norm, "drafts": ()}
    return model.model_copy(update={**changes, "name": f"{model.name} draft head"})


def drafting_model(model: Model) -> Model:
    """Return what a draft pass costs as a model: rows that are joined from a token's embedding and a hidden state,
    2 H wide, a matrix that brings them to H, a norm, the block, its norm and the head.

    The two norms of what is joined are one here, of H values."""
    norm = draft_head(model).norm
    return block_model(model).model_copy(update={"embedding": Embedding(width=2 * model.hidden, norm=norm)})


def with_draft_block(model: Model) -> Model:
    """Return the model whose last block is the draft head's: its tensors have the names that files give them."""
    return model.with_pattern(model.pattern + draft_head(model).block.letter)


def joining_tensors(model: Model) -> dict[str, Tensor]:
    """Return, by name in files, what a head has beside its block, as matrix and vectors of block `model.layers`."""
    wide, layer = model.hidden, model.layers
    shapes = {EMBEDDING_NORM: (wide,), HIDDEN_NORM: (wide,), FUSE: (wide, 2 * wide), OUTPUT_NORM: (wide,)}
    operations = {name: _OPERATIONS.get(name, name) for name in shapes}
    return {name: Tensor(f"{op}.weight", op, layer, shapes[name]) for name, op in operations.items()}


def file_tensor(model: Model, name: str) -> str:
    """Return the name under which files have what a head has beside its block: as that of the block's own tensors up
    to the block's number."""
    if model.family in APART:
        return _NAMES_APART[name]
    first = file_name(model.family, block_tensors(with_draft_block(model), model.layers)[0])
    return f"{first[: first.index(f'.{model.layers}.')]}.{model.layers}.{name}.weight"


def stored_with_draft(model: Model) -> tuple[StoredTensor, ...]:
    """Return the tensors of a file that has the model and its draft head; embedding and head are shared."""
    joining = (StoredTensor(file_tensor(model, name), (part,)) for name, part in joining_tensors(model).items())
    stored = stored_tensors(with_draft_block(model))
    return (*(_named_apart(model, item) if model.family in APART else item for item in stored), *joining)


def _named_apart(model: Model, stored: StoredTensor) -> StoredTensor:
    """Return a tensor of the head's block under the name that it has apart from the model's blocks; others as they
    are."""
    if stored.parts[0].layer != model.layers:
        return stored
    return replace(stored, name=_BLOCK_APART + stored.name.split(f".{model.layers}.", 1)[1])
