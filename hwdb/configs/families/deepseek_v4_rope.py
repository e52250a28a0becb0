"""Reads the two rotations of DeepSeek V4: plain in layers with a window alone, YaRN without its magnitude in the
others."""

from typing import NamedTuple

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.parts.dimensions import MAX_CONTEXT
from helmsman.hwdb.configs.parts.rope import scaling_fields
from helmsman.hwdb.configs.parts.rope_scalings import yarn
from helmsman.schemas.blocks.positions import Rope, YarnScaling

_THETA = 10000.0
_COMPRESSED_THETA = 160000.0
_SHARE = 64 / 512
"""DeepseekV4Config's default of the part of a head that turns."""


class Rotations(NamedTuple):
    """Holds the rotation of layers with a window alone, and that of layers with pooled entries."""

    window: Rope
    compressed: Rope


def rotations(fields: Fields, head_dim: int) -> Rotations:
    """Return both rotations, of the last dimensions of a head, in pairs that lie side by side. Raises BadInputError."""
    dim = _dim(fields, head_dim)
    stated = scaling_fields(fields)
    main = stated.inner("main") if stated.has("main") else Fields({}, fields.file)
    pooled = stated.inner("compress") if stated.has("compress") else stated
    theta = fields.real("compress_rope_theta", _COMPRESSED_THETA)
    for part in (main, pooled):
        part.read.update(("partial_rotary_factor", "rope_type"))
    window = Rope(
        theta=main.real("rope_theta", fields.real("rope_theta", _THETA)),
        rotary_dim=dim,
        at="trailing",
        pairs="interleaved",
    )
    return Rotations(
        window, window.model_copy(update={"theta": pooled.real("rope_theta", theta), "scaling": _scaling(pooled)})
    )


def _dim(fields: Fields, head_dim: int) -> int:
    if fields.has("qk_rope_head_dim"):
        dim = fields.integer("qk_rope_head_dim", high=head_dim)
    else:
        dim = int(head_dim * fields.real("partial_rotary_factor", _SHARE, high=1.0))
    if dim < 2 or dim % 2:
        raise fields.wrong("qk_rope_head_dim", f"gives {dim} rotary dimensions, which must be even", "correct it")
    return dim


def _scaling(pooled: Fields) -> YarnScaling | None:
    kind = pooled.text("rope_type" if pooled.has("rope_type") else "type", "default")
    if kind == "default":
        return None
    if kind != "yarn":
        raise pooled.wrong("rope_type", f"not covered: rope scaling {kind!r}", "covered: yarn")
    original = pooled.integer("original_max_position_embeddings", high=MAX_CONTEXT)
    magnitude = pooled.real("attention_factor", 1.0)
    return yarn(pooled, original).model_copy(update={"magnitude": magnitude})
