"""Reads dense networks and experts from a `config.json`."""

from typing import Any

from helmsman.hwdb.config_fields import MAX_DIMENSION, Fields
from helmsman.hwdb.configs.parts.dimensions import activation
from helmsman.schemas.blocks.feed_forward import Activation, Experts, FeedForward, Router

MAX_EXPERTS = 2**16


def gated_network(
    fields: Fields, key: str = "intermediate_size", act_key: str = "hidden_act", bias: bool = False
) -> FeedForward:
    """Return a gated network whose width `key` states."""
    return FeedForward(width=fields.integer(key), activation=activation(fields, act_key, "silu"), gated=True, bias=bias)


def expert_counts(fields: Fields, key: str | tuple[str, ...], chosen_key: str) -> tuple[int, int]:
    """Return how many experts there are and how many a token takes; `key`: names, of which the first that is there
    counts.

    Raises BadInputError where a token would take more than there are, and where names contradict each other."""
    keys = (key,) if isinstance(key, str) else key
    stated = [name for name in keys if fields.has(name)] or [keys[0]]
    experts = fields.integer(stated[0], high=MAX_EXPERTS)
    for name in stated[1:]:
        if fields.integer(name, high=MAX_EXPERTS) != experts:
            raise fields.wrong(name, f"differs from {stated[0]} ({experts})", "correct one of the two")
    chosen = fields.integer(chosen_key, high=MAX_EXPERTS)
    if chosen > experts:
        raise fields.wrong(chosen_key, f"more than the {experts} experts there are", "correct one of the two")
    return experts, chosen


def gated_experts(fields: Fields, counts: tuple[int, int], width_key: str, router: Router, **more: Any) -> Experts:
    """Return gated experts whose width `width_key` states; `more`: fields of Experts."""
    act: Activation = activation(fields, "hidden_act", "silu")
    experts, chosen = counts
    width = fields.integer(width_key)
    return Experts(experts=experts, chosen=chosen, width=width, activation=act, router=router, **more)


def shared_network(fields: Fields, key: str, width: int, default: int, **more: Any) -> FeedForward | None:
    """Return the network of the shared experts, of which `key` says how many of `width` make one; None for none."""
    count = fields.integer(key, default, low=0, high=MAX_EXPERTS)
    if count * width > MAX_DIMENSION:
        raise fields.wrong(key, f"makes a network wider than {MAX_DIMENSION}", "correct the value")
    if not count:
        return None
    act: Activation = activation(fields, "hidden_act", "silu")
    return FeedForward(width=count * width, activation=act, gated=True, **more)
