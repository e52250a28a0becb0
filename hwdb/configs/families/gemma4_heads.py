"""Reads the heads of Gemma 4's layers with full attention, which differ from those of layers with a window."""

from collections.abc import Sequence

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.parts.dimensions import MAX_HEADS, HeadCounts, kv_heads

_DIM = 512
"""Gemma4TextConfig's default of global_head_dim."""


def full_heads(fields: Fields, window: HeadCounts, full: Sequence[bool]) -> HeadCounts:
    """Return the heads of full layers; `window`: those of the others; `full`: which layers have full attention.

    num_global_key_value_heads counts only where values are keys. transformers 5 writes the same facts layer by layer,
    as per_layer_config. Raises BadInputError."""
    fields.read.add("num_global_key_value_heads")
    if fields.has("per_layer_config"):
        return _listed(fields, window, full)
    dim = fields.integer("global_head_dim", _DIM, high=MAX_HEADS)
    own = fields.has("num_global_key_value_heads") and fields.flag("attention_k_eq_v", False)
    count = kv_heads(fields, window.count, key="num_global_key_value_heads") if own else window.kv
    return HeadCounts(window.count, count, dim)


def _listed(fields: Fields, window: HeadCounts, full: Sequence[bool]) -> HeadCounts:
    listed = fields.inner("per_layer_config")
    layers = {number: listed.inner(key) for key in listed.content if (number := _number(key)) is not None}
    if sorted(layers) != [layer for layer, has in enumerate(full) if has] or len(layers) != len(listed.content):
        raise fields.wrong("per_layer_config", "must name the layers of full attention, and those alone", "correct it")
    heads = {
        HeadCounts(
            window.count,
            kv_heads(layer, window.count) if layer.has("num_key_value_heads") else window.kv,
            layer.integer("head_dim", window.dim, high=MAX_HEADS),
        )
        for layer in layers.values()
    }
    if len(heads) > 1:
        raise fields.wrong("per_layer_config", "not covered: layers of full attention that differ", "correct it")
    return heads.pop()


def _number(key: str) -> int | None:
    return int(key) if key.isascii() and key.isdigit() and len(key) < 6 else None
