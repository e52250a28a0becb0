"""Reads routers from a `config.json`: DeepSeek V3's and its relatives', and the softmax of Mixtral and Qwen."""

from helmsman.hwdb.config_fields import Fields
from helmsman.schemas.blocks.feed_forward import Router, RouterGroups

V3_EPS = 1e-20
"""What DeepSeek V3 and its relatives add to the sum of the chosen scores before they divide by it."""


def softmax_router(fields: Fields, key: str | None, default: bool = False) -> Router:
    """Return a router whose scores are a softmax over all experts; `key` says whether those chosen are divided by their
    sum, which they always are without one."""
    return Router(score="softmax", normalised=True if key is None else fields.flag(key, default))


def sigmoid_router(
    fields: Fields,
    experts: int,
    *,
    groups_key: str = "n_group",
    kept_key: str = "topk_group",
    normalised_key: str = "norm_topk_prob",
    groups: int = 1,
    kept: int = 1,
    scaling: float = 1.0,
) -> Router:
    """Return DeepSeek V3's router: sigmoids, chosen with a correction, in groups by their two best.

    The numbers are the class's defaults. Raises BadInputError for another function or method, and for groups that
    experts do not lie in."""
    fixed(fields, "scoring_func", "sigmoid")
    fixed(fields, "topk_method", "noaux_tc")
    return Router(
        score="sigmoid",
        correction=True,
        groups=router_groups(fields, experts, groups_key, kept_key, groups, kept),
        normalised=fields.flag(normalised_key, True),
        normalise_eps=V3_EPS,
        scaling=fields.real("routed_scaling_factor", scaling),
    )


def router_groups(
    fields: Fields, experts: int, groups_key: str, kept_key: str, groups: int, kept: int, by_best: bool = False
) -> RouterGroups | None:
    """Return the groups of experts, None where there is only one. Raises BadInputError."""
    count = fields.integer(groups_key, groups, high=experts)
    best = fields.integer(kept_key, min(kept, count), high=experts)
    if experts % count:
        raise fields.wrong(groups_key, f"must divide the {experts} experts", "correct it")
    if best > count:
        raise fields.wrong(kept_key, f"more than the {count} groups there are", "correct one of the two")
    return RouterGroups(count=count, kept=best, by="best" if by_best else "best-two") if count > 1 else None


def fixed(fields: Fields, key: str, *covered: str) -> str:
    """Return a text that must be one of those covered; the first where it is absent. Raises BadInputError."""
    value = fields.text(key, covered[0])
    if value not in covered:
        raise fields.wrong(key, "not covered", f"covered: {', '.join(covered)}")
    return value
