"""Reads facts about Mamba-2 mixers that several families' configs state alike."""

from math import inf
from typing import Any

from helmsman.hwdb.config_fields import Fields, is_number
from helmsman.hwdb.configs.parts.dimensions import MAX_HEADS

_ENDLESS = 1e24
"""Steps from which on nothing is cut: some files write a large number instead of infinity."""


def longest_step(fields: Fields, key: str = "time_step_limit") -> float | None:
    """Return to what steps of time are cut from above, None where nothing cuts them. Raises BadInputError.

    transformers 5 writes infinity as {"__float__": "Infinity"}."""
    fields.read.add(key)
    if not fields.has(key):
        return None
    value = fields.content[key]
    ends = [_number(end) for end in value] if isinstance(value, list) else []
    if len(ends) != 2 or None in ends:
        raise fields.wrong(key, "two numbers are expected", "write the least and the largest step")
    low, high = ends
    if low != 0 or high is None or high <= 0:
        raise fields.wrong(
            key, "not covered: steps cut from below", "covered: from 0.0 to a positive number or infinity"
        )
    return high if high < _ENDLESS else None


def _number(value: Any) -> float | None:
    if isinstance(value, dict):
        return inf if value == {"__float__": "Infinity"} else None
    return float(value) if is_number(value) or value == inf else None


def inner_heads(fields: Fields, inner: int, what: str) -> tuple[int, int]:
    """Return heads of a mixer and their channels, from mamba_n_heads and mamba_d_head, which may be "auto".

    `inner`: channels of all heads, `what`: which keys give them. Raises BadInputError where they do not agree."""
    heads = fields.integer("mamba_n_heads", high=MAX_HEADS)
    automatic = fields.content.get("mamba_d_head") == "auto"
    fields.read.add("mamba_d_head")
    dim = inner // heads if automatic else fields.integer("mamba_d_head", high=MAX_HEADS)
    if heads * dim != inner:
        message = f"with mamba_d_head ({dim}) must make the {inner} channels of {what}"
        raise fields.wrong("mamba_n_heads", message, "correct one of them")
    return heads, dim
