"""Reads draft heads (MTP) that a `config.json` counts as num_nextn_predict_layers."""

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.parts.dimensions import MAX_LAYERS
from helmsman.schemas.blocks.block import Block
from helmsman.schemas.blocks.norms import Norm
from helmsman.schemas.model import DraftHead


def next_token_draft(fields: Fields, block: Block, norm: Norm) -> tuple[DraftHead, ...]:
    """Return the draft heads that the config counts, each with a block like the model's last; embedding and head are
    the model's own. Absent means none: classes have defaults for modules that they do not build."""
    count = fields.integer("num_nextn_predict_layers", 0, low=0, high=MAX_LAYERS)
    return (DraftHead(block=block, norm=norm, count=count),) if count else ()
